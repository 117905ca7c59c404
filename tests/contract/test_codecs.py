"""Every registered codec keeps the contract, bare and as a chain builds it."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import AbstractCodec, ErrorFeedback, build_codec
from bwbench.methods.compression.codec_contract import gradients, violations


@pytest.mark.parametrize("name", COMPRESSIONS.names())
def test_codec_keeps_the_contract(name):
    assert violations(lambda: COMPRESSIONS.load(name)()) == []


@pytest.mark.parametrize("name", COMPRESSIONS.names())
def test_biased_codecs_get_error_feedback_by_default(name):
    codec_class = COMPRESSIONS.load(name)
    codec = build_codec([Component(name, codec_class.Config())])
    x = gradients()["normal"]
    codec.encode(x)
    assert (isinstance(codec, ErrorFeedback) or codec.keeps_residual) == codec_class.biased


class Lossy(AbstractCodec):
    """Wrong in many ways."""

    def payload_bytes(self, num_elements):
        return num_elements

    def encode(self, x):
        x += 1
        return x.flatten().nan_to_num().to(torch.float16).view(torch.uint8)

    def decode(self, payload, num_elements):
        return payload.view(torch.float16).to(torch.float32) - 1


def test_the_contract_finds_what_is_wrong():
    text = "\n".join(violations(Lossy))
    assert "normal: encode changed its input" in text
    assert "payload_bytes says 20000, encode gave 40000" in text
    assert "a NaN of the input is not seen" in text
