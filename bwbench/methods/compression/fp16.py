"""Sixteen bits: halves (IEEE binary16), and the upper halves of fp32 numbers (bfloat16)."""

from __future__ import annotations

from typing import ClassVar

from bwbench.methods.buffers import PIECE, array_of, empty_bytes, empty_fp32, scratch
from bwbench.methods.compression.codec import AbstractCodec, as_flat_fp32
from bwbench.methods.deferred import np, torch
from bwbench.methods.native import native

LARGEST = 65504.0  # the largest finite value of binary16
_INFINITY_BITS = 0x7C00  # a half whose bits, without the sign, are at least these is infinite or NaN
_MINUS_INFINITY_BITS = 0xFC00


class AbstractSixteenBits(AbstractCodec):
    """2 bytes an element, as floats of the type that torch calls ``number_type``."""

    number_type: ClassVar[str]
    rounds = True

    def payload_bytes(self, num_elements: int) -> int:
        """2 bytes an element, exactly."""
        return 2 * num_elements

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values as fp32."""
        return empty_fp32(num_elements).copy_(self._numbers(payload))

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values to ``total`` piece by piece: torch's sum of two dtypes takes five times as long."""
        numbers, wide = self._numbers(payload), scratch().floats
        for begin in range(0, total.numel(), PIECE):
            part = numbers[begin : begin + PIECE]
            total[begin : begin + PIECE] += wide[: part.numel()].copy_(part)

    def _numbers(self, payload: torch.Tensor) -> torch.Tensor:
        return payload.view(getattr(torch, self.number_type))


class Fp16(AbstractSixteenBits):
    """Rounds to the nearest half. Values beyond the range of a half saturate at its largest; infinities and NaN pass.

    Saturating keeps one large gradient from turning into an infinity that no replica would recover from. Infinities
    and NaN that were there before stay visible, so that a diverged training is recognised as such.
    Values below 6e-8 become zero. Rounding to nearest is unbiased enough that no residual is kept.
    """

    number_type = "float16"

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The halves nearest to ``x``, as bytes."""
        x = as_flat_fp32(x)
        payload = empty_bytes(2 * x.numel())
        if (compiled := native()) is not None and compiled.to_halves(x, payload):
            return payload
        halves, bits = payload.view(torch.float16), array_of(payload.view(torch.int16))
        for begin in range(0, x.numel(), PIECE):
            part, end = x[begin : begin + PIECE], begin + PIECE
            halves[begin:end].copy_(part)
            # As signed numbers the positive halves are the largest, as unsigned ones the negative halves.
            signed, unsigned = bits[begin:end].max(), bits[begin:end].view(np.uint16).max()
            if signed >= _INFINITY_BITS or unsigned >= _MINUS_INFINITY_BITS:  # rare: something large, infinite or NaN
                halves[begin:end] = torch.where(part.isinf(), part, part.clamp(-LARGEST, LARGEST))
        return payload

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values as fp32."""
        if (compiled := native()) is not None:
            values = empty_fp32(num_elements)
            if compiled.from_halves(payload, values):
                return values
        return super().decode(payload, num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values to ``total``."""
        done = 0
        if (compiled := native()) is not None:
            done = compiled.add_halves(payload, total)
        if done < total.numel():
            super().decode_add(payload[2 * done :], total[done:])


class Bf16(AbstractSixteenBits):
    """Rounds to the nearest bfloat16, ties to even: the upper half of an fp32 number, 8 bits of it significant.

    Nothing saturates or vanishes before fp32 does (beyond 3.39e38 a value becomes infinite), at the price of a rounding
    error of up to 2^-8, eight times that of a half. NaN stays NaN, infinities stay infinities.
    """

    number_type = "bfloat16"

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The bfloat16 nearest to ``x``, as bytes."""
        x = as_flat_fp32(x)
        payload = empty_bytes(2 * x.numel())
        payload.view(torch.bfloat16).copy_(x)
        return payload
