"""Codecs whose messages are plain sums: what they send may be averaged by any exact collective, a ring included."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch

# Replaces an fp32 vector by its mean over all ranks, the same bits everywhere. A collective gives it to a codec.
AverageMessage = Callable[["torch.Tensor"], None]
ALIGNMENT_BYTES = 8  # of the messages inside a payload, so that they can be read as any type of number


class AbstractLinearCodec(AbstractCodec):
    """A codec that takes part in the averaging, because the mean of what all ranks send is the message of the mean.

    Low-rank factors and entries at positions that all ranks share are such: their sums do not fill in, and travel along
    a ring as dense vectors do. ``inner`` encodes the messages and must be a codec that the collective accepts.
    ``encode`` and ``decode`` are those of a rank on its own: the payload is its messages behind one another.
    """

    linear = True
    carries = True
    sums_on_ring = False  # its messages do, a payload does not

    @abc.abstractmethod
    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of ``x`` over all ranks as far as this codec can tell it, by one or more averaged messages.

        Collective: all ranks call it with equally long vectors.

        Args:
            x: fp32 of shape [num_elements]. Not changed.
            average_message: called once for each entry of ``payloads``, with vectors of those sizes.

        Returns:
            mean: fp32 of shape [num_elements], the same bits on every rank.
            sent: of the same shape, what of this rank's ``x`` has gone into the mean; the rest is a residual. What
                ``inner`` rounds away is not told apart.
        """

    @abc.abstractmethod
    def message_elements(self, num_elements: int) -> list[int]:
        """Lengths of the vectors that ``average`` averages, in order. Pure; imports no torch."""

    def payloads(self, num_elements: int) -> list[int]:
        """Bytes of each averaged message, as ``inner`` encodes it."""
        return [self._bytes(length) for length in self.message_elements(num_elements)]

    def _bytes(self, length: int) -> int:
        return 4 * length if self.inner is None else self.inner.payload_bytes(length)

    def _alone(self, messages: list[torch.Tensor]) -> AverageMessage:
        """An ``average_message`` of a rank on its own: keeps each payload, gives back what it decodes to."""

        def keep(message: torch.Tensor) -> None:
            import torch

            if self.inner is None:
                messages.append(message.clone().view(torch.uint8))
            else:
                messages.append(self.inner.encode(message).clone())
                message.copy_(self.inner.decode(messages[-1], message.numel()))

        return keep

    def _joined(self, payloads: Sequence[torch.Tensor]) -> torch.Tensor:
        """Payloads behind one another, each but the last padded to the alignment."""
        import torch

        parts: list[torch.Tensor] = []
        for payload in payloads:
            padding = -sum(part.numel() for part in parts) % ALIGNMENT_BYTES
            parts += [torch.zeros(padding, dtype=torch.uint8), payload]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)

    def _joined_bytes(self, sizes: Sequence[int]) -> int:
        total = 0
        for size in sizes:
            total += -total % ALIGNMENT_BYTES + size
        return total

    def _messages(self, payload: torch.Tensor, num_elements: int) -> list[torch.Tensor]:
        """The messages, fp32, in a payload that ``_joined`` has made."""
        import torch

        messages, offset = [], 0
        for length, size in zip(self.message_elements(num_elements), self.payloads(num_elements), strict=True):
            offset += -offset % ALIGNMENT_BYTES
            part = payload[offset : offset + size]
            messages.append(part.view(torch.float32) if self.inner is None else self.inner.decode(part, length))
            offset += size
        return messages
