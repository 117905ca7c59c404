"""Nothing crosses the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec
from bwbench.methods.compression.none import NoCompression
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch


class NoCollective(AbstractCollective):
    """For algorithms without communication: a bucket stays what it is."""

    needs_peers = False

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Nothing to compress."""
        return None if codec is NoCompression else "nothing is sent, so there is nothing to compress"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """Nothing."""
        return Traffic.none(num_nodes)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        """Leave the bucket as it is."""
