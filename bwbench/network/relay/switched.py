"""The switched link: every node has a full-duplex link of its own, each way a rate with a drop-tail queue before it.

When does a frame that reaches a bottleneck now leave, or is there no room? Nothing is queued there. As a queue is
served in order and at a known rate, the time at which the link falls free says all about it: what is sent between now
and then is what waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from heapq import heappop, heappush
from operator import itemgetter
from typing import Protocol

from bwbench.network.link.frame_sizes import SMALLEST_FRAME_BYTES
from bwbench.network.link.mobile import Demand
from bwbench.network.relay.schedule import NEVER, AbstractSchedule, Direction, FrameT, OnDrop, RelayModel, packets_of

Retimed = Callable[[float], float]


class Line:
    """What is sent at a rate that is constant, or follows a trace while the link plays."""

    __slots__ = ("_rate_bps", "_since_s", "_trace")

    def __init__(self, direction: Direction) -> None:
        self._rate_bps = direction.rate_bps
        self._trace = direction.trace
        self._since_s: float | None = None

    def finish(self, start_s: float, num_bits: float) -> float:
        """When so many bits have been sent that begin at ``start_s``."""
        since_s = self._since_s
        if since_s is None or self._trace is None:
            return start_s + num_bits / self._rate_bps
        return since_s + self._trace.finish(max(start_s - since_s, 0.0), num_bits)

    def bits_between(self, begin_s: float, end_s: float) -> float:
        """How many bits can be sent between two times."""
        since_s = self._since_s
        if since_s is None or self._trace is None:
            return (end_s - begin_s) * self._rate_bps
        return self._trace.bits_between(max(begin_s - since_s, 0.0), max(end_s - since_s, 0.0))

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """See ``VariedBottleneck.switch``."""
        before = copy(self)
        self._since_s = since_s
        return self._moved(now_s, before)

    def become(self, now_s: float, direction: Direction) -> Callable[[float], float]:
        """See ``VariedBottleneck.become``."""
        before = copy(self)
        self._rate_bps, self._trace = direction.rate_bps, direction.trace
        return self._moved(now_s, before)

    def _moved(self, now_s: float, before: Line) -> Callable[[float], float]:
        def moved(time_s: float) -> float:
            return time_s if time_s <= now_s else self.finish(now_s, before.bits_between(now_s, time_s))

        return moved


class GrantedLine(Line):
    """The same where a base station grants rates as they are asked for, while the link plays: see ``Demand``.

    ``finish`` is asked of packet after packet, in their order; a packet is sent at one share of the rate.
    """

    __slots__ = ("_asked", "_free_s", "_sent_share", "_share")

    def __init__(self, direction: Direction, asked: Demand) -> None:
        super().__init__(direction)
        self._asked = asked
        self._share = self._sent_share = asked.least
        self._free_s = 0.0

    def finish(self, start_s: float, num_bits: float) -> float:
        """See the base class."""
        if self._since_s is None:
            return super().finish(start_s, num_bits)
        asked, range_ = self._asked, 1 - self._asked.least
        idle_s = max(0.0, start_s - self._free_s)
        self._share = max(asked.least, self._share - range_ * idle_s / asked.fall_s)
        end_s = super().finish(start_s, num_bits / self._share)
        self._sent_share, self._free_s = self._share, end_s
        self._share = min(1.0, self._share + range_ * (end_s - start_s) / asked.rise_s)
        return end_s

    def bits_between(self, begin_s: float, end_s: float) -> float:
        """See the base class; of the packet that is being sent."""
        return super().bits_between(begin_s, end_s) * (1.0 if self._since_s is None else self._sent_share)


class Bottleneck:
    """A constant rate behind a queue that counts bytes: the case that most links are, and a few operations a frame.

    Attributes:
        free_s: when everything that has been taken so far has left.
    """

    __slots__ = ("_queue_s", "_seconds_per_byte", "free_s")

    def __init__(self, direction: Direction) -> None:
        self.free_s = 0.0
        self._seconds_per_byte = 8 / direction.rate_bps
        self._queue_s = (direction.queue_bytes + 0.5) * self._seconds_per_byte  # half a byte against rounding

    def take(self, now_s: float, num_bytes: int) -> float | None:
        """When a frame that comes at ``now_s`` has been sent; None where it finds no room. Calls come in time order.

        An empty queue takes any frame, even one that is larger than the queue.
        """
        duration_s = num_bytes * self._seconds_per_byte
        free_s = self.free_s
        if free_s <= now_s:
            free_s = now_s
        elif free_s - now_s + duration_s > self._queue_s:
            return None
        self.free_s = free_s = free_s + duration_s
        return free_s

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """See ``VariedBottleneck``: nothing changes here."""
        return lambda time_s: time_s

    def become(self, now_s: float, direction: Direction) -> Callable[[float], float]:
        """See ``VariedBottleneck``."""
        before, now = self._seconds_per_byte, 8 / direction.rate_bps
        self._seconds_per_byte, self._queue_s = now, (direction.queue_bytes + 0.5) * now

        def moved(time_s: float) -> float:
            return time_s if time_s <= now_s else now_s + (time_s - now_s) * now / before

        self.free_s = moved(self.free_s)
        return moved


class Switching(Protocol):
    """What begins to vary, and stops; and what becomes another."""

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """See ``VariedBottleneck``."""

    def become(self, now_s: float, direction: Direction) -> Callable[[float], float]:
        """See ``VariedBottleneck``."""


class VariedBottleneck:
    """The same with a rate that changes over time, with a queue that counts packets, or both.

    A queue that counts bytes holds these bytes at any rate: how long they wait depends on what the rate does meanwhile.
    """

    __slots__ = ("_departures", "_frame_bytes", "_line", "_queue_bits", "_queue_packets", "_waiting", "free_s")

    def __init__(self, direction: Direction, frame_bytes: int) -> None:
        self.free_s = 0.0
        self._frame_bytes = frame_bytes
        self._line = Line(direction)
        self._queue_bits = (direction.queue_bytes + 0.5) * 8
        self._queue_packets = direction.queue_packets
        self._departures: deque[tuple[float, int]] = deque()  # (time, packets); kept only where packets are counted
        self._waiting = 0  # packets in ``_departures``

    def take(self, now_s: float, num_bytes: int) -> float | None:
        """See ``Bottleneck``."""
        num_bits, free_s = num_bytes * 8, self.free_s
        if self._queue_packets is not None:
            departures, num_packets = self._departures, packets_of(num_bytes, self._frame_bytes)
            while departures and departures[0][0] <= now_s:
                self._waiting -= departures.popleft()[1]
            if departures and self._waiting + num_packets > self._queue_packets:
                return None
        elif free_s > now_s and self._line.bits_between(now_s, free_s) + num_bits > self._queue_bits:
            return None
        self.free_s = free_s = self._line.finish(max(free_s, now_s), num_bits)
        if self._queue_packets is not None:
            departures.append((free_s, num_packets))
            self._waiting += num_packets
        return free_s

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """From ``now_s`` on follow the trace that began at ``since_s``; None is the steady mean rate.

        Returns, as a function, when what was to have been sent by some time has been sent now.
        """
        return self._move(self._line.switch(now_s, since_s))

    def become(self, now_s: float, direction: Direction) -> Callable[[float], float]:
        """From ``now_s`` on be another one, with what waits here; returns what ``switch`` does."""
        self._queue_bits, self._queue_packets = (direction.queue_bytes + 0.5) * 8, direction.queue_packets
        return self._move(self._line.become(now_s, direction))

    def _move(self, moved: Callable[[float], float]) -> Callable[[float], float]:
        self.free_s = moved(self.free_s)
        self._departures = deque((moved(time_s), packets) for time_s, packets in self._departures)
        return moved


def bottleneck(direction: Direction, frame_bytes: int) -> Bottleneck | VariedBottleneck:
    """The cheapest one that does what the direction asks for."""
    plain = direction.trace is None and direction.queue_packets is None
    return Bottleneck(direction) if plain else VariedBottleneck(direction, frame_bytes)


class SwitchedSchedule(AbstractSchedule[FrameT]):
    """Every node has a full-duplex link of its own to a switch that is never busy.

    A frame waits in its sender's queue, is serialised at the sender's uplink, takes its path's latency, waits in the
    receiver's queue, is serialised at the receiver's downlink. So many senders to one node share its downlink, and
    one sender to many its uplink. A frame that finds no room in a queue is dropped; an empty queue takes any frame.
    Frames are lost by chance where they arrive at the receiver's end: they have used the uplink, not the downlink.

    A super-packet stands for its segments: its first one goes on to the receiver's link while the others are still at
    the sender's, so that its time on the slower of the two links counts, and one segment's on the other.

    In an outage a frame is lost that enters the uplink or reaches the downlink of a dead node; what waits in a queue
    then is still sent. When traces begin or end, what waits in queues goes on at the new rate.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT]) -> None:
        super().__init__(model, on_drop)
        up, down = ([bottleneck(one, self._frame_bytes) for one in directions] for directions in (model.up, model.down))
        self._uplinks: list[Switching] = [*up]
        self._downlinks: list[Switching] = [*down]
        self._take_up, self._take_down = [uplink.take for uplink in up], [downlink.take for downlink in down]
        # Heap of (arrival at the downlink, order, src, dst, wire_bytes, frame, when it was sent at the uplink)
        self._crossing: list[tuple[float, int, int, int, int, FrameT, float]] = []
        # A frame that comes later cannot reach a downlink before this time is over, so that everything up to there is
        # settled: most frames need no wake-up of their own between their two links. Not where rates may change.
        self._settled_s = 0.0 if model.varies else self._shortest_delay_s()

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        if self._has_outages and self._is_dead(src, now_s):
            self._on_drop(src, dst, frame, entered=False)
            return
        sent_s = self._take_up[src](now_s, wire_bytes)
        if sent_s is None:
            self._on_drop(src, dst, frame, entered=False)
            return
        self._cross(sent_s, src, dst, wire_bytes, frame)

    def _cross(self, sent_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """A frame has left its sender's link."""
        delays = self._delays
        arrival_s = sent_s + self._latency_s[src][dst] if delays is None else delays.arrival_s(sent_s, src, dst)
        if wire_bytes > self._frame_bytes:
            # How much of a super-packet's time on one link it spends on the other as well: all segments but one.
            fastest_bps = max(self._model.up[src].fastest_bps, self._model.down[dst].fastest_bps)
            arrival_s -= (wire_bytes - self._frame_bytes) * 8 / fastest_bps
        self._order = order = self._order + 1
        heappush(self._crossing, (arrival_s, order, src, dst, wire_bytes, frame, sent_s))

    def advance(self, now_s: float) -> None:
        """See the base class."""
        crossing = self._crossing
        horizon_s = now_s + self._settled_s
        while crossing and crossing[0][0] <= horizon_s:
            arrival_s, _, src, dst, wire_bytes, frame, _ = heappop(crossing)
            if self._loses_on_the_way and self._is_lost(src, dst, arrival_s):
                self._on_drop(src, dst, frame, entered=True)
            else:
                self._reach(arrival_s, src, dst, wire_bytes, frame)

    def _reach(self, arrival_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """A frame has come to its receiver's link."""
        due_s = self._take_down[dst](arrival_s, wire_bytes)
        if due_s is None:
            self._on_drop(src, dst, frame, entered=True)
        else:
            self._leave(due_s, dst, frame)

    def _leave(self, due_s: float, dst: int, frame: FrameT) -> None:
        self._order = order = self._order + 1
        heappush(self._leaving, (due_s, order, dst, frame))

    def next_time(self) -> float:
        """See the base class."""
        leaving_s = self._leaving[0][0] if self._leaving else NEVER
        return min(leaving_s, self._crossing[0][0]) if self._crossing else leaving_s

    def look_ahead_s(self) -> float:
        """See the base class: the shortest delay, and the time of the smallest frame on the fastest links."""
        both_ways = self._model.up, self._model.down
        fastest_bps = (max(direction.fastest_bps for direction in directions) for directions in both_ways)
        return sum((SMALLEST_FRAME_BYTES * 8 / rate_bps for rate_bps in fastest_bps), self._shortest_delay_s())

    def switch(self, now_s: float, since_s: float | None) -> None:
        """See the base class."""
        self._begin(since_s)
        up = [uplink.switch(now_s, since_s) for uplink in self._uplinks]
        self._retime(up, [downlink.switch(now_s, since_s) for downlink in self._downlinks])

    def change(self, now_s: float, model: RelayModel) -> None:
        """See the base class; frames between the links keep their time."""
        super().change(now_s, model)
        up = [uplink.become(now_s, one) for uplink, one in zip(self._uplinks, model.up, strict=True)]
        self._retime(up, [down.become(now_s, one) for down, one in zip(self._downlinks, model.down, strict=True)])
        self._settled_s = 0.0 if model.varies else self._shortest_delay_s()

    def _retime(self, up: Sequence[Retimed], down: Sequence[Retimed]) -> None:
        """Let what is under way arrive when it does now: for each line, when what was sent by some time has been sent.

        Args:
            up, down: what ``Bottleneck.switch`` or ``become`` returned for each node's.
        """
        crossing, self._crossing = sorted(self._crossing, key=itemgetter(1)), []
        if self._delays is not None:
            self._delays.forget()
        for arrival_s, order, src, dst, wire_bytes, frame, before_s in crossing:
            sent_s = up[src](before_s)
            arrival_s += sent_s - before_s
            if self._delays is not None:
                arrival_s = self._delays.in_order(arrival_s, src, dst)
            heappush(self._crossing, (arrival_s, order, src, dst, wire_bytes, frame, sent_s))
        leaving, self._leaving = self._leaving, []
        for due_s, order, dst, frame in leaving:
            heappush(self._leaving, (down[dst](due_s), order, dst, frame))
