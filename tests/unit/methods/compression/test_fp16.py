from __future__ import annotations

import torch

from bwbench.methods.compression.fp16 import Fp16


def roundtrip(x):
    return Fp16().decode(Fp16().encode(x), x.numel())


def test_rounds_to_the_nearest_half():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    assert torch.equal(roundtrip(x), x.half().float())


def test_large_finite_values_saturate():
    x = torch.tensor([65504.0, 65519.0, 65520.0, 1e30, -1e30])
    assert torch.equal(roundtrip(x), torch.tensor([65504.0, 65504.0, 65504.0, 65504.0, -65504.0]))


def test_infinities_and_nan_pass():
    out = roundtrip(torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0, 1e9]))
    assert out[0] == float("inf")
    assert out[1] == float("-inf")
    assert out[2].isnan()
    assert out[3:].tolist() == [1.0, 65504.0]
