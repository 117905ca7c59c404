"""Every node sends its payload to all others: for payloads that cannot be added up on the way."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Round, aligned, buffer_bytes, frame, unframe
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import torch
from bwbench.methods.traffic import Traffic


class AllGather(AbstractCollective):
    """Each rank sends N-1 payloads and decodes N, its own included, in the order of the ranks: replicas are bit-equal.

    Cheaper than a ring only where payloads are small: a sparse sum fills in along a ring, here it travels unmerged.
    """

    topology = "all to all"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """N-1 payloads sent and received by every rank, all at once."""
        each = ((num_nodes - 1.0) * sum(bucket_payload_bytes),) * num_nodes
        return Traffic(each, each, len(bucket_payload_bytes))

    def _flows(self, num_members: int) -> int:
        return num_members - 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        place, size, num_elements = round_.place, round_.size, bucket.numel()
        room = buffer_bytes(codec, num_elements)
        buffers = self.transport.buffer(round_.tag, "all-gather", size * aligned(room)).view(size, -1)[:, :room]
        # Nearest successor first, so that no rank is everybody's first addressee.
        peers = [(place + distance) % size for distance in range(1, size)]
        incoming = {peer: self.transport.receive(buffers[peer], peer, round_) for peer in reversed(peers)}
        with self.meter.codec():
            own = codec.encode(bucket)
            message = frame(codec, own)
        sends = [self.transport.send(message, peer, round_, own.numel()) for peer in peers]
        total: torch.Tensor | None = None
        for sender in range(size):
            if sender != place:
                incoming[sender].wait()
            with self.meter.codec():
                payload = own if sender == place else unframe(codec, buffers[sender])
                if total is None:  # a clone: what is decoded may be memory that is still being sent
                    total = codec.decode(payload, num_elements).clone()
                else:
                    codec.decode_add(payload, total)
        for send in sends:
            send.wait()
        assert total is not None
        bucket.copy_(total.div_(size))
