from __future__ import annotations

import pytest

from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.int8 import Int4, Int4Config
from tests.unit.methods.compression.plain import SIZES, in_blocks, nearest_of_fifteen, normal, roundtrip


@pytest.mark.parametrize("n", SIZES)
def test_against_the_definition(n):
    x = normal(n)
    different = (roundtrip(Int4(), x) - in_blocks(x, 128, nearest_of_fifteen)).abs() > 1e-6
    assert int(different.sum()) <= 1 + n // 10_000, "only ties may differ"


@pytest.mark.parametrize("block", [8, 64, 300, 65536])
def test_other_blocks(block):
    x = normal(70_000)
    different = (roundtrip(Int4(Int4Config(block=block)), x) - in_blocks(x, block, nearest_of_fifteen)).abs() > 1e-6
    assert int(different.sum()) <= 7
    assert violations(lambda: Int4(Int4Config(block=block))) == []


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e20, 1e37])
def test_every_scale_alike(scale):
    x = normal(1000)
    error = roundtrip(Int4(), x * scale).double() / scale - x
    assert error.abs().max() < 0.51 * x.abs().max() / 7
    assert error.square().mean() < 1.1 * (roundtrip(Int4(), x) - x).square().mean()


def test_no_error_is_larger_than_the_value():
    x = normal(100_000) * normal(100_000, 1) ** 4
    error = roundtrip(Int4(), x) - x
    assert bool((error.abs() <= x.abs() * (1 + 1e-6)).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_spoils_its_block_alone(value):
    x = normal(1000)
    x[130] = value
    out = roundtrip(Int4(), x)
    assert not out[130].isfinite()
    assert out[:128].isfinite().all()
    assert out[256:].isfinite().all()


def test_a_gradient_is_an_eighth_of_fp32():
    assert Int4().payload_bytes(128_000) == 64_000 + 2_000
