"""bfloat16: the range of fp32 in half the bytes, with two to three significant digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwbench.methods.compression.base import AbstractCodec, as_flat_fp32
from bwbench.methods.compression.fp16 import add_widened
from bwbench.methods.compression.memory import empty_bytes, empty_fp32

if TYPE_CHECKING:
    import torch


class Bf16(AbstractCodec):
    """Rounds to the nearest bfloat16, ties to even: the upper half of an fp32 number, 8 bits of it significant.

    Nothing saturates or vanishes before fp32 does (beyond 3.39e38 a value becomes infinite), at the price of a rounding
    error of up to 2^-8, eight times that of a half. NaN stays NaN, infinities stay infinities.
    """

    def payload_bytes(self, num_elements: int) -> int:
        """2 bytes an element, exactly."""
        return 2 * num_elements

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The bfloat16 nearest to ``x``, as bytes."""
        import torch

        x = as_flat_fp32(x)
        payload = empty_bytes(2 * x.numel())
        payload.view(torch.bfloat16).copy_(x)
        return payload

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values as fp32."""
        import torch

        return empty_fp32(num_elements).copy_(payload.view(torch.bfloat16))

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values to ``total``, in fp32."""
        import torch

        add_widened(payload.view(torch.bfloat16), total)
