"""An interval for the sum of many steps of which only a few were timed: a bootstrap, in blocks where that is due."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.results.analysis.statistics import student_t

REPLICATES = 1000
NORMAL_95 = 1.959964  # half-width of a 95 % interval in standard deviations, were the deviation known
LEAST_FOR_BLOCKS = 10  # a correlation of fewer values is noise


@dataclass(frozen=True)
class Sample:
    """Durations that were timed, in order, and how many of such a sum is made of."""

    durations_s: Sequence[float]
    num_summed: int

    @property
    def block(self) -> int:
        """Steps that are drawn together: 1 where neighbours have nothing to do with each other.

        Else (a machine that is slow for a while) the usual n^(1/3), and at least 2.
        """
        count = len(self.durations_s)
        if count < LEAST_FOR_BLOCKS or abs(autocorrelation(self.durations_s)) < 2 / math.sqrt(count):
            return 1
        return max(2, math.ceil(math.pow(count, 1 / 3)))


def interval_of_sum(samples: Sequence[Sample], centre_s: float, seed: int) -> tuple[float, float] | None:
    """95 % interval around ``centre_s``, the sum of ``num_summed`` times the mean of each sample. Pure.

    Two chances are in it: that of the few that were timed, and that of the many that would be summed. A bootstrap of
    few values is too narrow, so each sample's deviations are widened by sqrt(n/(n-1)) and Student's t. None where
    nothing varies.
    """
    told = [sample for sample in samples if sample.num_summed and len(sample.durations_s) > 1]
    generator = random.Random(seed)
    sums = [0.0] * REPLICATES
    for sample in told:
        scale, block = sample.num_summed * _widening(sample), sample.block
        mean_s = statistics.fmean(sample.durations_s)
        for replicate in range(REPLICATES):
            sums[replicate] += scale * (_mean_of_draw(sample.durations_s, block, generator) - mean_s)
    sums.sort()
    low, high = sums[round(0.025 * (REPLICATES - 1))], sums[round(0.975 * (REPLICATES - 1))]
    return (max(0.0, centre_s + low), centre_s + high) if high > low else None


def autocorrelation(values: Sequence[float]) -> float:
    """Of each value with the next one; 0 where nothing varies."""
    mean = statistics.fmean(values)
    deviations = [value - mean for value in values]
    variance = sum(deviation**2 for deviation in deviations)
    if variance == 0:
        return 0.0
    return sum(one * other for one, other in zip(deviations, deviations[1:], strict=False)) / variance


def _widening(sample: Sample) -> float:
    count, block = len(sample.durations_s), sample.block
    freedom = max(1, count // block - 1)
    few = math.sqrt(count / max(1, count - block)) * student_t(freedom) / NORMAL_95
    return few * math.sqrt(1 + count / sample.num_summed)


def _mean_of_draw(values: Sequence[float], block: int, generator: random.Random) -> float:
    """Mean of as many values as there are, drawn in blocks of neighbours; the last ones are followed by the first."""
    count = len(values)
    if block == 1:
        return sum(generator.choices(values, k=count)) / count
    drawn: list[float] = []
    while len(drawn) < count:
        begin = generator.randrange(count)
        drawn += [values[(begin + index) % count] for index in range(block)]
    return sum(drawn[:count]) / count
