from __future__ import annotations

import pytest
import torch

from bwbench.methods.compression import ErrorFeedback
from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.sign import Sign, SignConfig
from tests.unit.methods.compression.plain import SIZES, in_blocks, normal, roundtrip, scaled_sign


@pytest.mark.parametrize("n", SIZES)
def test_against_the_definition(n):
    x = normal(n)
    assert torch.allclose(roundtrip(Sign(), x), in_blocks(x, 1024, scaled_sign), rtol=1e-5)


@pytest.mark.parametrize("block", [8, 9, 100, 65536])
def test_other_blocks(block):
    x = normal(70_000)
    assert torch.allclose(roundtrip(Sign(SignConfig(block=block)), x), in_blocks(x, block, scaled_sign), rtol=1e-5)
    assert violations(lambda: Sign(SignConfig(block=block))) == []


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e20, 1e33])
def test_every_scale_alike(scale):
    x = normal(5000)
    assert torch.allclose(roundtrip(Sign(), x * scale) / scale, roundtrip(Sign(), x), rtol=1e-3)


def test_the_mean_of_many_steps_with_feedback_is_the_gradient():
    x, codec = normal(5000), ErrorFeedback(Sign())
    total = torch.zeros(5000)
    for _ in range(100):
        codec.decode_add(codec.encode(x), total)
    assert (total / 100 - x).abs().mean() < 0.05  # 0.5 after one step


def test_size():
    assert Sign().payload_bytes(1024_000) == 128_000 + 4_000
    assert Sign().payload_bytes(1) == 5
