"""Natural compression: each value becomes a power of two, at random but right on average, in one byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bwbench.methods.buffers import Scratch, array_of, tensor_of
from bwbench.methods.compression.stochastic import AbstractStochasticCodec
from bwbench.methods.deferred import np, torch

BLOCK = 4096  # elements that share a range of exponents; 2 bytes of scale for 4096 of codes


class Natural(AbstractStochasticCodec):
    """Horváth et al. 2019: \\|x\\| becomes the power of two below or above it, x on average; variance at most x²/8.

    A byte holds the sign and 7 bits of exponent, relative to a power of two above the block's largest magnitude, which
    is sent as bfloat16. Values 2^126 times smaller than that become zero, zero stays zero. Finite values beyond 2^127
    become 2^127; a block with an infinity or NaN becomes infinite or NaN throughout.
    """

    scale_type = "bfloat16"

    def _block(self, num_elements: int) -> int:
        return BLOCK

    def _code_bytes(self, num_elements: int) -> int:
        return num_elements

    def _noise(self, lengths: Sequence[int]) -> Iterator[Any]:
        return self._integers(lengths, "int32")

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        exponents = torch.frexp(measures).exponent.clamp(-126, 127)
        powers = ((exponents + 127) << 23).view(torch.float32)
        return torch.where(measures.isfinite(), powers, measures)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        return 1.0 / scales  # exact: powers of two

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = torch.mul(rows, factors[0], out=room.like(rows)).clamp_(-1.0, 1.0)
        bits = array_of(values.view(-1)).view(np.int32)
        # 23 random bits carry from the mantissa into the exponent with the probability that the mantissa says.
        np.add(bits, np.right_shift(noise.view(np.uint32), 9, out=noise.view(np.uint32)), out=bits)
        np.right_shift(bits, 23, out=bits)  # sign and exponent; the exponent is at most 127, of power 0
        shorts = array_of(room.shorts[: rows.numel()].copy_(tensor_of(bits)))
        signs = np.bitwise_and(np.right_shift(shorts, 1), np.int16(0x80))
        np.bitwise_or(shorts, signs, out=shorts)
        tensor_of(codes).copy_(tensor_of(shorts))

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        # Bits of a bfloat16: sign, exponent, an empty mantissa. The sign's copies come from reading it as an int8.
        shorts = room.shorts[: rows.numel()]
        bits = array_of(shorts.copy_(tensor_of(codes.view(np.int8))))
        np.left_shift(bits, 7, out=bits)
        np.bitwise_and(bits, np.int16(~0x4000), out=bits)
        rows.view(-1).copy_(shorts.view(torch.bfloat16))
        rows.mul_(factors[0])
