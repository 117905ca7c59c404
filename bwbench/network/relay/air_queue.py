"""What waits before the air: the frames of one station, or those that the access point has for one station."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple

from bwbench.network.relay.bottleneck import packets_of
from bwbench.network.relay.model import Direction
from bwbench.network.relay.schedule import FrameT

_LONGEST_STALL_S = 0.1  # a transmission that takes so much longer than it seemed to is given up
_SHORTEST_SLEEP_S = 1e-3


class Waiting(NamedTuple, Generic[FrameT]):
    """A frame with where it comes from, where it goes, and what it is charged."""

    src: int
    dst: int
    wire_bytes: int
    frame: FrameT


class AirQueue(Generic[FrameT]):
    """A drop-tail queue, and the PHY rate at which its frames cross the air. What is on the air waits no longer."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction
        self._frames: deque[Waiting[FrameT]] = deque()
        self._bytes = self._packets = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._frames)

    def append(self, waiting: Waiting[FrameT]) -> bool:
        """Take a frame in; False where there is no room. An empty queue takes any frame."""
        num_bytes, packets = waiting.wire_bytes, packets_of(waiting.wire_bytes)
        if self._frames:
            direction = self._direction
            if direction.queue_packets is not None:
                if self._packets + packets > direction.queue_packets:
                    return False
            elif self._bytes + num_bytes > direction.queue_bytes:
                return False
        self._frames.append(waiting)
        self._bytes += num_bytes
        self._packets += packets
        return True

    def aggregate(self, most: int) -> tuple[int, int, int]:
        """What goes next in one transmission of ``most`` packets, as far as they wait: (frames, packets, bytes).

        Super-packets stay whole, so with the last one these may be more.
        """
        number = packets = num_bytes = 0
        for waiting in self._frames:
            number, packets = number + 1, packets + packets_of(waiting.wire_bytes)
            num_bytes += waiting.wire_bytes
            if packets >= most:
                break
        return number, packets, num_bytes

    def take(self, number: int) -> list[Waiting[FrameT]]:
        """Take the first frames out."""
        taken = [self._frames.popleft() for _ in range(number)]
        self._bytes -= sum(waiting.wire_bytes for waiting in taken)
        self._packets -= sum(packets_of(waiting.wire_bytes) for waiting in taken)
        return taken

    def sent_s(self, begin_s: float, num_bytes: int, since_s: float | None) -> tuple[float, bool]:
        """When bytes that begin to cross the air at ``begin_s`` have crossed it, and whether they have.

        Where the rate collapses meanwhile they have not: the sender gives up when they should have been there.

        Args:
            since_s: when the link began to play; None while it is steady.
        """
        trace, num_bits = self._direction.trace, num_bytes * 8
        if trace is None or since_s is None:
            return begin_s + num_bits / self._direction.rate_bps, True
        time_s = max(begin_s - since_s, 0.0)
        rate_bps = trace.rate_at(time_s)
        if not rate_bps:
            return begin_s, False
        expected_s, really_s = num_bits / rate_bps, trace.finish(time_s, num_bits) - time_s
        if really_s > expected_s + _LONGEST_STALL_S:
            return begin_s + expected_s, False
        return begin_s + really_s, True

    def wakes_s(self, now_s: float, since_s: float | None) -> float:
        """When it is worth trying again after a transmission that failed."""
        trace = self._direction.trace
        if trace is None or since_s is None:
            return now_s
        return max(since_s + trace.finish(max(now_s - since_s, 0.0), 1.0), now_s + _SHORTEST_SLEEP_S)
