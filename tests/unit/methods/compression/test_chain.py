from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.chain import chain_refusal, nest
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.fp16 import Fp16
from bwbench.methods.compression.sparse import Threshold, ThresholdConfig


def chain(*names):
    return [Component(name) for name in names]


def component(name):
    options = {"momentum": 0.0} if name == "dgc" else {}  # its identity is one of sums only without a momentum
    return Component(name, COMPRESSIONS.load(name).Config(**options))


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def test_none_changes_nothing_anywhere_in_a_chain():
    assert isinstance(build_codec(chain("none")), NoCompression)
    assert isinstance(build_codec([]), NoCompression)
    assert isinstance(build_codec(chain("none", "fp16", "none")), Fp16)


def test_biased_codecs_are_wrapped_unless_told_otherwise():
    assert isinstance(build_codec([Component("threshold", ThresholdConfig())]), ErrorFeedback)
    bare = build_codec([Component("threshold", ThresholdConfig(error_feedback=False))])
    assert isinstance(bare, Threshold)


def test_only_codecs_that_carry_values_can_be_followed():
    assert "'threshold' cannot follow 'fp16'" in chain_refusal(chain("fp16", "threshold"))
    with pytest.raises(ConfigError, match="cannot follow"):
        build_codec(chain("fp16", "threshold"))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["top-k", "powersgd"], "whole gradients"),
        (["threshold", "dgc"], "whole gradients"),
        (["powersgd", "random-k"], "whole gradients"),
        (["random-k", "threshold"], "no residual"),
    ],
)
def test_chains_that_would_lose_something_are_refused(names, words):
    assert words in chain_refusal(chain(*names))


def test_one_residual_for_a_whole_chain():
    codec = build_codec([component("top-k"), component("top-k"), component("fp16")])
    assert isinstance(codec, ErrorFeedback)
    assert not isinstance(codec.codec, ErrorFeedback)
    assert not isinstance(codec.codec.inner, ErrorFeedback)
    assert isinstance(codec.codec.inner.inner, Fp16)


def test_values_are_those_of_the_inner_codec():
    x = normal(20_000)
    bare, with_fp16 = nest([component("top-k")]), nest([component("top-k"), component("fp16")])
    expected = bare.decode(bare.encode(x), 20_000)
    payload = with_fp16.encode(x)
    assert torch.equal(with_fp16.decode(payload, 20_000), expected.half().float())
    assert bare.encode(x).numel() - payload.numel() == 2 * 200


def test_memory_of_inner_codecs_is_part_of_the_chain():
    codec = build_codec([component("top-k"), component("qsgd")])
    codec.prepare([(5_000,)], rank=1, bucket=2)
    first = codec.encode(normal(5_000)).clone()
    state = codec.state_dict()
    second = codec.encode(normal(5_000, 1)).clone()
    codec.load_state_dict(state)
    assert torch.equal(codec.encode(normal(5_000, 1)), second)
    assert torch.equal(codec.fresh().encode(normal(5_000)), first)
    codec.load_state_dict({})
    assert torch.equal(codec.encode(normal(5_000)), first)


NAMES = [name for name in COMPRESSIONS.names() if name != "none"]


@st.composite
def allowed_chains(draw):
    """One to three codecs of the registry that may follow one another."""
    found = [draw(st.sampled_from(NAMES))]
    for _ in range(draw(st.integers(0, 2))):
        following = [name for name in NAMES if chain_refusal(chain(*found, name)) is None]
        if not following:
            break
        found.append(draw(st.sampled_from(following)))
    return found


@given(allowed_chains(), st.integers(0, 1000))
@example(["threshold", "random-subset", "threshold"], 0)  # of few values, most bytes are headers
@settings(max_examples=60, deadline=None)
def test_any_chain_loses_nothing_and_keeps_to_its_estimate(names, seed):
    n = 20_000
    codec = build_codec([component(name) for name in names])
    if not isinstance(codec, ErrorFeedback) and not codec.keeps_residual:
        codec = ErrorFeedback(codec)
    codec.prepare([(n,)], rank=seed % 3)
    put_in, came_out = torch.zeros(n), torch.zeros(n)
    for step in range(3):
        x = normal(n, seed + step)
        put_in += x
        payload = codec.encode(x).clone()
        codec.decode_add(payload, came_out)
        estimate = codec.payload_bytes(n)
        assert abs(estimate - payload.numel()) <= 0.15 * payload.numel()
        assert payload.numel() <= codec.max_payload_bytes(n)
    state = codec.state_dict()
    kept = state["unsent"] if codec.keeps_residual else state["residual"]
    assert torch.allclose(came_out + kept, put_in, rtol=1e-4, atol=1e-4)


def test_plan_time_parts_import_no_torch():
    modules = "bwbench.methods.compression bwbench.methods.collectives bwbench.methods.algorithms".split()
    code = f"""
import importlib, sys
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
[importlib.import_module(name) for name in {modules}]
codecs = [COMPRESSIONS.load(name)() for name in COMPRESSIONS.names()]
[codec.payload_bytes(1000) for codec in codecs]
[COLLECTIVES.load(name)().traffic(4, [1000]) for name in COLLECTIVES.names()]
[ALGORITHMS.load(name)() for name in ALGORITHMS.names()]
print([name for name in ("torch", "pandas", "matplotlib", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
