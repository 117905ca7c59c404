"""Codecs against the formulas of their papers: with the codec's own random numbers, or with their mean."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from bwbench.methods.compression.dgc import Dgc, DgcConfig
from bwbench.methods.compression.int8 import Int8, Int8Config
from bwbench.methods.compression.powersgd import gram_schmidt
from bwbench.methods.compression.sign import Sign, SignConfig
from bwbench.methods.compression.sparse import Threshold, ThresholdConfig, TopK, TopKConfig, entries_at
from bwbench.methods.compression.stochastic import (
    AbstractStochasticCodec,
    Natural,
    Qsgd,
    QsgdConfig,
    TernGrad,
    TernGradConfig,
)
from tests.references import compressors as formulas

LENGTH = 4000


def values(seed: int = 0, length: int = LENGTH) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def there_and_back(codec, x: Tensor) -> Tensor:
    return codec.decode(codec.encode(x), x.numel()).clone()


def drawn(codec: AbstractStochasticCodec, length: int, dtype: str) -> Tensor:
    """The integers that the next call of a codec draws for one piece."""
    (numbers,) = copy.deepcopy(codec)._integers([length], dtype)  # type: ignore[arg-type]
    return torch.from_numpy(numbers.copy())


def scale_exactly(x: Tensor, block: int) -> Tensor:
    """The same with a power of two as the largest magnitude of each block: as bfloat16 it is what it was."""
    x = x.clamp(-3.9, 3.9)
    x[::block] = 4.0
    return x


def chances(codec: AbstractStochasticCodec, x: Tensor) -> Tensor:
    """The uniform numbers below which a magnitude goes up: a codec adds one of its own and cuts off, below zero too."""
    added = drawn(codec, x.numel(), "int16").double() / 2**16 + 0.5 + 2.0**-17
    return torch.where(x >= 0, 1 - added, added).float()


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_qsgd_rounds_as_its_formula(levels: int) -> None:
    codec, x = Qsgd(QsgdConfig(levels=levels, block=500)), scale_exactly(values(), 500)
    expected = formulas.qsgd(x, chances(codec, x), levels, 500, "max")
    assert_nearly_all_equal(there_and_back(codec, x), expected, step=4 / levels, share=1e-3)


def test_terngrad_rounds_as_its_formula() -> None:
    codec, x = TernGrad(TernGradConfig(block=LENGTH)), scale_exactly(values(), LENGTH)
    expected = formulas.terngrad(x, chances(codec, x))
    assert_nearly_all_equal(there_and_back(codec, x), expected, step=4.0, share=1e-3)


def test_natural_rounds_as_its_formula() -> None:
    codec, x = Natural(), values()
    added = (drawn(codec, LENGTH, "int32").long() & 0xFFFFFFFF) >> 9
    uniform = ((2**23 - 1 - added).double() / 2**23).float()
    assert torch.equal(there_and_back(codec, x), formulas.natural(x, uniform))


@pytest.mark.parametrize("codec", [Qsgd(QsgdConfig(norm="l2", block=64)), TernGrad(TernGradConfig(block=64))])
def test_random_rounding_is_right_on_average(codec: AbstractStochasticCodec) -> None:
    x, calls = values(1, 64), 1500
    total = sum(there_and_back(codec, x).double() for _ in range(calls)) / calls
    assert (total - x).abs().max() < 5 * 8 / 2 / calls**0.5 / 1.2  # 5 deviations of a step of at most the norm, 8


def test_terngrad_cuts_off_as_its_formula() -> None:
    x, calls = values(2, 64), 1500
    codec = TernGrad(TernGradConfig(block=64, clip=1.5))
    total = sum(there_and_back(codec, x).double() for _ in range(calls)) / calls
    grid = (torch.arange(200) + 0.5) / 200
    expected = sum(formulas.terngrad(x, torch.full_like(x, float(u)), clip_sigmas=1.5) for u in grid) / 200
    assert (total - expected).abs().max() < 0.2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("relative", [True, False])
def test_int8_is_minmax_uint8(scale: float, relative: bool) -> None:
    """The grid is at most 2^-15 wider, so that a value close to the middle of two levels may fall on the other one."""
    codec, x = Int8(Int8Config(epsilon="relative" if relative else "bagua")), values() * scale
    expected = formulas.minmax_uint8(x, relative=relative)
    step = float(x.max() - x.min()) / 255
    assert_nearly_all_equal(there_and_back(codec, x), expected, step=step, share=0.01, tolerance=256 * 2**-15)


def test_exact_codecs_are_their_formulas() -> None:
    x = values(3)
    for block in (64, 1000):
        close(there_and_back(Sign(SignConfig(block=block)), x), formulas.sign_block(x, block))
    k = entries_at(0.03, LENGTH)
    assert torch.equal(there_and_back(TopK(TopKConfig(ratio=0.03, exact=True)), x), formulas.top_k(x, k))
    in_chunks = there_and_back(TopK(TopKConfig(ratio=0.05, chunk=100)), x)
    assert torch.equal(in_chunks, formulas.top_k_chunked(x, 5, 100))
    assert torch.equal(there_and_back(Threshold(ThresholdConfig(value=2.0)), x), formulas.threshold(x, 2.0))
    matrix = values(4, 60).view(3, 20)
    close(gram_schmidt(matrix), formulas.gram_schmidt(matrix.double().t()).t().float())
    codec = Dgc(DgcConfig(ratio=0.001, warmup_steps=4))
    for step in range(6):
        assert codec.ratio_at(step) == pytest.approx(formulas.exponential_share(step, 0.25, 0.001, 4))


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def assert_nearly_all_equal(one: Tensor, other: Tensor, step: float, share: float, tolerance: float = 1e-5) -> None:
    """But for a share, which fell on the next level: that lay between two but for the last bits of a product."""
    apart = (one - other).abs() / step
    assert apart.max() < 1 + tolerance
    assert (apart > tolerance).double().mean() <= share
