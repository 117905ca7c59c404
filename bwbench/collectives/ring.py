"""Our ring all-reduce: reduce-scatter, then all-gather, in segments that follow one another without a gap."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bwbench.collectives.ring_traffic import ring_traffic
from bwbench.collectives.segments import Span, aligned, in_flight_bytes, ring_groups
from bwbench.collectives.two_rounds import AbstractTwoRounds
from bwbench.compression.base import AbstractCodec
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


# Payload of a bucket up to which two rounds win. Depends on nothing that ranks or links could disagree about, because
# both ways round differently.
LARGEST_DIRECT_BYTES = 64 * 1024


class _Incoming(NamedTuple):
    """A segment that will arrive: its place in the bucket, the round, the buffer, and what to wait for."""

    span: Span
    round: int
    buffer: torch.Tensor
    work: dist.Work


class Ring(AbstractTwoRounds):
    """Each rank sends to the next one only: 2(N-1) rounds of a chunk of 1/N, so 2(N-1)/N of the bucket a rank.

    After Patarasuk and Yuan 2009, known from Baidu's article of 2017. Chunks are cut into segments, and a segment
    travels on as soon as it is here: the link idles only where a chunk takes less time than the latency. All receive
    buffers are announced before the first byte is sent, because gloo holds a message back until the receiver has
    announced a buffer, which would cost one more latency in every round. On a slow link an
    exchange keeps no more under way than fits into it and its queue (``in_flight_bytes``): large buckets go round in
    several groups.

    Small buckets, where latency rules, take the exchange in two rounds: the same bytes without going round.

    Sums are kept in fp32 where the receiver adds. The last rank to add to a chunk divides, encodes once, adopts what
    that decodes to, and all others get the same bytes passed on: replicas are bit-equal, in every run, on every link.
    """

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that can be added up on the way."""
        if codec.linear:
            return None
        if not codec.sums_on_ring:
            return "a ring adds on the way, which this codec's payloads do not allow; use scatter-gather or all-gather"
        if codec.biased:
            return "a ring encodes anew at every hop, where no residual catches what a biased codec loses"
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """2(N-1)/N of each bucket sent and received by every rank, in 2(N-1) rounds, or in 2 where it is small."""
        traffic = ring_traffic(num_nodes, bucket_payload_bytes)
        num_small = sum(map(goes_directly, bucket_payload_bytes))
        return replace(traffic, rounds=traffic.rounds - 2 * (num_nodes - 2) * num_small)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        if goes_directly(codec.payload_bytes(bucket.numel())):
            self._two_rounds(bucket, codec, tag)
            return
        groups = ring_groups(bucket.numel(), self.size, codec, in_flight_bytes(self.link, self.size))
        incoming = self._announce(groups, codec, tag)
        last_round = 2 * (self.size - 1) - 1
        sends: list[dist.Work] = []

        def send(payload: torch.Tensor) -> None:
            sends.append(self._send(payload, (self.rank + 1) % self.size, tag))

        def send_own(own: deque[Span]) -> None:
            begin, end = own.popleft()
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
            send(payload)

        # The order of sending is the order in which the next rank has announced its buffers: group, round, segment.
        own = [deque(group[self.rank]) for group in groups] + [deque()]
        while own[0]:
            send_own(own[0])
        for number, messages in enumerate(incoming):
            following = own[number + 1]
            for message in messages:
                message.work.wait()
                payload = self._take_in(message, bucket, codec)
                if message.round < last_round:
                    send(payload)
                elif following:
                    send_own(following)
            while following:
                send_own(following)
        for work in sends:
            work.wait()

    def _take_in(self, message: _Incoming, bucket: torch.Tensor, codec: AbstractCodec) -> torch.Tensor:
        """Add a segment to the bucket or put it there; returns what to pass on."""
        completing = self.size - 2  # the round in which the last summand of a chunk is added
        begin, end = message.span
        part, payload = bucket[begin:end], message.buffer
        with self.meter.codec():
            if message.round <= completing:
                codec.decode_add(payload, part)
                if message.round == completing:
                    part /= self.size
                payload = codec.encode(part)
            if message.round >= completing:
                part.copy_(codec.decode(payload, end - begin))
        return payload

    def _announce(
        self, groups: Sequence[Sequence[Sequence[Span]]], codec: AbstractCodec, tag: int
    ) -> list[list[_Incoming]]:
        """Post every receive of the exchange, by group, in the order in which the rank before sends."""
        from_rank = (self.rank - 1) % self.size
        # Chunk that arrives in each round: sums first, then the complete chunks.
        arriving = [(self.rank - 1 - i) % self.size for i in range(self.size - 1)]
        arriving += [(self.rank - i) % self.size for i in range(self.size - 1)]
        expected = [[(i, span) for i, chunk in enumerate(arriving) for span in group[chunk]] for group in groups]
        sizes = [[codec.payload_bytes(end - begin) for _, (begin, end) in messages] for messages in expected]
        room = self._buffer(tag, "ring", sum(aligned(size) for row in sizes for size in row))
        offset, incoming = 0, []
        for messages, row in zip(expected, sizes, strict=True):
            posted = []
            for (round_, span), size in zip(messages, row, strict=True):
                buffer = room[offset : offset + size]
                offset += aligned(size)
                posted.append(_Incoming(span, round_, buffer, self._receive(buffer, from_rank, tag)))
            incoming.append(posted)
        return incoming


def goes_directly(payload_bytes: float) -> bool:
    """Whether a bucket of this payload is exchanged in two rounds instead of along the ring."""
    return payload_bytes <= LARGEST_DIRECT_BYTES
