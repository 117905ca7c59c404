"""The shared medium: one half-duplex air for all stations and their access point."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Generic, NamedTuple

from bwbench.network.relay.schedule import NEVER, AbstractSchedule, FrameT, LinkModel, OnDrop


class _Waiting(NamedTuple, Generic[FrameT]):
    """A frame that reaches a transmitter's queue at a time; ``order`` decides between equal times."""

    time_s: float
    order: int
    transmitter: int
    src: int
    dst: int
    wire_bytes: int
    frame: FrameT


class SharedSchedule(AbstractSchedule[FrameT]):
    """One frame is on the air at a time. The transmitters (stations and access point) take turns frame by frame.

    A frame from station to station crosses the air twice: up to the access point, then, after the latency, down again
    from the access point's queue. That access point has one turn like everyone else, as under the distributed
    coordination function of IEEE 802.11 in the long run; contention, collisions, and aggregation are not modelled, so
    the bandwidth asked for is what the air really carries (MAC efficiency included).
    """

    def __init__(self, model: LinkModel, num_nodes: int, on_drop: OnDrop[FrameT]) -> None:
        super().__init__(model, num_nodes, on_drop)
        self._access_point = num_nodes
        self._queues: list[deque[_Waiting[FrameT]]] = [deque() for _ in range(num_nodes + 1)]
        self._backlog_bytes = [0] * (num_nodes + 1)
        self._num_queued = 0
        self._coming: list[_Waiting[FrameT]] = []  # heap by time: frames on their way to a queue
        self._air_free_s = 0.0
        self._turn = 0

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        self._reach(now_s, src, src, dst, wire_bytes, frame)

    def advance(self, now_s: float) -> None:
        """See the base class: whose turn it is can be decided only once the time of the decision is past."""
        while True:
            if self._num_queued == 0:
                if not self._coming:
                    return
                begin_s = max(self._air_free_s, self._coming[0].time_s)
                if begin_s > now_s:
                    return  # the air stays free until then: something else may come first
                self._air_free_s = begin_s
            if self._air_free_s > now_s:
                return
            self._admit(self._air_free_s)
            if self._num_queued:
                self._transmit(self._next_transmitter())

    def next_time(self) -> float:
        """See the base class."""
        leaving_s = self._leaving[0][0] if self._leaving else NEVER
        if self._num_queued:
            return min(leaving_s, self._air_free_s)
        if self._coming:
            return min(leaving_s, max(self._air_free_s, self._coming[0].time_s))
        return leaving_s

    def _reach(self, time_s: float, transmitter: int, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        self._order += 1
        heappush(self._coming, _Waiting(time_s, self._order, transmitter, src, dst, wire_bytes, frame))

    def _admit(self, now_s: float) -> None:
        """Put the frames that have come by ``now_s`` into their queues, or drop them where there is no room."""
        while self._coming and self._coming[0].time_s <= now_s:
            waiting = heappop(self._coming)
            backlog_bytes = self._backlog_bytes[waiting.transmitter]
            if backlog_bytes and backlog_bytes + waiting.wire_bytes > self._model.queue_bytes:
                entered = waiting.transmitter == self._access_point
                self._on_drop(waiting.src, waiting.dst, waiting.frame, entered)
                continue
            self._backlog_bytes[waiting.transmitter] = backlog_bytes + waiting.wire_bytes
            self._queues[waiting.transmitter].append(waiting)
            self._num_queued += 1

    def _next_transmitter(self) -> int:
        """Round robin over the transmitters that have something to send."""
        number = len(self._queues)
        while True:
            self._turn = (self._turn + 1) % number
            if self._queues[self._turn]:
                return self._turn

    def _transmit(self, transmitter: int) -> None:
        waiting = self._queues[transmitter].popleft()
        self._num_queued -= 1
        self._backlog_bytes[transmitter] -= waiting.wire_bytes
        self._air_free_s += waiting.wire_bytes * self._seconds_per_byte
        if transmitter == self._access_point:
            self._leave(self._air_free_s, waiting.dst, waiting.frame)
        elif self._is_lost():
            self._on_drop(waiting.src, waiting.dst, waiting.frame, entered=True)
        else:
            arrival_s = self._cross(self._air_free_s, waiting.src)
            self._reach(arrival_s, self._access_point, waiting.src, waiting.dst, waiting.wire_bytes, waiting.frame)
