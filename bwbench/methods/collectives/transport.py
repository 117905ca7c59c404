"""What crosses the network in a round: who takes part, how messages are cut, and what they cost.

Cut, so that the first part of a message is already on its way on while the last one still arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from bwbench.base import emulated_time
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import dist, torch
from bwbench.network.link import Link
from bwbench.network.link.node_link import path_between
from bwbench.network.link.site_network import SiteNetwork

Span = tuple[int, int]  # first element and the one after the last

# Two segments let a round of a ring take the longer of (its chunk) and (half of it + the latency). Below this size a
# segment would be less than three frames: its own header of 48 bytes, the announcement of its receive buffer (a frame
# of 114 bytes) and a frame that is not full would cost more than that gains.
SMALLEST_SEGMENT_BYTES = 4096
# More than two only in pieces of this size: each costs some 280 bytes beside its payload, and processor time.
COMFORTABLE_SEGMENT_BYTES = 24 * 1024
MOST_SEGMENTS = 4  # no gap is left as soon as a chunk takes 4/3 of the latency; a fifth segment would gain little
# No larger where a link is slow: a segment is passed on when it is here whole, decoded and added.
LARGEST_SEGMENT_BYTES = 256 * 1024
# On a fast link each message costs processor time that the link waits for, some 0.2 ms: the announcement of its receive
# buffer, threads that wake up, Python's lock. So a segment may take so long there, up to that size. On two busy
# processors 80 MB at 1 Gbit/s came to 0.75 of the limit with it, to 0.73 without; scatter-gather to 0.69, and 0.45.
SEGMENT_S = 0.02
LARGEST_FAST_SEGMENT_BYTES = 4 * 2**20
ALIGNMENT_BYTES = 8  # of payloads inside a buffer, so that they can be read as any type of number

# Where what fits is gone in less than this there is no limit: the time of many small messages would cost more than the
# losses. At 100 Mbit/s and 2.5 ms (8 ms) a ring reached 0.73-0.76 of the link with the limit, 0.76-0.80 without.
SHORTEST_LIMIT_S = 0.02
LEAST_IN_FLIGHT_BYTES = 16 * 1024  # also where a tiny queue is asked for: less would be all headers


def in_flight_bytes(link: Link | None, num_ranks: int = 1) -> float:
    """How much one exchange has under way to the next node at a time: what fits into the link one way and its queue.

    On a shared air all ranks meet in one queue, the access point's, and divide it. Between sites hops are unlike one
    another, and as many bytes go over each: the slowest hop, the smallest queue, and the mean of all latencies.

    More than that is lost in one burst, and TCP takes several round trips to mend it: at 10 Mbit/s a ring over 1 MB
    with this limit comes to 94 % of what the link can carry, without it to 84-88 %. No limit where nothing is shaped.
    """
    if link is None or not link.shaped:
        return float("inf")
    link = link.asked  # in slow motion as many bytes, and a limit where the link that was asked has one
    if (sites := _ring_of_sites(link, num_ranks)) is not None:
        return max(LEAST_IN_FLIGHT_BYTES, _fitting_bytes(*_hop_between_sites(link, sites)))
    nodes = link.nodes(num_ranks)
    slowest_bps, latency_s = min(node.slowest_bps for node in nodes), min(node.latency_s for node in nodes)
    sharing = 1
    if link.air is not None:
        slowest_bps, sharing = link.air.capacity_bps(slowest_bps), num_ranks
    queue_bytes = min(min(node.up_queue_bytes, node.down_queue_bytes) for node in nodes)
    return float(max(LEAST_IN_FLIGHT_BYTES, _fitting_bytes(slowest_bps, queue_bytes, latency_s) / sharing))


def _fitting_bytes(rate_bps: float, queue_bytes: float, latency_s: float) -> float:
    """What a way one way and its queue hold; infinite where that is gone soon."""
    num_bytes = queue_bytes + rate_bps / 8 * latency_s
    return float("inf") if num_bytes * 8 / rate_bps < SHORTEST_LIMIT_S else num_bytes


def _ring_of_sites(link: Link, num_ranks: int) -> SiteNetwork | None:
    """Who is where: all nodes, or one of each site, as the leaders of ``hierarchical``; None without sites."""
    if not link.sites:
        return None
    with suppress(ValueError):  # the sites have another number of nodes: these are some of them
        if (everyone := link.site_network(num_ranks)) is not None:
            return everyone
    smallest = link.smallest_site_network
    return smallest and replace(smallest, sizes=(1,) * len(smallest.sizes))


def _hop_between_sites(link: Link, sites: SiteNetwork) -> tuple[float, float, float]:
    """Rate, queue in bytes and latency that count in a ring of these nodes.

    What circulates in it is so much for each node. It takes the time of all hops together to come round, so a long hop
    holds what short ones inside the sites cannot; a limit by the shortest hop would leave the long ones idle.
    """
    site_of = sites.site_of
    nodes, number = link.nodes(len(site_of)), len(site_of)
    narrow, latencies_s = list[tuple[float, float]](), list[float]()
    for src, dst in ((src, (src + 1) % number) for src in range(number)):
        lines = [(line.rate_bps, line.queue_bytes) for line in sites.route(site_of[src], site_of[dst])]
        ends = [(nodes[src].up_bps, nodes[src].up_queue_bytes), (nodes[dst].down_bps, nodes[dst].down_queue_bytes)]
        narrow.append(min(*ends, *lines))
        latencies_s.append(sites.path(path_between(nodes[src], nodes[dst]), site_of[src], site_of[dst]).latency_s)
    return min(rate for rate, _ in narrow), min(queue for _, queue in narrow), sum(latencies_s) / number


@dataclass(frozen=True)
class Cutting:
    """Into how many segments a payload is cut; the same on all ranks, who are told the same link.

    Attributes:
        largest_bytes: of a segment.
        most: segments, unless ``largest_bytes`` needs more.
    """

    largest_bytes: int = LARGEST_SEGMENT_BYTES
    most: int = MOST_SEGMENTS

    def count(self, payload_bytes: int) -> int:
        """Segments of a payload."""
        if payload_bytes < 2 * SMALLEST_SEGMENT_BYTES:
            return 1
        count = min(self.most, max(2, payload_bytes // COMFORTABLE_SEGMENT_BYTES))
        return max(count, -(-payload_bytes // self.largest_bytes))


USUAL = Cutting()


def cutting_for(link: Link | None, num_ranks: int = 1) -> Cutting:
    """A segment is what the link carries in a while, so that it is large on a fast one, and where nothing is known.

    Of a network that nothing shapes, as in a script of the user's, it is two of a chunk: each costs processor time. A
    link stays busy with two wherever a chunk takes twice the latency. With four that is 4/3 of it, and between the two
    a round takes up to a quarter longer with two.
    """
    if link is None:
        return Cutting(LARGEST_FAST_SEGMENT_BYTES)
    if not link.shaped:
        return Cutting(LARGEST_FAST_SEGMENT_BYTES, most=2)
    link = link.asked  # in slow motion as of the link that was asked
    slowest_bps = min(node.slowest_bps for node in link.nodes(num_ranks))
    if (sites := link.smallest_site_network) is not None:
        slowest_bps = min(slowest_bps, *(line.rate_bps for line in sites.lines))
    return Cutting(int(min(LARGEST_FAST_SEGMENT_BYTES, max(LARGEST_SEGMENT_BYTES, slowest_bps / 8 * SEGMENT_S))))


def split(begin: int, end: int, count: int) -> list[Span]:
    """``count`` spans of nearly equal length that cover ``begin`` to ``end``; some are empty if there are too few."""
    length = end - begin
    return [(begin + length * i // count, begin + length * (i + 1) // count) for i in range(count)]


def cut(begin: int, end: int, codec: AbstractCodec, cutting: Cutting = USUAL) -> list[Span]:
    """The segments of one message; none where it is empty.

    Depends on nothing but its arguments, so that sender and receiver cut alike.
    """
    if begin >= end:
        return []
    return split(begin, end, min(cutting.count(codec.payload_bytes(end - begin)), end - begin))


def ring_groups(
    num_elements: int, num_ranks: int, codec: AbstractCodec, most_bytes: float, cutting: Cutting = USUAL
) -> list[list[list[Span]]]:
    """Segments of a ring, by group and chunk: ``[group][chunk][segment]``.

    There are as many chunks as ranks. Each is cut into equally many parts of at most ``most_bytes``, one a group; a
    ring runs over the first part of all chunks, then over the second parts, and so on. Each part is cut into
    segments. Which chunk an element is in, and with it the order of summation, depends on neither.
    """
    chunks = split(0, num_elements, num_ranks)
    payload_bytes = codec.payload_bytes(-(-num_elements // num_ranks))
    num_groups = max(1, int(-(-payload_bytes // most_bytes)))
    parts = [split(begin, end, num_groups) for begin, end in chunks]
    return [[cut(*parts[chunk][group], codec, cutting) for chunk in range(num_ranks)] for group in range(num_groups)]


def aligned(num_bytes: int) -> int:
    """``num_bytes`` rounded up to the alignment of payloads."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


LENGTH_BYTES = ALIGNMENT_BYTES  # an int64

# Buckets of up to so many bytes in fp32 are received in rooms of their thread, one after the other. A larger one, which
# is a layer that is large by itself, has rooms of its own: two threads would each keep one that holds the largest.
SHARED_ROOM_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ExchangeMemory:
    """What one exchange takes of a rank's memory beside the bucket itself, in bytes; upper bounds, but for codecs whose
    payloads may be larger than they are expected to be.

    Attributes:
        kept: rooms for what is received, which the next exchange uses again.
        passing: made in the exchange, and gone with it.
        remembered: from one round to the next, of each bucket, beside what its codec remembers.
        hubs: so many ranks keep more: ``hub_kept`` and ``hub_remembered`` beside these.
    """

    kept: float = 0.0
    passing: float = 0.0
    remembered: float = 0.0
    hubs: int = 0
    hub_kept: float = 0.0
    hub_remembered: float = 0.0


def buffer_bytes(codec: AbstractCodec, num_elements: int) -> int:
    """Room for any message of ``num_elements``."""
    if codec.sums_on_ring:
        return codec.payload_bytes(num_elements)
    return LENGTH_BYTES + codec.max_payload_bytes(num_elements)


def frame(codec: AbstractCodec, payload: torch.Tensor) -> torch.Tensor:
    """The message that carries ``payload``; the payload itself where its length is known anyway."""
    return payload if codec.sums_on_ring else pack(payload)


def unframe(codec: AbstractCodec, message: torch.Tensor) -> torch.Tensor:
    """The payload inside a message that ``frame`` has made, sharing its memory. Raises as ``unpack`` does."""
    return message if codec.sums_on_ring else unpack(message)


def pack(payload: torch.Tensor) -> torch.Tensor:
    """A message that says how long ``payload`` is, and holds a copy of it."""
    message = torch.empty(LENGTH_BYTES + payload.numel(), dtype=torch.uint8)
    message[:LENGTH_BYTES].view(torch.int64)[0] = payload.numel()
    message[LENGTH_BYTES:] = payload
    return message


def unpack(message: torch.Tensor) -> torch.Tensor:
    """The payload inside a received message, sharing its memory.

    Raises RuntimeError where the message is none of ``pack``'s: ranks disagree about what they exchange.
    """
    length = int(message[:LENGTH_BYTES].view(torch.int64)[0])
    if not 0 <= length <= message.numel() - LENGTH_BYTES:
        raise RuntimeError(f"a message claims {length} bytes in a buffer of {message.numel()}: the ranks disagree")
    return message[LENGTH_BYTES : LENGTH_BYTES + length]


Interval = tuple[float, float]  # begin and end on the monotonic clock, in seconds


@dataclass(frozen=True)
class Members:
    """Who averages together.

    Attributes:
        ranks: of the members in the process group, in the order in which they add up; the same on all of them.
        place: of this process among ``ranks``.
    """

    ranks: tuple[int, ...]
    place: int

    @classmethod
    def all_of(cls, group: dist.ProcessGroup | None) -> Members:
        """Every rank of a process group; this process alone where there is none."""
        return cls((0,), 0) if group is None else cls(tuple(range(group.size())), group.rank())

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.ranks)


@dataclass(frozen=True)
class Round:
    """One exchange of one bucket.

    Attributes:
        tag: marks its messages; concurrent rounds must not share it, all members must agree on it.
        members: who takes part.
    """

    tag: int
    members: Members

    @property
    def size(self) -> int:
        """How many take part."""
        return len(self.members.ranks)

    @property
    def place(self) -> int:
        """Of this process among the members."""
        return self.members.place


class Transport:
    """Messages to and from members of a round, over an explicit process group; counted.

    Args:
        group: never the default one: it decides which network the payload crosses.
        meter: counts what is sent.
    """

    def __init__(self, group: dist.ProcessGroup, meter: Meter) -> None:
        self.group = group
        self._meter = meter
        self._kept: dict[tuple[int, str], torch.Tensor] = {}
        self._of_thread = threading.local()

    def send(self, payload: torch.Tensor, to_place: int, round_: Round, payload_bytes: int | None = None) -> dist.Work:
        """Start sending; ``payload`` stays as it is until the returned work is waited for."""
        self._meter.sent(payload.numel() if payload_bytes is None else payload_bytes)
        emulated_time.catch_up()
        return self.group.send([payload], round_.members.ranks[to_place], round_.tag)

    def receive(self, buffer: torch.Tensor, from_place: int, round_: Round) -> dist.Work:
        """Start receiving. gloo sends nothing before the receiver has announced its buffer: post early.

        A message may be shorter than ``buffer``: its tail stays as it was.
        """
        return self.group.recv([buffer], round_.members.ranks[from_place], round_.tag)

    def receive_all(
        self, spans: Sequence[Span], codec: AbstractCodec, from_place: int, round_: Round
    ) -> list[tuple[torch.Tensor, dist.Work]]:
        """Post all receives from one member: buffer and pending work of the message of each span."""
        sizes = [buffer_bytes(codec, end - begin) for begin, end in spans]
        room = self.buffer(round_.tag, f"from-{from_place}", sum(map(aligned, sizes)))
        offset, messages = 0, []
        for size in sizes:
            buffer = room[offset : offset + size]
            offset += aligned(size)
            messages.append((buffer, self.receive(buffer, from_place, round_)))
        return messages

    @contextmanager
    def rooms_for(self, bucket_bytes: int) -> Iterator[None]:
        """An exchange of this thread, of a bucket of so many bytes in fp32: buffers are rooms of the thread where it is
        no larger than ``SHARED_ROOM_BYTES``.

        That is safe because an exchange has waited for all that it sends and receives when it is over.
        """
        before = getattr(self._of_thread, "shares", False)
        self._of_thread.shares = bucket_bytes <= SHARED_ROOM_BYTES
        try:
            yield
        finally:
            self._of_thread.shares = before

    def buffer(self, tag: int, purpose: str, num_bytes: int) -> torch.Tensor:
        """Host memory, uint8 of shape [num_bytes], kept for the next round with the same tag; in ``rooms_for`` a small
        bucket for the next of this thread. It is given out anew then: an exchange has to be over when it returns.
        """
        kept, key = self._kept, (tag, purpose)
        if getattr(self._of_thread, "shares", False):
            if not hasattr(self._of_thread, "kept"):
                self._of_thread.kept = {}
            kept, key = self._of_thread.kept, (0, purpose)
        buffer = kept.get(key)
        if buffer is None or buffer.numel() < num_bytes:
            buffer = kept[key] = torch.empty(num_bytes, dtype=torch.uint8)
        return buffer[:num_bytes]


@dataclass(frozen=True)
class MeterReading:
    """Payload bytes sent by this rank, and when it encoded, decoded or added, since the reading before."""

    payload_bytes: int
    codec_intervals: tuple[Interval, ...]

    def codec_s_within(self, begin_mono_s: float, end_mono_s: float) -> float:
        """Seconds of the window in which at least one thread did codec work."""
        total_s, covered_until = 0.0, begin_mono_s
        for begin, end in sorted(self.codec_intervals):
            total_s += max(0.0, min(end, end_mono_s) - max(begin, covered_until))
            covered_until = max(covered_until, end)
        return total_s


class Meter:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._payload_bytes = 0
        self._intervals: list[Interval] = []

    def sent(self, payload_bytes: int) -> None:
        """Count bytes that were handed to the network, as the codec claims them."""
        with self._lock:
            self._payload_bytes += payload_bytes

    @contextmanager
    def codec(self) -> Iterator[None]:
        """Count the time inside as codec work: encoding, decoding, adding."""
        emulated_time.catch_up()
        begin = emulated_time.monotonic()
        try:
            with emulated_time.work_on_vectors():
                yield
        finally:
            emulated_time.catch_up()
            self.codec_worked(begin, emulated_time.monotonic())

    def codec_worked(self, begin_mono_s: float, end_mono_s: float) -> None:
        """Count an interval as codec work."""
        with self._lock:
            self._intervals.append((begin_mono_s, end_mono_s))

    def take(self) -> MeterReading:
        """What was counted since the last call. What is still in flight is counted so far, the rest next time."""
        with self._lock:
            reading = MeterReading(self._payload_bytes, tuple(self._intervals))
            self._payload_bytes, self._intervals = 0, []
        return reading
