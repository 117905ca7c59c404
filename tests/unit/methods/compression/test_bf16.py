from __future__ import annotations

import math

import torch

from bwbench.methods.compression.fp16 import Bf16
from tests.unit.methods.compression.plain import normal, roundtrip


def nearest(value):
    """Eight significant bits, ties to even: Python's round does just that."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 256), exponent - 8)


def test_against_the_definition():
    x = torch.cat([normal(2000, scale=scale) for scale in (1.0, 1e-20, 1e20)])
    assert torch.equal(roundtrip(Bf16(), x), torch.tensor([nearest(value) for value in x.tolist()]))


def test_ties_go_to_even():
    x = torch.tensor([1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256])
    assert roundtrip(Bf16(), x).tolist() == [1.0, 1 + 4 / 256, -1.0]


def test_infinities_and_nan_pass():
    out = roundtrip(Bf16(), torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0]))
    assert out[0] == float("inf")
    assert out[1] == float("-inf")
    assert out[2].isnan()
    assert out[3] == 1.0


def test_it_rides_the_ring():
    codec, total = Bf16(), normal(200_000)
    expected = total + roundtrip(codec, normal(200_000, 1))
    codec.decode_add(codec.encode(normal(200_000, 1)), total)
    assert torch.equal(total, expected)
    assert codec.sums_on_ring
    assert not codec.biased
