"""Codecs written as their papers define them, one element after the other, in Python's own fp64: slow and plain."""

from __future__ import annotations

import math

import torch

SIZES = [1, 2, 7, 8, 9, 127, 128, 129, 1000, 262_143, 262_144, 262_153]  # around blocks, bytes and pieces


def normal(n, seed=0, scale=1.0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)) * scale


def roundtrip(codec, x):
    return codec.decode(codec.encode(x), x.numel())


def blocks_of(x, block):
    values = x.tolist()
    return [values[begin : begin + block] for begin in range(0, len(values), block)]


def in_blocks(x, block, quantize):
    return torch.tensor([value for values in blocks_of(x, block) for value in quantize(values)])


def minmax_uint8(values, epsilon):
    """ByteGrad's MinMaxUInt8."""
    scale = 255 / (max(values) - min(values) + epsilon)
    upper = round(max(values) * scale)
    lower = upper - 255
    codes = [min(round(value * scale), upper) - lower for value in values]
    assert all(0 <= code <= 255 for code in codes)
    return [(code + lower) / scale for code in codes]


def bf16_upwards(value):
    """The smallest number of 8 significant bits that is not below ``value``."""
    if value == 0:
        return 0.0
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.ceil(mantissa * 256), exponent - 8)


def nearest_of_fifteen(values):
    scale = bf16_upwards(max(map(abs, values)) / 7)
    return [round(value / scale) * scale if scale else 0.0 for value in values]


def scaled_sign(values):
    mean = sum(map(abs, values)) / len(values)
    return [-mean if value < 0 else mean for value in values]


def two_magnitudes(values):
    mean = sum(map(abs, values)) / len(values)
    small = [abs(value) for value in values if abs(value) < mean]
    large = [abs(value) for value in values if abs(value) >= mean]
    magnitudes = (sum(small) / max(1, len(small)), sum(large) / max(1, len(large)))
    return [
        math.copysign(magnitudes[abs(abs(v) - magnitudes[0]) >= abs(abs(v) - magnitudes[1])], v if v else 1.0)
        for v in values
    ]
