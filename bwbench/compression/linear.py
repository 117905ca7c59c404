"""Codecs whose messages are plain sums: what they send may be averaged by any exact collective, a ring included."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING

from bwbench.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch

# Replaces an fp32 vector by its mean over all ranks, the same bits everywhere. A collective gives it to a codec.
AverageMessage = Callable[["torch.Tensor"], None]


class AbstractLinearCodec(AbstractCodec):
    """A codec that takes part in the averaging, because the mean of what all ranks send is the message of the mean.

    Low-rank factors and entries at positions that all ranks share are such: their sums do not fill in, and travel along
    a ring as dense vectors do. ``encode`` and ``decode`` are those of a rank on its own; ``inner`` encodes the messages
    and must be a codec that the collective accepts.
    """

    linear = True
    carries = True

    @abc.abstractmethod
    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of ``x`` over all ranks as far as this codec can tell it, by one or more averaged messages.

        Collective: all ranks call it with equally long vectors.

        Args:
            x: fp32 of shape [num_elements]. Not changed.
            average_message: called once for each entry of ``payloads``, with vectors of those sizes.

        Returns:
            mean: fp32 of shape [num_elements], the same bits on every rank.
            sent: of the same shape, what of this rank's ``x`` has gone into the mean; the rest is a residual.
        """

    @abc.abstractmethod
    def message_elements(self, num_elements: int) -> list[int]:
        """Lengths of the vectors that ``average`` averages, in order. Pure; imports no torch."""

    def payloads(self, num_elements: int) -> list[int]:
        """Bytes of each averaged message, as ``inner`` encodes it."""
        return [self._bytes(length) for length in self.message_elements(num_elements)]

    def _bytes(self, length: int) -> int:
        return 4 * length if self.inner is None else self.inner.payload_bytes(length)
