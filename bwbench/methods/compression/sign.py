"""One bit an element: the sign, with the mean magnitude of each block of elements."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.blocks import AbstractBlockCodec
from bwbench.methods.compression.memory import PIECE, Scratch

if TYPE_CHECKING:
    import torch


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

    def _block(self, num_elements: int) -> int:
        return self.options.block

    def _code_bytes(self, num_elements: int) -> int:
        return -(-num_elements // 8)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        import torch

        torch.mean(room.magnitudes(rows), dim=1, out=measures[0])

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        pack_bits(rows.view(-1).numpy() < 0, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        expand_signs(codes, rows)
        rows.mul_(factors[0])


def pack_bits(bits: Any, codes: Any) -> None:
    """Write booleans into ``codes``, eight to a byte, the first one highest."""
    import numpy as np

    codes[:] = np.packbits(bits)


def expand_signs(codes: Any, values: torch.Tensor) -> None:
    """Write 1 for each 0 bit and -1 for each 1 bit into ``values``, fp32; of the last byte as many as there is room."""
    import numpy as np

    flat = values.view(-1).numpy()
    whole = len(flat) // 8
    # mode: without "clip" numpy makes a copy first, in case an index is out of range.
    np.take(_signs_of_bytes(), codes[:whole], axis=0, out=flat[: 8 * whole].reshape(-1, 8), mode="clip")
    if whole < len(codes):
        flat[8 * whole :] = _signs_of_bytes()[codes[whole]][: len(flat) - 8 * whole]


@functools.cache
def _signs_of_bytes() -> Any:
    """fp32 of shape [256, 8]."""
    import numpy as np

    bits = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)
    return np.float32(1) - np.float32(2) * bits.astype(np.float32)
