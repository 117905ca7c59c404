"""torch's own DistributedDataParallel over gloo: the baseline that users know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.collectives.base import AbstractCollective
from bwbench.collectives.ring_traffic import ring_traffic
from bwbench.compression.base import AbstractCodec
from bwbench.compression.none import NoCompression
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch


class TorchDdp(AbstractCollective):
    """Gradients are averaged by DistributedDataParallel, as users run it: its buckets, its overlap, gloo's all-reduce.

    Waiting hides inside its backward, so that the exposed time is an estimate. ``average`` by itself is gloo's
    all-reduce of one tensor, for algorithms that do not wrap the model.
    """

    wraps_model = True

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Only fp32 as it is."""
        if codec is NoCompression:
            return None
        return (
            "torch's all-reduce sends fp32 as it is; compression needs collective: ring, all-gather or another of ours"
        )

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """gloo's all-reduce is a ring as well: 2(N-1)/N of each bucket."""
        return ring_traffic(num_nodes, bucket_payload_bytes)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        traffic = ring_traffic(self.size, [codec.payload_bytes(bucket.numel())])
        self.meter.sent(round(traffic.payload_bytes_per_rank[self.rank]))
        self.group.allreduce([bucket]).wait()
        bucket /= self.size
