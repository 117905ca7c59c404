"""fp32 values as they are: 4 bytes an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwbench.methods.compression.base import AbstractCodec, as_flat_fp32

if TYPE_CHECKING:
    import torch


class NoCompression(AbstractCodec):
    """Sends the memory of the tensor itself, without a copy on either side."""

    lossless = True

    def payload_bytes(self, num_elements: int) -> int:
        """4 bytes an element, exactly."""
        return 4 * num_elements

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The bytes of ``x``, sharing its memory."""
        import torch

        return as_flat_fp32(x).view(torch.uint8)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values, sharing the payload's memory."""
        import torch

        return payload.view(torch.float32)
