"""One bit an element: the sign, with the mean magnitude of each block of elements."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import PIECE, Scratch, array_of
from bwbench.methods.compression.blocks import AbstractBlockCodec, expand_signs, pack_bits
from bwbench.methods.deferred import torch


class SignConfig(ComponentConfig):
    """Options of ``sign``.

    Attributes:
        block: elements that share one magnitude; 1024 add 1/32 bit an element.
        error_feedback: keep what the signs leave out and add it to the next gradient.
    """

    block: int = Field(1024, ge=8, le=PIECE)
    error_feedback: bool = True


class Sign(AbstractBlockCodec):
    """x becomes sign(x) · mean \\|x\\| of its block; zero counts as positive.

    Payload: an fp32 a block, eight signs a byte. After Karimireddy et al. 2019 (scaled sign with error feedback) and
    Seide et al. 2014 (1-bit SGD). The mean magnitude is the scale that leaves the smallest residual.
    """

    Config = SignConfig
    biased = True
    late_residual = True
    options: SignConfig

    def _code_bytes(self, num_elements: int) -> int:
        return -(-num_elements // 8)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        torch.mean(room.magnitudes(rows), dim=1, out=measures[0])

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        pack_bits(array_of(rows.view(-1)) < 0, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        expand_signs(codes, rows)
        rows.mul_(factors[0])
