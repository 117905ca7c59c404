"""Half precision (IEEE binary16): half the bytes, about three significant digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwbench.compression.base import AbstractCodec, as_flat_fp32

if TYPE_CHECKING:
    import torch

LARGEST = 65504.0  # the largest finite value of binary16


class Fp16(AbstractCodec):
    """Rounds to the nearest half. Values beyond the range of a half saturate at its largest; infinities and NaN pass.

    Saturating keeps one large gradient from turning into an infinity that no replica would recover from. Infinities
    and NaN that were there before stay visible, so that a diverged training is recognised as such.
    Values below 6e-8 become zero. Rounding to nearest is unbiased enough that no residual is kept.
    """

    def payload_bytes(self, num_elements: int) -> int:
        """2 bytes an element, exactly."""
        return 2 * num_elements

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The halves nearest to ``x``, as bytes."""
        import torch

        return to_fp16(as_flat_fp32(x)).view(torch.uint8)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The halves as fp32."""
        import torch

        return payload.view(torch.float16).to(torch.float32)


def to_fp16(x: torch.Tensor) -> torch.Tensor:
    """``x`` (fp32, flat) rounded to halves, finite values saturated, infinities and NaN as they are."""
    import torch

    halves = x.to(torch.float16)
    if halves.numel() and not bool(halves.abs().amax() <= LARGEST):  # rare: something is large, infinite or NaN
        halves = torch.where(x.isinf(), x, x.clamp(-LARGEST, LARGEST)).to(torch.float16)
    return halves
