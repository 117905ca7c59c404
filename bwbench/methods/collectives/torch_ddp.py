"""torch's own DistributedDataParallel over gloo, with its own communication hooks: the baselines that users know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.ring import ring_traffic
from bwbench.methods.collectives.transport import ExchangeMemory, Round
from bwbench.methods.compression.codec import AbstractCodec, NoCompression
from bwbench.methods.compression.fp16 import Fp16
from bwbench.methods.compression.powersgd import PowerSgd
from bwbench.methods.deferred import torch
from bwbench.methods.traffic import Traffic


class TorchDdp(AbstractCollective):
    """Gradients are averaged by DistributedDataParallel, as users run it: its buckets, its overlap, gloo's all-reduce.

    Codecs stand for torch's own hooks. Waiting hides inside DDP's backward, so that the exposed time is an estimate.
    ``average`` by itself is gloo's all-reduce of one tensor, for algorithms that do not wrap the model.
    """

    wraps_model = True
    virtual = True
    topology = "ring"  # gloo's all-reduce

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Those for which torch has a hook that works on gloo."""
        if codec in (NoCompression, Fp16, PowerSgd):
            return None
        return (
            "torch's DistributedDataParallel has hooks of its own for fp16 and powersgd only (gloo refuses its bf16 "
            "hook, its quantization hooks crash there); all else needs collective: ring, all-gather or another of ours"
        )

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Refuses chains: torch's hooks are not put together here."""
        sending = [codec for codec in codecs if codec is not NoCompression]
        return "torch's hooks take one codec, no chain of them; use collective: ring" if len(sending) > 1 else None

    @classmethod
    def remark(cls, codecs: Sequence[type[AbstractCodec]]) -> str | None:
        """What PowerSGD takes on gloo."""
        if PowerSgd not in codecs:
            return None
        return (
            "torch's PowerSGD hook fails or hangs on gloo with two buckets or more: DDP gets one bucket of the size of "
            "the model (bucket_cap_mb), whatever 'bucket' says, so that nothing is sent before the backward pass ends"
        )

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """gloo's all-reduce is a ring as well: 2(N-1)/N of each bucket."""
        traffic = ring_traffic(num_nodes, bucket_payload_bytes)
        # gloo cuts a bucket into two segments a node, and each rank sends all but its own, twice.
        return replace(traffic, messages=4 * num_nodes * (num_nodes - 1) * len(bucket_payload_bytes))

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """A copy in half precision, where that is sent; gloo itself takes two segments of a megabyte."""
        return ExchangeMemory(passing=codec.payload_bytes(num_elements) if isinstance(codec, Fp16) else 0.0)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        group = self.transport.group
        assert round_.size == group.size(), "gloo's all-reduce is over a whole group"
        traffic = ring_traffic(round_.size, [codec.payload_bytes(bucket.numel())])
        self.meter.sent(round(traffic.payload_bytes_per_rank[round_.place]))
        bucket /= round_.size
        wire = bucket.to(torch.float16) if isinstance(codec, Fp16) else bucket
        group.allreduce([wire]).wait()
        if wire is not bucket:
            bucket.copy_(wire)
