"""What a trace asks for, read a second time by other means than the link's: payload of UDP that should have passed."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from bwbench.network.link import TCP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES


class Asked:
    """Payload bits of UDP in full frames, passed by a time since the trace began.

    Args:
        times_s: rising, from 0.
        bits: passed by each of these times; between them as much in each instant.
    """

    def __init__(self, times_s: Sequence[float], bits: Sequence[float]) -> None:
        self._times_s, self._bits = times_s, bits

    def by(self, time_s: float) -> float:
        """Bits passed by ``time_s``; none before the trace begins."""
        if time_s <= 0:
            return 0.0
        right = min(bisect_right(self._times_s, time_s), len(self._times_s) - 1)
        left = right - 1
        share = (time_s - self._times_s[left]) / (self._times_s[right] - self._times_s[left])
        return self._bits[left] + share * (self._bits[right] - self._bits[left])

    def most_in_a_second(self, duration_s: int) -> float:
        """The most that passes in any one of the first seconds, in bit/s."""
        return max(self.by(second + 1) - self.by(second) for second in range(duration_s))


def read_wifi(path: Path) -> Asked:
    """``seconds<TAB>Mbit/s`` of TCP goodput: segments of 1448 B, in whose frames a datagram has 1472 B."""
    lines = [line.split() for line in path.read_text().splitlines()]
    times_s = [float(words[0]) for words in lines]
    times_s.append(2 * times_s[-1] - times_s[-2])
    rates_bps = [float(words[1]) * 1e6 * UDP_PAYLOAD_BYTES / TCP_PAYLOAD_BYTES for words in lines]
    lengths_s = [right - left for left, right in itertools.pairwise(times_s)]
    each = [rate_bps * length_s for rate_bps, length_s in zip(rates_bps, lengths_s, strict=True)]
    return Asked(times_s, [0.0, *itertools.accumulate(each)])


def read_mahimahi(path: Path) -> Asked:
    """A line for each packet of 1500 B of IP: the millisecond at which it may leave. A datagram of 1472 B fits."""
    stamps_ms = [int(line) for line in path.read_text().split()]
    passed = list(itertools.accumulate(_counts(stamps_ms)))
    return Asked([ms / 1e3 for ms in range(len(passed) + 1)], [0.0, *(n * UDP_PAYLOAD_BYTES * 8 for n in passed)])


def _counts(stamps_ms: Sequence[int]) -> list[int]:
    counts = [0] * (stamps_ms[-1] + 1)
    for stamp_ms in stamps_ms:
        counts[stamp_ms] += 1
    return counts
