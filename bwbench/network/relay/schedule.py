"""When a frame leaves: the model of the link, in virtual time and without sockets.

A schedule is told of frames as they come and says which ones are due. All times are seconds of one monotonic clock. It
reckons with the time at which a frame came, not with the time at which it was told, so that a relay that was late
catches up instead of losing capacity.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

FrameT = TypeVar("FrameT")
NEVER = float("inf")
SMALLEST_FRAME_BYTES = 42  # Ethernet 14, IPv4 20, UDP 8


@dataclass(frozen=True)
class LinkModel:
    """What a schedule needs of a link; both directions of all nodes are alike.

    Attributes:
        seed: of the random numbers that loss and jitter are drawn from.
    """

    bandwidth_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    queue_bytes: int
    seed: int = 1


_LostT = TypeVar("_LostT", contravariant=True)


class OnDrop(Protocol[_LostT]):
    """Told of every frame that is lost: ``entered`` is False where its sender's own queue had no room for it."""

    def __call__(self, src: int, dst: int, frame: _LostT, entered: bool) -> None:
        """Called once a frame."""


class AbstractSchedule(ABC, Generic[FrameT]):
    """Takes frames in, gives frames out when they are due."""

    def __init__(self, model: LinkModel, num_nodes: int, on_drop: OnDrop[FrameT]) -> None:
        self._model = model
        self._seconds_per_byte = 8 / model.bandwidth_bps
        self._on_drop = on_drop
        self._random = random.Random(model.seed)
        self._last_arrival = [0.0] * num_nodes
        self._leaving: list[tuple[float, int, int, FrameT]] = []  # heap of (due, order, dst, frame)
        self._order = 0

    @abstractmethod
    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """A frame has come from ``src`` at ``now_s``, for ``dst``; it is charged ``wire_bytes``."""

    @abstractmethod
    def advance(self, now_s: float) -> None:
        """Every frame that came before ``now_s`` has been submitted: decide what follows from them."""

    @abstractmethod
    def next_time(self) -> float:
        """When to call ``advance`` and ``pop_due`` again if nothing comes before; ``NEVER`` where nothing waits."""

    def play(self, since_s: float) -> None:
        """Traces and outages began at ``since_s``, or begin anew."""

    def hold(self, now_s: float) -> None:
        """Traces are at their mean rates again, and there are no outages."""

    def look_ahead_s(self) -> float:
        """How long after it came the smallest frame is due at the earliest: the latency, and its time on both links."""
        latency_s = 0.0 if self._model.jitter_s > 0 else self._model.latency_s
        return latency_s + 2 * SMALLEST_FRAME_BYTES * self._seconds_per_byte

    def pop_due(self, now_s: float) -> tuple[float, int, FrameT] | None:
        """The next frame that is due by ``now_s`` as (due time, dst, frame), in the order of due times."""
        if self._leaving and self._leaving[0][0] <= now_s:
            due_s, _, dst, frame = heappop(self._leaving)
            return due_s, dst, frame
        return None

    def _leave(self, due_s: float, dst: int, frame: FrameT) -> None:
        self._order += 1
        heappush(self._leaving, (due_s, self._order, dst, frame))

    def _is_lost(self) -> bool:
        return self._model.loss > 0 and self._random.random() < self._model.loss

    def _cross(self, sent_s: float, src: int) -> float:
        """When a frame that has left ``src``'s side at ``sent_s`` arrives at the other side of the latency.

        Jitter is normal and never makes a delay negative; what one node sends keeps its order, as on a real link.
        """
        arrival_s = sent_s + self._model.latency_s
        if self._model.jitter_s > 0:
            arrival_s = sent_s + max(0.0, self._random.gauss(self._model.latency_s, self._model.jitter_s))
            arrival_s = self._last_arrival[src] = max(arrival_s, self._last_arrival[src])
        return arrival_s


class SwitchedSchedule(AbstractSchedule[FrameT]):
    """Every node has a full-duplex link of its own to a switch that is never busy.

    A frame waits in its sender's queue, is serialised at the sender's uplink, takes the latency, waits in the
    receiver's queue, is serialised at the receiver's downlink. So many senders to one node share its downlink, and
    one sender to many its uplink. A frame that finds no room in a queue is dropped; an empty queue takes any frame.
    """

    def __init__(self, model: LinkModel, num_nodes: int, on_drop: OnDrop[FrameT]) -> None:
        super().__init__(model, num_nodes, on_drop)
        self._queue_s = (model.queue_bytes + 0.5) * self._seconds_per_byte  # half a byte against rounding
        self._uplink_free = [0.0] * num_nodes
        self._downlink_free = [0.0] * num_nodes
        # Heap of (arrival at the downlink, order, src, dst, wire_bytes, frame)
        self._crossing: list[tuple[float, int, int, int, int, FrameT]] = []

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        duration_s = wire_bytes * self._seconds_per_byte
        free_s = self._uplink_free[src]
        if free_s <= now_s:
            free_s = now_s
        elif free_s - now_s + duration_s > self._queue_s:
            self._on_drop(src, dst, frame, entered=False)
            return
        self._uplink_free[src] = sent_s = free_s + duration_s
        if self._is_lost():
            self._on_drop(src, dst, frame, entered=True)
            return
        self._order += 1
        heappush(self._crossing, (self._cross(sent_s, src), self._order, src, dst, wire_bytes, frame))

    def advance(self, now_s: float) -> None:
        """See the base class.

        A frame that comes after ``now_s`` cannot reach a downlink before ``now_s`` + latency, so that everything up
        to there is settled already: most frames need no wake-up of their own between their two links.
        """
        horizon_s = now_s if self._model.jitter_s > 0 else now_s + self._model.latency_s
        crossing = self._crossing
        while crossing and crossing[0][0] <= horizon_s:
            arrival_s, _, src, dst, wire_bytes, frame = heappop(crossing)
            duration_s = wire_bytes * self._seconds_per_byte
            free_s = self._downlink_free[dst]
            if free_s <= arrival_s:
                free_s = arrival_s
            elif free_s - arrival_s + duration_s > self._queue_s:
                self._on_drop(src, dst, frame, entered=True)
                continue
            self._downlink_free[dst] = due_s = free_s + duration_s
            self._leave(due_s, dst, frame)

    def next_time(self) -> float:
        """See the base class."""
        leaving_s = self._leaving[0][0] if self._leaving else NEVER
        return min(leaving_s, self._crossing[0][0]) if self._crossing else leaving_s
