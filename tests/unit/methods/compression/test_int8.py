from __future__ import annotations

import pytest
import torch

from bwbench.base.component import Component
from bwbench.methods.compression import build_codec
from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.compression.int8 import Int8, Int8Config
from tests.unit.methods.compression.plain import SIZES, in_blocks, minmax_uint8, normal, roundtrip


def steps(x):
    return float(x.max() - x.min()) / 255


@pytest.mark.parametrize("n", SIZES)
def test_whole_tensor_against_bagua(n):
    x = normal(n) + 0.3
    expected = in_blocks(x, n, lambda values: minmax_uint8(values, 1e-7))
    different = (roundtrip(Int8(Int8Config(epsilon="bagua")), x) - expected).abs() > 0.01 * steps(x) + 1e-6
    # Our step is larger by up to 2^-15 of itself: values near the middle of two codes may fall to the other side.
    assert int(different.sum()) <= 1 + n // 100
    assert (roundtrip(Int8(), x) - x).abs().max() <= 0.501 * steps(x) + 1e-6


@pytest.mark.parametrize("block", [8, 100, 4096])
def test_blocks_against_bagua(block):
    x = normal(10_000)
    expected = in_blocks(x, block, lambda values: minmax_uint8(values, 1e-7 * max(map(abs, values))))
    different = (roundtrip(Int8(Int8Config(block=block)), x) - expected).abs() > 0.01 * steps(x)
    assert int(different.sum()) <= 100


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e-9, 1.0, 1e9, 1e37])
def test_relative_epsilon_keeps_all_levels_at_every_scale(scale):
    x = normal(5000)
    assert len(roundtrip(Int8(), x * scale).unique()) == len(roundtrip(Int8(), x).unique()) > 150


def test_absolute_epsilon_loses_small_gradients():
    x = normal(5000, scale=1e-9)
    assert len(roundtrip(Int8(Int8Config(epsilon="bagua")), x).unique()) < 30
    assert not roundtrip(Int8(Int8Config(epsilon="bagua")), x * 1e-3).any()


@pytest.mark.parametrize("value", [0.0, 1.0, -0.25, 3e-20, -7e30, 65504.0])
def test_constants_come_back(value):
    x = torch.full((1000,), value)
    assert torch.allclose(roundtrip(Int8(), x), x, rtol=1e-6, atol=0)


def test_zero_stays_zero_among_others():
    x = normal(1000)
    x[::3] = 0.0
    assert not roundtrip(Int8(), x)[::3].any()


def test_values_far_from_zero_keep_what_fp32_tells_apart():
    x = 1000.0 + normal(1000, scale=1e-3)
    assert (roundtrip(Int8(), x) - x).abs().max() < 3e-4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("block", [None, 64])
def test_what_is_not_finite_is_seen(value, block):
    x = normal(1000)
    x[70] = value
    out = roundtrip(Int8(Int8Config(block=block)), x)
    assert not out[64:128].isfinite().any()
    assert out[:64].isfinite().all() == (block is not None)


def test_contract_and_options():
    for options in ({"block": 64}, {"block": 65536}, {"epsilon": "bagua"}):
        assert violations(lambda options=options: Int8(Int8Config(**options))) == []
    assert Int8().payload_bytes(1000) == 8 + 1000
    assert Int8(Int8Config(block=64)).payload_bytes(1000) == 16 * 8 + 1000
    assert isinstance(build_codec([Component("int8", Int8Config(error_feedback=True))]), ErrorFeedback)
