"""What a collective has sent and how long its codec work took, counted from several communication threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Interval = tuple[float, float]  # begin and end on the monotonic clock, in seconds


@dataclass(frozen=True)
class MeterReading:
    """Payload bytes sent by this rank, and when it encoded, decoded or added, since the reading before."""

    payload_bytes: int
    codec_intervals: tuple[Interval, ...]

    def codec_s_within(self, begin_mono_s: float, end_mono_s: float) -> float:
        """Seconds of the window in which at least one thread did codec work."""
        clipped = [(max(a, begin_mono_s), min(b, end_mono_s)) for a, b in self.codec_intervals]
        return _union_s([(a, b) for a, b in clipped if a < b])


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
        begin = time.monotonic()
        try:
            yield
        finally:
            self.codec_worked(begin, time.monotonic())

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


def _union_s(intervals: Sequence[Interval]) -> float:
    total_s, covered_until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total_s += max(0.0, end - max(begin, covered_until))
        covered_until = max(covered_until, end)
    return total_s
