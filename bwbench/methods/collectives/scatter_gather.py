"""Every node averages one chunk for all, between two compressions: ByteGrad's exchange, a sharded parameter server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.methods.collectives.segments import segment_count
from bwbench.methods.collectives.two_rounds import AbstractTwoRounds
from bwbench.methods.compression.base import AbstractCodec
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch


class ScatterGather(AbstractTwoRounds):
    """Each rank owns a chunk of 1/N: all send it their part, it sends all the mean. 2(N-1)/N of a bucket in two rounds.

    Compressed, summed up uncompressed, compressed again: the way of Bagua's ByteGrad (Gan et al. 2021), for codecs
    whose payloads cannot be added. The same exchange is a parameter server that is sharded over all workers (Li et al.
    2014). A codec with a memory gets an instance for each part and one more for each way back, which live here.
    """

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec."""
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """2(N-1)/N of each bucket's payload sent and received by every rank, in two rounds a bucket.

        A header that a codec puts before each part is not counted.
        """
        each = (2 * (num_nodes - 1) / num_nodes * sum(bucket_payload_bytes),) * num_nodes
        return Traffic(each, each, 2 * len(bucket_payload_bytes))

    def _flows(self) -> int:
        return self.size - 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        chunk = -(-bucket.numel() // self.size)
        self._two_rounds(bucket, codec, tag, min(chunk, segment_count(codec.payload_bytes(chunk))))
