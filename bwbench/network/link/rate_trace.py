"""A rate that changes over time: piecewise constant, repeating. Pure arithmetic, fast enough for each packet."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise


class RateTrace:
    """The rate ``rates_bps[i]`` holds from ``times_s[i]`` to ``times_s[i + 1]``; after the last edge it begins again.

    Times count from when the trace began to play and may be as large as one likes. Rates are in bit/s of whatever
    the caller counts; traces of links count Ethernet frames.

    Args:
        times_s: k + 1 edges in seconds, from 0, each above the one before.
        rates_bps: k rates in bit/s, 0 or more, not all of them 0.

    Raises:
        ValueError: anything else.
    """

    __slots__ = ("_before_bits", "rates_bps", "times_s")

    def __init__(self, times_s: Sequence[float], rates_bps: Sequence[float]) -> None:
        self.times_s = array("d", times_s)
        self.rates_bps = array("d", rates_bps)
        if not self.rates_bps or len(self.times_s) != len(self.rates_bps) + 1:
            raise ValueError(f"{len(rates_bps)} rates need one edge more, not {len(times_s)}")
        if self.times_s[0] != 0 or not math.isfinite(self.times_s[-1]):
            raise ValueError("edges begin at 0 and are finite")
        before_bits = array("d", [0.0])
        for (left_s, right_s), rate_bps in zip(pairwise(self.times_s), self.rates_bps, strict=True):
            if not right_s > left_s:
                raise ValueError(f"edges must rise: {right_s} s after {left_s} s")
            if not 0 <= rate_bps < math.inf:
                raise ValueError(f"a rate is 0 or more and finite, not {rate_bps}")
            before_bits.append(before_bits[-1] + rate_bps * (right_s - left_s))
        if not 0 < before_bits[-1] < math.inf:
            raise ValueError("a trace carries more than 0 bits in a finite number")
        self._before_bits = before_bits  # bits carried from 0 to each edge

    def __repr__(self) -> str:
        return f"RateTrace({len(self.rates_bps)} rates, {self.duration_s:g} s, mean {self.mean_bps:g} bit/s)"

    @property
    def duration_s(self) -> float:
        """After this time it begins again."""
        return self.times_s[-1]

    @property
    def mean_bps(self) -> float:
        """Mean rate of a whole period."""
        return self._before_bits[-1] / self.times_s[-1]

    @property
    def max_bps(self) -> float:
        """The highest rate that occurs."""
        return max(self.rates_bps)

    def rate_at(self, t_s: float) -> float:
        """Rate in bit/s at a time; at an edge the one that begins there."""
        return self.rates_bps[self._segment(t_s % self.times_s[-1])]

    def bits_between(self, t0_s: float, t1_s: float) -> float:
        """Bits that pass from ``t0_s`` to ``t1_s``; negative where ``t1_s`` is the earlier."""
        periods0, phase0_s = divmod(t0_s, self.times_s[-1])
        periods1, phase1_s = divmod(t1_s, self.times_s[-1])
        whole_bits = (periods1 - periods0) * self._before_bits[-1]
        return whole_bits + self._bits_before(phase1_s) - self._bits_before(phase0_s)

    def finish(self, start_s: float, num_bits: float) -> float:
        """The earliest time by which ``num_bits`` have passed since ``start_s``; waits through stretches of rate 0.

        The inverse of ``bits_between``: a transmission that begins at ``start_s`` and has the link for itself is done
        then. Nothing to send is done at once.
        """
        if num_bits <= 0:
            return start_s
        phase_s = start_s % self.times_s[-1]
        segment = self._segment(phase_s)
        rate_bps = self.rates_bps[segment]
        left_s = self.times_s[segment + 1] - phase_s
        if num_bits <= rate_bps * left_s:  # the usual case of a packet, without the cancellation of large sums
            return start_s + num_bits / rate_bps
        target_bits = self._before_bits[segment + 1] + (num_bits - rate_bps * left_s)
        periods, rest_bits = divmod(target_bits, self._before_bits[-1])
        if rest_bits <= 0:  # the very end of a period: done with its last bit, not after the silence that may follow
            periods, rest_bits = periods - 1, self._before_bits[-1]
        last = bisect_left(self._before_bits, rest_bits, 1) - 1
        into_s = self.times_s[last] + (rest_bits - self._before_bits[last]) / self.rates_bps[last]
        return start_s + max(left_s, periods * self.times_s[-1] + into_s - phase_s)

    def dilated(self, factor: float) -> RateTrace:
        """The same trace where time runs ``factor`` times slower: it carries the same bits between the same edges."""
        times_s = [edge_s * factor for edge_s in self.times_s]
        return RateTrace(times_s, [rate_bps / factor for rate_bps in self.rates_bps])

    def shifted(self, start_s: float) -> RateTrace:
        """The same trace, begun at ``start_s`` of this one; it ends with what was left out at the beginning."""
        phase_s = start_s % self.times_s[-1]
        if not phase_s:
            return self
        first = self._segment(phase_s)
        edges_s = [edge_s - phase_s for edge_s in self.times_s[first + 1 :]]
        edges_s += [edge_s - phase_s + self.times_s[-1] for edge_s in self.times_s[1 : first + 1]]
        times_s, rates_bps = [0.0], array("d")
        rates = [*self.rates_bps[first:], *self.rates_bps[: first + 1]]
        for edge_s, rate_bps in zip([*edges_s, self.times_s[-1]], rates, strict=True):
            if edge_s > times_s[-1]:  # a sliver below the precision of floats is no stretch
                times_s.append(min(edge_s, self.times_s[-1]))
                rates_bps.append(rate_bps)
        return RateTrace(times_s, rates_bps)

    def _segment(self, phase_s: float) -> int:
        return min(bisect_right(self.times_s, phase_s), len(self.rates_bps)) - 1

    def _bits_before(self, phase_s: float) -> float:
        segment = self._segment(phase_s)
        return self._before_bits[segment] + self.rates_bps[segment] * (phase_s - self.times_s[segment])
