"""Every node mixes with its left and its right neighbour on a ring."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.segments import LENGTH_BYTES, pack, unpack
from bwbench.methods.collectives.transport import Round
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import torch
from bwbench.methods.traffic import Traffic


class Neighbours(AbstractCollective):
    """x = (x_left + x + x_right) / 3: D-PSGD on a ring (Lian et al. 2017), two payloads a node however many there are.

    Two nodes have one neighbour, which is both: x = (x + x_other) / 2. The own value takes the same way through the
    codec as those of the neighbours, so that the mean over all ranks is that of the decoded values.
    """

    exact = False
    topology = "gossip"

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec but those that need the sum over all ranks."""
        if codec.linear:
            return "neighbours average with each other, and this codec needs sums over all ranks; use ring"
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """Two payloads (one on two nodes) sent and received by every rank, in one round a bucket."""
        each = (float(len(self._both(0, num_nodes)) * sum(bucket_payload_bytes)),) * num_nodes
        return Traffic(each, each, len(bucket_payload_bytes))

    def exchange(self, payload: torch.Tensor, max_bytes: int, round_: Round) -> tuple[torch.Tensor, torch.Tensor]:
        """Send a payload to both neighbours and get theirs.

        Collective; all members agree on ``max_bytes``. Counts what is sent.

        Args:
            payload: uint8 of shape [num_bytes], at most ``max_bytes``; its length may differ from rank to rank.

        Returns:
            from_left, from_right: what the members before and after this one gave, uint8 in memory that the next
            call with this tag uses again. On two nodes both are the same tensor, on one both are ``payload``.
        """
        if payload.numel() > max_bytes:
            raise ValueError(f"a payload of {payload.numel()} bytes is larger than {max_bytes}, which was promised")
        neighbours = self._both(round_.place, round_.size)
        if not neighbours:
            return payload, payload
        incoming = {}
        for peer in reversed(neighbours):
            buffer = self.transport.buffer(round_.tag, f"from-{peer}", LENGTH_BYTES + max_bytes)
            incoming[peer] = buffer, self.transport.receive(buffer, peer, round_)
        message = pack(payload)
        sends = [self.transport.send(message, peer, round_, payload.numel()) for peer in neighbours]
        received = {}
        for peer, (buffer, work) in incoming.items():
            work.wait()
            received[peer] = unpack(buffer)
        for send in sends:
            send.wait()
        return received[(round_.place - 1) % round_.size], received[(round_.place + 1) % round_.size]

    def _flows(self, num_members: int) -> int:
        return len(self._both(0, num_members))

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        num_elements = bucket.numel()
        with self.meter.codec():
            payload = codec.encode(bucket)
        from_left, from_right = self.exchange(payload, codec.max_payload_bytes(num_elements), round_)
        with self.meter.codec():
            total = codec.decode(payload, num_elements).clone()  # what is decoded may be the bucket
            codec.decode_add(from_left, total)
            if round_.size > 2:
                codec.decode_add(from_right, total)
            bucket.copy_(total.div_(min(round_.size, 3)))

    @staticmethod
    def _both(rank: int, num_nodes: int) -> list[int]:
        """The neighbours of a rank, right one first; one on two nodes, none on one."""
        return list(dict.fromkeys(peer % num_nodes for peer in (rank + 1, rank - 1) if peer % num_nodes != rank))
