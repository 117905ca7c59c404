"""When a frame leaves: the model of the link, in virtual time and without sockets.

A schedule is told of frames as they come and says which ones are due. All times are seconds of one monotonic clock. It
reckons with the time at which a frame came, not with the time at which it was told, so that a relay that was late
catches up instead of losing capacity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heappop
from typing import Generic, Protocol, TypeVar

from bwbench.network.relay.chance import Delays, Losses
from bwbench.network.relay.model import RelayModel

FrameT = TypeVar("FrameT")
NEVER = float("inf")
SMALLEST_FRAME_BYTES = 42  # Ethernet 14, IPv4 20, UDP 8

_LostT = TypeVar("_LostT", contravariant=True)


class OnDrop(Protocol[_LostT]):
    """Told of every frame that is lost: ``entered`` is False where it never got past its sender's own end of the link.

    That is where the queue there has no room for it, or where an outage has killed that end.
    """

    def __call__(self, src: int, dst: int, frame: _LostT, entered: bool) -> None:
        """Called once a frame."""


class AbstractSchedule(ABC, Generic[FrameT]):
    """Takes frames in, gives frames out when they are due.

    What happens between the two ends is the same on every medium: a path takes its latency with its jitter and loses
    its share of frames. Links that vary are steady at first: traces at their mean rates, no outages.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT]) -> None:
        self._model = model
        self._on_drop = on_drop
        self._latency_s = [[path.latency_s for path in row] for row in model.paths]
        self._delays = Delays(model) if model.has_jitter else None
        self._losses = Losses(model) if model.has_loss else None
        self._outages = [
            [outage for outage in model.outages if outage.nodes is None or node in outage.nodes]
            for node in range(model.num_nodes)
        ]
        self._has_outages = bool(model.outages)
        self._loses_on_the_way = model.has_loss or self._has_outages
        self._since_s: float | None = None  # when the link began to play; None while it is steady
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

    def next_due(self) -> float:
        """When the next frame is due, as far as that is decided; ``NEVER`` where nothing is."""
        return self._leaving[0][0] if self._leaving else NEVER

    @abstractmethod
    def look_ahead_s(self) -> float:
        """How long after it came the smallest frame is due at the earliest: its shortest way through the link."""

    def shortest_time_s(self, num_bytes: int) -> float:
        """How long so many bytes take on the fastest link."""
        return num_bytes * 8 / max(direction.fastest_bps for direction in (*self._model.up, *self._model.down))

    def play(self, now_s: float, at_s: float = 0.0) -> None:
        """Traces and outages begin at ``now_s``, or go on from ``at_s`` after their begin."""
        self._switch(now_s, now_s - at_s)

    def hold(self, now_s: float) -> None:
        """Traces are at their mean rates again, and there are no outages."""
        self._switch(now_s, None)

    def pop_due(self, now_s: float) -> tuple[float, int, FrameT] | None:
        """The next frame that is due by ``now_s`` as (due time, dst, frame), in the order of due times."""
        if self._leaving and self._leaving[0][0] <= now_s:
            due_s, _, dst, frame = heappop(self._leaving)
            return due_s, dst, frame
        return None

    @abstractmethod
    def _switch(self, now_s: float, since_s: float | None) -> None:
        """From ``now_s`` on be as a link that has played since ``since_s``, or that is steady."""

    def _shortest_delay_s(self) -> float:
        """What no path undercuts."""
        return min(map(min, self._latency_s)) if self._delays is None else self._delays.shortest_s

    def _is_lost(self, src: int, dst: int, arrival_s: float) -> bool:
        """Whether a frame does not come through: by chance, or because it reaches a dead link."""
        if self._has_outages and self._is_dead(dst, arrival_s):
            return True
        return self._losses is not None and self._losses.is_lost(src, dst)

    def _is_dead(self, node: int, time_s: float) -> bool:
        since_s = self._since_s
        return since_s is not None and any(outage.is_dead(time_s - since_s) for outage in self._outages[node])
