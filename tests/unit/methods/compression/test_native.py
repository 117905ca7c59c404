"""What is compiled gives the bits of what torch and numpy give, whatever the tensor, and is left alone where it cannot.

The library is compiled here by ``setup.py``, so that it is that of these sources, whatever is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.methods import native as native_module
from bwbench.methods.buffers import PIECE
from bwbench.methods.compression import AbstractCodec, ErrorFeedback
from bwbench.methods.compression.error_feedback import ResidualConfig
from bwbench.methods.compression.sparse import decode_indices, encode_indices
from bwbench.methods.native import LIBRARY, Native, find, left_out, native

pytestmark = pytest.mark.avx2  # elsewhere nothing is compiled

ROOT = Path(__file__).parents[4]
NUM_TENSORS = 1000
NUM_OF_VARIANTS = 250  # tensors with options of a codec that are no default
CODECS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp16": ("fp16", {}),
    "int8": ("int8", {}),
    "int8, absolute epsilon": ("int8", {"epsilon": "bagua"}),
    "int8, blocks of 8": ("int8", {"block": 8}),
    "int8, blocks of 100": ("int8", {"block": 100}),
    "int8, a block a piece": ("int8", {"block": PIECE - 5}),
    "sign": ("sign", {}),
    "sign, blocks of 8": ("sign", {"block": 8}),
    "sign, blocks of 200": ("sign", {"block": 200}),
    "sign, blocks that end within a byte": ("sign", {"block": 100}),
    "sign, blocks too large": ("sign", {"block": 40_000}),
    "threshold": ("threshold", {}),
    "threshold, absolute": ("threshold", {"value": 0.5}),
    "threshold, half of all": ("threshold", {"quantile": 0.5}),
    "top-k": ("top-k", {}),
    "top-k, few": ("top-k", {"ratio": 0.001}),
    "top-k, exact": ("top-k", {"ratio": 0.03, "exact": True}),
    "top-k, chunks": ("top-k", {"ratio": 0.02, "chunk": 300}),
    "dgc": ("dgc", {}),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is None:
        pytest.skip("no C compiler")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder / LIBRARY.relative_to(ROOT)


@pytest.fixture(autouse=True)
def compiled(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    monkeypatch.delenv(native_module.SWITCH, raising=False)
    found = find(library)
    if found.library is None:
        pytest.skip(found.words)
    using = Native(found.library)
    monkeypatch.setattr(native_module, "_found", lambda: using)
    with np.errstate(all="ignore"):  # numpy warns of signalling NaN
        yield using


def test_it_goes_with_this_torch(compiled: Native) -> None:
    assert compiled.fuses and compiled.sums_alike


def test_it_is_tried_in_fp32_whatever_type_a_script_has_made_the_usual_one(library: Path) -> None:
    found, usual = find(library).library, torch.get_default_dtype()
    assert found is not None
    torch.set_default_dtype(torch.bfloat16)
    try:
        tried = Native(found)
    finally:
        torch.set_default_dtype(usual)
    assert tried.fuses and tried.sums_alike


def tensor(seed: int) -> torch.Tensor:
    """Any length, any scale; of some, entries that are odd in one way or another."""
    random = np.random.default_rng(seed)
    longest = (40, 3000, 20_000)[min(2, int(random.exponential(0.8)))] if seed % 125 else 3 * PIECE
    length = seed if seed < 40 else int(random.integers(longest + 1))
    scale = 10.0 ** random.uniform(-44, 37) if seed % 2 else 1.0
    with np.errstate(over="ignore", under="ignore"):
        x = (random.standard_normal(length) * scale).astype(np.float32)
    if seed % 7 == 0:
        x[:] = x[:1]  # constant
    if seed % 5 == 0:
        x[random.random(length) < 0.5] = 0.0
    odd = {1: [-0.0, 0.0], 2: [1e-45, -1e-40, 1.1e-38], 3: [65504.0, 65519.99, 65520.0, -7e4, 6e-8, -2.9e-8]}
    odd |= {4: [3.4e38, -3.4e38], 5: [np.inf], 6: [-np.inf, np.inf], 7: [np.nan], 8: [np.nan, -np.nan, np.inf]}
    for value in odd.get(seed % 11, []):
        x[random.random(length) < random.choice([0.001, 0.2])] = value
    if seed % 11 == 9:  # other NaN than the usual one
        x.view(np.uint32)[random.random(length) < 0.01] = random.choice([0x7FC12345, 0xFFFFFFFF, 0x7F800001])
    return torch.zeros(length).copy_(torch.from_numpy(x))


def codec_of(name: str) -> AbstractCodec:
    kind, options = CODECS[name]
    built = COMPRESSIONS.load(kind)
    codec: AbstractCodec = built(built.Config(**options))
    return codec


def bits(values: torch.Tensor) -> bytes:
    return values.numpy().tobytes()


def same(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert found.dtype == expected.dtype and bits(found) == bits(expected), what


@pytest.mark.parametrize("name", CODECS)
def test_bits_are_those_of_torch_and_numpy(name: str) -> None:
    for seed in range(NUM_OF_VARIANTS if CODECS[name][1] else NUM_TENSORS):
        x, total = tensor(seed), tensor(seed).nan_to_num(1.0, 2.0, 3.0).roll(1)
        with left_out():
            expected = codec_of(name).encode(x)
            expected_values = codec_of(name).decode(expected, len(x))
            expected_total = total.clone()
            codec_of(name).decode_add(expected, expected_total)
        before = x.clone()
        found = codec_of(name).encode(x)
        same(x, before, f"tensor {seed}: changed")
        same(found, expected, f"tensor {seed}: payload")
        same(codec_of(name).decode(found, len(x)), expected_values, f"tensor {seed}: values")
        codec_of(name).decode_add(found, total)
        same(total, expected_total, f"tensor {seed}: values added")


@pytest.mark.parametrize("residual", [ResidualConfig(), ResidualConfig(unit="update"), ResidualConfig(decay=0.9)])
@pytest.mark.parametrize("name", [name for name in CODECS if name != "dgc"])
def test_residuals_are_those_of_torch_and_numpy(name: str, residual: ResidualConfig) -> None:
    for seed in range(NUM_OF_VARIANTS if residual == ResidualConfig() else 60):
        x, found, expected = tensor(seed), *(ErrorFeedback(codec_of(name), residual) for _ in range(2))
        for step in range(3):
            values = x.roll(step) if step < 2 else x.nan_to_num(0.0, 1.0, -1.0)
            found.rate = expected.rate = (0.1, 0.0, 0.05)[(seed + step) % 3]
            payload = found.encode(values)
            with left_out():
                same(payload, expected.encode(values), f"tensor {seed}, step {step}: payload")
            assert found.residual is not None and expected.residual is not None
            same(found.residual, expected.residual, f"tensor {seed}, step {step}: residual")


def test_places_have_the_same_code() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        length = int(random.integers(1, 1 << int(random.integers(1, 20))))
        share = random.choice([0.0003, 0.01, 0.2, 0.9, 1.0])
        places = np.flatnonzero(random.random(length) < share)
        if seed % 4 == 0:  # in clusters
            places = places[places % 997 < 100]
        found, low_bits = encode_indices(places, length)
        with left_out():
            expected, expected_low_bits = encode_indices(places, length)
            assert decode_indices(expected, len(places), low_bits).tolist() == places.tolist()
        assert low_bits == expected_low_bits and found.tobytes() == expected.tobytes(), seed
        assert decode_indices(found, len(places), low_bits).tolist() == places.tolist()


@pytest.mark.parametrize("without", [False, True])
def test_a_code_of_other_places_is_refused(*, without: bool) -> None:
    code, low_bits = encode_indices(np.arange(0, 1000, 10), 1000)
    codec, x = codec_of("top-k"), torch.arange(1000.0)
    payload = codec.encode(x)

    def refused() -> None:
        with pytest.raises(ValueError, match="a code of 90 indices holds 1"):
            decode_indices(code, 90, low_bits)
        with pytest.raises(IndexError):
            codec.decode(payload, 990)  # the largest lie at the end
        with pytest.raises(IndexError):
            codec.decode_add(payload, torch.zeros(990))

    if without:
        with left_out():
            refused()
    else:
        refused()


def test_a_vector_in_the_middle_of_memory_is_no_other() -> None:
    memory = torch.randn(5003)
    for name in CODECS:
        for begin in range(1, 9):
            part = memory[begin : begin + 4001]
            with left_out():
                expected = codec_of(name).encode(part)
            same(codec_of(name).encode(part), expected, name)


def test_it_is_left_alone_where_it_cannot_be_used(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(tmp_path / "none.so").library is None and "no C compiler" in find(tmp_path / "none.so").words
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    assert find(broken).library is None and "cannot be loaded" in find(broken).words
    monkeypatch.setattr(native_module, "VERSION", native_module.VERSION + 1)
    assert find(library).library is None and "another version" in find(library).words
    monkeypatch.setenv(native_module.SWITCH, "python")
    assert find(library).library is None and "BWBENCH_CODECS=python" in find(library).words


def test_what_adds_up_otherwise_is_left_to_torch(compiled: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5000)
    expected = {name: codec_of(name).encode(x) for name in ("sign", "int8")}
    monkeypatch.setattr(compiled, "sums_alike", False)
    monkeypatch.setattr(compiled, "fuses", False)
    calls: list[str] = []
    refuse: Callable[..., Any] = lambda *_: calls.append("called")  # noqa: E731
    monkeypatch.setattr(compiled, "_call", {**compiled._call, "to_signs": refuse, "to_codes": refuse})
    for name, payload in expected.items():
        same(codec_of(name).encode(x), payload, name)
    assert not calls


def test_threads_may_share_it() -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = torch.randn(100_000)
    expected = codec_of("int8").encode(x)
    with ThreadPoolExecutor(4) as pool:
        for payload in pool.map(lambda _: codec_of("int8").encode(x), range(32)):
            same(payload, expected, "of another thread")
    assert native() is not None


@pytest.mark.parametrize("length", [1, 2, 3, 1_001, 13_000, 100_001])
@pytest.mark.parametrize("kind", ["any bits", "of normal values", "all zero", "few"])
def test_the_largest_but_so_many(compiled: Native, kind: str, length: int) -> None:
    random = np.random.default_rng(length)
    magnitudes = {
        "any bits": random.integers(0, 2**31, length, np.int64).astype(np.int32),
        "of normal values": np.abs(random.standard_normal(length)).astype(np.float32).view(np.int32),
        "all zero": np.zeros(length, np.int32),
        "few": (random.integers(0, 3, length) * 1_000_003).astype(np.int32),
    }[kind]
    for count in {1, max(1, length // 100), (length + 1) // 2, length}:
        assert compiled.rank(magnitudes, count) == np.sort(magnitudes)[length - count]
