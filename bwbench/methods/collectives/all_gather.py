"""Every node sends its payload to all others: for payloads that cannot be added up on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.collectives.framing import buffer_bytes, frame, unframe
from bwbench.methods.collectives.segments import aligned
from bwbench.methods.compression.base import AbstractCodec
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch


class AllGather(AbstractCollective):
    """Each rank sends N-1 payloads and decodes N, its own included, in the order of the ranks: replicas are bit-equal.

    Cheaper than a ring only where payloads are small: a sparse sum fills in along a ring, here it travels unmerged.
    """

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec."""
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """N-1 payloads sent and received by every rank, all at once."""
        each = ((num_nodes - 1.0) * sum(bucket_payload_bytes),) * num_nodes
        return Traffic(each, each, len(bucket_payload_bytes))

    def _flows(self) -> int:
        return self.size - 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        num_elements = bucket.numel()
        room = buffer_bytes(codec, num_elements)
        buffers = self._buffer(tag, "all-gather", self.size * aligned(room)).view(self.size, -1)[:, :room]
        # Nearest successor first, so that no rank is everybody's first addressee.
        peers = [(self.rank + distance) % self.size for distance in range(1, self.size)]
        incoming = {peer: self._receive(buffers[peer], peer, tag) for peer in reversed(peers)}
        with self.meter.codec():
            own = codec.encode(bucket)
            message = frame(codec, own)
        sends = [self._send(message, peer, tag, own.numel()) for peer in peers]
        total: torch.Tensor | None = None
        for rank in range(self.size):
            if rank != self.rank:
                incoming[rank].wait()
            with self.meter.codec():
                payload = own if rank == self.rank else unframe(codec, buffers[rank])
                if total is None:  # a clone: what is decoded may be memory that is still being sent
                    total = codec.decode(payload, num_elements).clone()
                else:
                    codec.decode_add(payload, total)
        for send in sends:
            send.wait()
        assert total is not None
        bucket.copy_(total.div_(self.size))
