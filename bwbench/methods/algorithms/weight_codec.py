"""Which codecs may carry weights themselves, not gradients or differences."""

from __future__ import annotations

from bwbench.methods.compression.base import AbstractCodec

LEAST_BITS = 16  # a step of training changes a weight by some 1e-3 of it; fp16 resolves 5e-4, int8 4e-3 at best
_SAMPLE_ELEMENTS = 4096  # enough for the headers of a payload not to count


def weight_codec_refusal(codec: AbstractCodec) -> str | None:
    """Why weights cannot be sent with ``codec``; None where they can. Imports no torch.

    A gradient that is rounded costs one noisy step. Weights that are rounded forget every change smaller than the
    grid they are rounded to, and what a sparse or low-rank codec leaves out is no longer part of the model.
    """
    advice = "send their differences: algorithm: low-precision-decentralized"
    if codec.linear or codec.biased or codec.carries:
        return f"what it leaves out of a weight would be missing from the model; {advice}"
    bits = 8 * codec.payload_bytes(_SAMPLE_ELEMENTS) / _SAMPLE_ELEMENTS
    if bits < LEAST_BITS:
        return f"it keeps {bits:.2g} bits of a weight, a coarser grid than the steps of training; {advice}"
    return None
