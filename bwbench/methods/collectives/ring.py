"""Our ring all-reduce: reduce-scatter, then all-gather, in segments that follow one another without a gap."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.methods.collectives.ring_sockets import RingSockets
from bwbench.methods.collectives.scatter_gather import AbstractKeepingParts, Exchange
from bwbench.methods.collectives.transport import (
    USUAL,
    ExchangeMemory,
    Round,
    Span,
    aligned,
    cutting_for,
    in_flight_bytes,
    ring_groups,
    split,
)
from bwbench.methods.compression.codec import AbstractCodec, NoCompression
from bwbench.methods.deferred import dist, torch
from bwbench.methods.traffic import Peers, Traffic

# Payload of a chunk up to which two rounds win over 2(N-1). Four nodes, 2.5 ms: buckets of 16 kB took 36 and not 50 ms
# at 10 Mbit/s, of 32 kB 57 instead of 55, and 29 instead of 36 at 100 Mbit/s, where two rounds win up to 128 kB. The
# choice depends on payload and N alone, never on the link, because both ways round differently.
LARGEST_DIRECT_CHUNK_BYTES = 8 * 1024


class _Incoming(NamedTuple):
    """A segment that will arrive: its place in the bucket, the hop, the buffer, and what to wait for."""

    span: Span
    hop: int
    buffer: torch.Tensor
    work: dist.Work


class RingConfig(ComponentConfig):
    """Options of ``ring``.

    Attributes:
        paced: whether it sends no faster than the link that it is told takes. False tells it nothing of its link, as
            torch's all-reduce is told nothing: no pace, and no limit of what is under way. The means are the same bits.
    """

    paced: bool = True

    def without_link(self) -> RingConfig:
        """Without a link nothing is paced."""
        return RingConfig()


class Ring(AbstractKeepingParts):
    """Each rank sends to the next one only: 2(N-1) rounds of a chunk of 1/N, so 2(N-1)/N of the bucket a rank.

    After Patarasuk and Yuan 2009, known from Baidu's article of 2017. Chunks are cut into segments, and a segment
    travels on as soon as it is here: the link idles only where a chunk takes less than some latencies
    (``cutting_for``). All receive buffers are announced before the first byte is sent, because gloo holds a message
    back until the receiver has announced a buffer, which would cost one more latency in every round. On a slow link an
    exchange keeps no more under way than fits into it and its queue (``in_flight_bytes``): large buckets go round in
    several groups. On a fast one segments are larger, as each costs time (``cutting_for``).

    Small buckets, where latency rules, take the exchange in two rounds: the same bytes without going round.

    In scripts, where nothing is paced, fp32 goes round on ``sockets`` of the ring's own, and is added up in C.

    Sums are kept in fp32 where the receiver adds. The last rank to add to a chunk divides, encodes once, adopts what
    that decodes to, and all others get the same bytes passed on: replicas are bit-equal, in every run, on every link.
    """

    Config = RingConfig
    options: RingConfig
    virtual = True
    topology = "ring"
    takes_sockets = True

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
        chunks = [-(-size // num_nodes) for size in bucket_payload_bytes]
        messages = 2 * num_nodes * (num_nodes - 1) * sum(map(USUAL.count, chunks))
        num_small = sum(goes_directly(size, num_nodes) for size in bucket_payload_bytes)
        peers: Peers = "all" if num_small == len(bucket_payload_bytes) else "next"
        rounds = traffic.rounds - 2 * (num_nodes - 2) * num_small
        return replace(traffic, rounds=rounds, messages=messages, peers=peers)

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """All but one chunk on the way to their sums, and on the way of the means, which in fp32 need no room."""
        payload, others = codec.payload_bytes(num_elements), (num_nodes - 1) / num_nodes
        if isinstance(codec, NoCompression):
            return ExchangeMemory(others * payload)
        return ExchangeMemory(2 * others * payload, 1.5 * payload)  # what is sent, and segments that are decoded

    def _flows(self, num_members: int) -> int:
        return int(self.options.paced)

    def flows_across(self, place: int, hosts: Sequence[object]) -> int:
        """Sends to the next rank alone."""
        return int(self.options.paced and hosts[(place + 1) % len(hosts)] != hosts[place])

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        if goes_directly(codec.payload_bytes(bucket.numel()), round_.size):
            Exchange(self, bucket, codec, round_).run()
            return
        if (
            self.sockets is not None
            and isinstance(codec, NoCompression)
            and self.sockets.carries(round_, bucket.nbytes)
        ):
            self._average_by_sockets(bucket, round_, self.sockets)
            return
        place, size = round_.place, round_.size
        told = self.link if self.options.paced else None
        groups = ring_groups(bucket.numel(), size, codec, in_flight_bytes(told, size), cutting_for(told, size))
        incoming = self._announce(groups, bucket, codec, round_)
        last_hop = 2 * (size - 1) - 1
        sends: list[dist.Work] = []

        def send(payload: torch.Tensor) -> None:
            sends.append(self.transport.send(payload, (place + 1) % size, round_))

        def send_own(own: deque[Span]) -> None:
            begin, end = own.popleft()
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
            send(payload)

        # The order of sending is the order in which the next rank has announced its buffers: group, round, segment.
        own = [deque(group[place]) for group in groups] + [deque()]
        while own[0]:
            send_own(own[0])
        for number, messages in enumerate(incoming):
            following = own[number + 1]
            for message in messages:
                message.work.wait()
                payload = self._take_in(message, bucket, codec, size)
                if message.hop < last_hop:
                    send(payload)
                elif following:
                    send_own(following)
            while following:
                send_own(following)
        for work in sends:
            work.wait()

    def _average_by_sockets(self, bucket: torch.Tensor, round_: Round, sockets: RingSockets) -> None:
        """All in one call; what it says of sums is counted as one stretch at its end."""
        chunks = split(0, bucket.numel(), round_.size)
        elements = [end - begin for begin, end in chunks]
        # Every chunk twice, but for the next rank's own sum and the mean that this rank gets last.
        left_out = elements[(round_.place + 1) % round_.size] + elements[(round_.place + 2) % round_.size]
        self.meter.sent(ELEMENT_BYTES * (2 * sum(elements) - left_out))
        sums_s = sockets.average(bucket, round_.tag)
        now = emulated_time.monotonic()
        self.meter.codec_worked(now - sums_s, now)

    def _take_in(self, message: _Incoming, bucket: torch.Tensor, codec: AbstractCodec, size: int) -> torch.Tensor:
        """Add a segment to the bucket or put it there; returns what to pass on."""
        completing = size - 2  # the hop in which the last summand of a chunk is added
        begin, end = message.span
        part, payload = bucket[begin:end], message.buffer
        with self.meter.codec():
            if message.hop <= completing:
                codec.decode_add(payload, part)
                if message.hop == completing:
                    part /= size
                payload = codec.encode(part)
            if message.hop >= completing and payload.data_ptr() != part.data_ptr():
                part.copy_(codec.decode(payload, end - begin))
        return payload

    def _announce(
        self, groups: Sequence[Sequence[Sequence[Span]]], bucket: torch.Tensor, codec: AbstractCodec, round_: Round
    ) -> list[list[_Incoming]]:
        """Post every receive of the exchange, by group, in the order in which the rank before sends.

        Means in fp32 are received where they belong. They come only after what this rank has had there went round.
        """
        place, size = round_.place, round_.size
        # Chunk that arrives in each hop: sums first, then the complete chunks.
        arriving = [(place - 1 - i) % size for i in range(size - 1)]
        arriving += [(place - i) % size for i in range(size - 1)]
        in_place = size - 1 if isinstance(codec, NoCompression) else 2 * size  # from this hop on
        spans = [span for group in groups for chunk in arriving[:in_place] for span in group[chunk]]
        needed = sum(aligned(codec.payload_bytes(end - begin)) for begin, end in spans)
        room = self.transport.buffer(round_.tag, "ring", needed)
        values = bucket.view(torch.uint8)
        offset, incoming = 0, []
        for group in groups:
            posted = []
            for hop, span in ((hop, span) for hop, chunk in enumerate(arriving) for span in group[chunk]):
                if hop < in_place:
                    num_bytes = codec.payload_bytes(span[1] - span[0])
                    buffer = room[offset : offset + num_bytes]
                    offset += aligned(num_bytes)
                else:
                    buffer = values[4 * span[0] : 4 * span[1]]
                posted.append(_Incoming(span, hop, buffer, self.transport.receive(buffer, (place - 1) % size, round_)))
            incoming.append(posted)
        return incoming


def goes_directly(payload_bytes: float, num_nodes: int) -> bool:
    """Whether a bucket of this payload is exchanged in two rounds instead of along the ring."""
    return payload_bytes <= num_nodes * LARGEST_DIRECT_CHUNK_BYTES


def ring_traffic(num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
    """2(N-1)/N of each bucket sent and received by every rank, at the same time, in 2(N-1) rounds a bucket."""
    each = (2 * (num_nodes - 1) / num_nodes * sum(bucket_payload_bytes),) * num_nodes
    return Traffic(each, each, 2 * (num_nodes - 1) * len(bucket_payload_bytes), peers="next")
