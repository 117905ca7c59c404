"""What waits before the air: the frames of one station, or those that the access point has for one station."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic

from bwbench.network.relay.model import Direction
from bwbench.network.relay.schedule import FrameT

# (src, dst, bytes it is charged, packets it counts as, frame): plain, as a named tuple would cost more than the rest.
Waiting = tuple[int, int, int, int, FrameT]

_LONGEST_STALL_S = 0.1  # a transmission that takes so much longer than it seemed to is given up
_SHORTEST_SLEEP_S = 1e-3


class AirQueue(Generic[FrameT]):
    """A drop-tail queue, and the PHY rate at which its frames cross the air. What is on the air waits no longer.

    Attributes:
        frames: those that wait; only to be looked at.
    """

    __slots__ = ("_bytes", "_packets", "_queue_bytes", "_queue_packets", "_seconds_per_byte", "_trace", "frames")

    def __init__(self, direction: Direction) -> None:
        self.frames: deque[Waiting[FrameT]] = deque()
        self._bytes = self._packets = 0
        self._queue_bytes, self._queue_packets = direction.queue_bytes, direction.queue_packets
        self._seconds_per_byte = 8 / direction.rate_bps
        self._trace = direction.trace

    def append(self, waiting: Waiting[FrameT]) -> bool:
        """Take a frame in; False where there is no room. An empty queue takes any frame."""
        num_bytes, packets = self._bytes + waiting[2], self._packets + waiting[3]
        if self.frames:
            if self._queue_packets is None:
                if num_bytes > self._queue_bytes:
                    return False
            elif packets > self._queue_packets:
                return False
        self.frames.append(waiting)
        self._bytes, self._packets = num_bytes, packets
        return True

    def take(self, most: int) -> tuple[list[Waiting[FrameT]], int, int]:
        """Take out what goes in one transmission of ``most`` packets, as far as they wait: (frames, packets, bytes).

        Super-packets stay whole, so with the last one these may be more.
        """
        frames = self.frames
        waiting = frames.popleft()
        taken, num_bytes, packets = [waiting], waiting[2], waiting[3]
        while packets < most and frames:
            waiting = frames.popleft()
            taken.append(waiting)
            num_bytes += waiting[2]
            packets += waiting[3]
        self._bytes -= num_bytes
        self._packets -= packets
        return taken, packets, num_bytes

    def put_back(self, taken: Sequence[Waiting[FrameT]]) -> None:
        """They have not crossed the air."""
        self.frames.extendleft(reversed(taken))
        self._bytes += sum(waiting[2] for waiting in taken)
        self._packets += sum(waiting[3] for waiting in taken)

    def sent_s(self, begin_s: float, num_bytes: int, since_s: float | None) -> tuple[float, bool]:
        """When bytes that begin to cross the air at ``begin_s`` have crossed it, and whether they have.

        Where the rate collapses meanwhile they have not: the sender gives up when they should have been there.

        Args:
            since_s: when the link began to play; None while it is steady.
        """
        trace = self._trace
        if trace is None or since_s is None:
            return begin_s + num_bytes * self._seconds_per_byte, True
        time_s, num_bits = max(begin_s - since_s, 0.0), num_bytes * 8
        rate_bps = trace.rate_at(time_s)
        if not rate_bps:
            return begin_s, False
        expected_s, really_s = num_bits / rate_bps, trace.finish(time_s, num_bits) - time_s
        if really_s > expected_s + _LONGEST_STALL_S:
            return begin_s + expected_s, False
        return begin_s + really_s, True

    def wakes_s(self, now_s: float, since_s: float | None) -> float:
        """When it is worth trying again after a transmission that failed."""
        if self._trace is None or since_s is None:
            return now_s
        return max(since_s + self._trace.finish(max(now_s - since_s, 0.0), 1.0), now_s + _SHORTEST_SLEEP_S)
