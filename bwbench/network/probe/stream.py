"""A paced stream of datagrams: what it is, when each is due, and what its arrivals say. Pure, and quick to import."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_PAUSE_S = (0.0005, 0.002)  # shortest and longest sleep between two looks at the socket while a stream runs
_SLICE_FRAMES = 25  # with fewer, single late frames would count for too much

Arrival = tuple[float, int]  # CLOCK_REALTIME in seconds, payload bytes


@dataclass(frozen=True)
class Flow:
    """A stream of UDP datagrams that every node sends to its neighbour.

    Attributes:
        payload_bytes: of a datagram.
        segments: datagrams handed to the kernel at once (1: single frames).
        datagrams_per_s: None sends as fast as the machine can.
        burst: datagrams sent at once at the beginning.
        catch_up: at most so many are sent at once after a delay; the rest is left out.
        listen_s: how long after its end late datagrams are waited for, unless the mark of its end comes before.
        max_slices: into how many parts its arrivals may be divided, see ``goodput_bps``.
    """

    payload_bytes: int
    segments: int
    datagrams_per_s: float | None
    duration_s: float
    burst: int
    catch_up: int
    listen_s: float
    max_slices: int = 10


@dataclass(frozen=True)
class FlowReport:
    """What a node says after a flow: datagrams that it has sent, and what it has received of its neighbour's.

    Attributes:
        goodput_bps: of the neighbour's flow, see the function of that name.
    """

    sent: int
    received: int
    goodput_bps: float


class StreamPacer:
    """How much of a flow is due; whoever sends adds to ``sent``. Times are seconds since the flow began."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._left_out = 0
        self.sent = 0

    def due(self, elapsed_s: float) -> int:
        """How many times ``segments`` datagrams are to be sent now."""
        flow = self._flow
        if elapsed_s >= flow.duration_s:
            return 0
        if flow.datagrams_per_s is None:
            return 1
        waiting = flow.burst + int(elapsed_s * flow.datagrams_per_s) - self._left_out - self.sent
        if waiting > flow.catch_up:
            self._left_out += waiting - flow.catch_up
            waiting = flow.catch_up
        return waiting // flow.segments

    def pause_s(self, elapsed_s: float) -> float:
        """How long to sleep before the next look."""
        flow = self._flow
        shortest_s, longest_s = _PAUSE_S
        if elapsed_s >= flow.duration_s or flow.datagrams_per_s == 0:
            return longest_s
        if flow.datagrams_per_s is None:
            return 0.0
        return min(max(flow.segments / flow.datagrams_per_s / 2, shortest_s), longest_s)


def goodput_bps(arrivals: Sequence[Arrival], duration_s: float, max_slices: int = 10) -> float:
    """Payload bits per second of a stream that keeps its link busy: the slope of bytes over time.

    A slope, since single frames come late now and then; where there are enough frames the median of the slopes of a few
    slices, since a sender may not be scheduled for a while.
    """
    if len(arrivals) < 4:
        return sum(num_bytes for _, num_bytes in arrivals) * 8 / duration_s
    num_slices = max(1, min(max_slices, len(arrivals) // _SLICE_FRAMES))
    length = len(arrivals) // num_slices
    return 8 * statistics.median(_slope(arrivals[first * length : (first + 1) * length]) for first in range(num_slices))


def _slope(arrivals: Sequence[Arrival]) -> float:
    """Bytes per second by least squares (of time over bytes: the times are what is uncertain)."""
    sums = list(itertools.accumulate(num_bytes for _, num_bytes in arrivals))
    times = [arrived_s - arrivals[0][0] for arrived_s, _ in arrivals]
    mean_sum, mean_time = sum(sums) / len(sums), sum(times) / len(times)
    covariance = sum((s - mean_sum) * (t - mean_time) for s, t in zip(sums, times, strict=True))
    variance = sum((s - mean_sum) ** 2 for s in sums)
    return variance / covariance if covariance > 0 else 0.0
