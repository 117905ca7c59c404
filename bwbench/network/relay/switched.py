"""The switched link: every node has a full-duplex link of its own."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import itemgetter

from bwbench.network.link import ETHERNET_FRAME_BYTES
from bwbench.network.relay.bottleneck import bottleneck
from bwbench.network.relay.model import Direction, RelayModel
from bwbench.network.relay.schedule import NEVER, SMALLEST_FRAME_BYTES, AbstractSchedule, FrameT, OnDrop


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
        self._uplinks = [bottleneck(direction) for direction in model.up]
        self._downlinks = [bottleneck(direction) for direction in model.down]
        self._take_up = [uplink.take for uplink in self._uplinks]
        self._take_down = [downlink.take for downlink in self._downlinks]
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
        delays = self._delays
        arrival_s = sent_s + self._latency_s[src][dst] if delays is None else delays.arrival_s(sent_s, src, dst)
        if wire_bytes > ETHERNET_FRAME_BYTES:
            arrival_s -= self._head_start_s(src, dst, wire_bytes)
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
                continue
            due_s = self._take_down[dst](arrival_s, wire_bytes)
            if due_s is None:
                self._on_drop(src, dst, frame, entered=True)
                continue
            self._order = order = self._order + 1
            heappush(self._leaving, (due_s, order, dst, frame))

    def next_time(self) -> float:
        """See the base class."""
        leaving_s = self._leaving[0][0] if self._leaving else NEVER
        return min(leaving_s, self._crossing[0][0]) if self._crossing else leaving_s

    def look_ahead_s(self) -> float:
        """See the base class: the shortest delay, and the time of the smallest frame on the fastest links."""

        def shortest_s(directions: tuple[Direction, ...]) -> float:
            return SMALLEST_FRAME_BYTES * 8 / max(direction.fastest_bps for direction in directions)

        return self._shortest_delay_s() + shortest_s(self._model.up) + shortest_s(self._model.down)

    def _head_start_s(self, src: int, dst: int, num_bytes: int) -> float:
        """How much of a super-packet's time on one link it spends on the other as well: all segments but one."""
        fastest_bps = max(self._model.up[src].fastest_bps, self._model.down[dst].fastest_bps)
        return (num_bytes - ETHERNET_FRAME_BYTES) * 8 / fastest_bps

    def _switch(self, now_s: float, since_s: float | None) -> None:
        self._since_s = since_s
        up = [uplink.switch(now_s, since_s) for uplink in self._uplinks]
        down = [downlink.switch(now_s, since_s) for downlink in self._downlinks]
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
