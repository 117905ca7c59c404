from __future__ import annotations

import pytest
import torch

from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.sign import Int2, Int2Config
from tests.unit.methods.compression.plain import SIZES, in_blocks, normal, roundtrip, two_magnitudes


@pytest.mark.parametrize("n", SIZES)
def test_against_the_definition(n):
    x = normal(n)
    difference = (roundtrip(Int2(), x) - in_blocks(x, 512, two_magnitudes)).abs()
    assert int((difference > 1e-4).sum()) <= 1 + n // 10_000, "only ties may differ"


@pytest.mark.parametrize("block", [8, 100, 65536])
def test_other_blocks(block):
    assert violations(lambda: Int2(Int2Config(block=block))) == []


def test_normal_values_keep_what_the_best_four_values_keep():
    x = normal(512_000)
    assert float((roundtrip(Int2(), x) - x).square().mean()) == pytest.approx(0.12, abs=0.004)


@pytest.mark.parametrize("power", [1, 3, 9])
def test_the_residual_is_always_shorter(power):
    x = normal(51_200) ** power
    error = (roundtrip(Int2(), x) - x).view(-1, 512).norm(dim=1)
    assert bool((error < 0.99 * x.view(-1, 512).norm(dim=1)).all())


def test_equal_magnitudes_come_back():
    x = normal(1000).sign() * 0.25
    assert torch.allclose(roundtrip(Int2(), x), x)
    one = torch.zeros(512)
    one[100] = -3.0
    assert torch.allclose(roundtrip(Int2(), one), one)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_spoils_its_block_alone(value):
    x = normal(2000)
    x[600] = value
    out = roundtrip(Int2(), x)
    assert not out[512:1024].isfinite().all()
    assert out[:512].isfinite().all()
    assert out[1024:].isfinite().all()


def test_size():
    assert Int2().payload_bytes(51_200) == 12_800 + 800
