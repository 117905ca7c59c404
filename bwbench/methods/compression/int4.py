"""4 bits an element: fifteen steps between minus and plus the largest magnitude of each block."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import PIECE, Scratch, array_of, tensor_of
from bwbench.methods.compression.blocks import AbstractBlockCodec, pack, packed_bytes, reciprocal, unpack, up_to_bf16
from bwbench.methods.deferred import torch

LARGEST_CODE = 7
_BASE = 16


class Int4Config(ComponentConfig):
    """Options of ``int4``.

    Attributes:
        block: elements that share a scale. 128: the scales add 1/8 bit an element; the largest of 128 normal values is
            2.7 standard deviations, so that a step is 0.39 of them.
        error_feedback: keep what rounding loses and add it to the next gradient.
    """

    block: int = Field(128, ge=8, le=PIECE)
    error_feedback: bool = True


class Int4(AbstractBlockCodec):
    """Rounds to the nearest of -7 … 7 times the block's scale. Payload: a bfloat16 scale a block, two values a byte.

    Symmetric rather than between minimum and maximum, because gradients are, because zero is then sent as zero and
    because one scale a block suffices. No error is larger than the value itself, so error feedback converges
    (Karimireddy et al. 2019: a contraction). Values below half a step, a fifth of a standard deviation, would be lost
    in every step: hence the residual.
    """

    Config = Int4Config
    biased = True
    scale_type = "bfloat16"
    options: Int4Config

    def _code_bytes(self, num_elements: int) -> int:
        return packed_bytes(num_elements, _BASE)

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        return up_to_bf16(measures / LARGEST_CODE)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:

        return tensor_of(reciprocal(array_of(scales)))

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = torch.mul(rows, factors[0], out=room.like(rows))
        values.add_(torch.tensor(LARGEST_CODE + 0.5))  # cutting off is then rounding: all are positive
        pack(room.to_numbers(values), _BASE, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        unpack(codes, _BASE, array_of(room.numbers))
        room.from_numbers(LARGEST_CODE, rows)
        rows.mul_(factors[0])
