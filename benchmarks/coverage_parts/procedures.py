"""Other ways to get an interval from the same repeats, to be judged beside the one that is used.

    welch      each arm by its own spread, with the degrees of freedom that both can bear: what bwbench uses
    moderated  each arm's variance drawn towards that of all arms, by as much as they agree (Smyth 2004)
    pooled     one variance for all arms
    paired     seed by seed, Student's t on the differences: what bwbench used before, for all arms

All get the error of the timing runs in the same way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coverage_parts.made_up import Arm

from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import estimate, timing_part
from bwbench.results.analysis.welch import SEEDS, ErrorPart, MeanError

PROCEDURES = ("welch", "moderated", "pooled", "paired")
Interval = tuple[float, float]  # of the logarithm


@dataclass(frozen=True)
class AllArms:
    """What the arms of an experiment say together of their variance: of all, and what each is drawn towards."""

    pooled: float
    prior: float
    weight: float
    count: int

    @classmethod
    def of(cls, arms: Sequence[Arm]) -> AllArms:
        """Of arms with equally many repeats."""
        variances = [_variance(logs_of(arm)) for arm in arms]
        prior, weight = _prior(variances, len(arms[0]) - 1.0)
        return cls(statistics.fmean(variances), prior, weight, len(arms))

    def variances(self, arm: Arm) -> Mapping[str, tuple[float, float]]:
        """Variance of one repeat and its degrees of freedom, by procedure."""
        freedom, own = len(arm) - 1.0, _variance(logs_of(arm))
        drawn = (self.weight * self.prior + freedom * own) / (self.weight + freedom)
        total = freedom * self.count
        return {
            "moderated": (self.prior if math.isinf(self.weight) else drawn, min(self.weight + freedom, total)),
            "pooled": (self.pooled, total),
        }


def _variance(values: Sequence[float]) -> float:
    """As statistics.variance, which calculates with fractions and takes ten times as long."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def logs_of(arm: Arm) -> list[float]:
    """Of the times; none may be censored."""
    return [math.log(one.or_infinity) for one in arm.values()]


def time_intervals(arm: Arm, everything: AllArms) -> dict[str, Interval]:
    """Of the log of the arm's time, by each procedure but the paired one."""
    found = estimate(list(arm.values()))
    assert found.low is not None and found.high is not None
    intervals = {"welch": (math.log(found.low), math.log(found.high))}
    for name, (variance, freedom) in everything.variances(arm).items():
        error = MeanError((ErrorPart(SEEDS, variance / len(arm), freedom), timing_part(arm.values())))
        intervals[name] = _around(found.middle, error)
    return intervals


def ratio_intervals(reference: Arm, arm: Arm, everything: AllArms) -> dict[str, Interval]:
    """Of the log of the ratio, by each procedure."""
    found = ratio_of(reference, arm)
    assert found is not None and found.low is not None and found.high is not None
    intervals = {"welch": (math.log(found.low), math.log(found.high))}
    timings = (timing_part(reference.values()), timing_part(arm.values()))
    mine, others = everything.variances(arm), everything.variances(reference)
    for name in mine:
        parts = [ErrorPart(SEEDS, variance / len(arm), freedom) for variance, freedom in (mine[name], others[name])]
        if name == "pooled":  # one estimate, not two independent ones
            parts = [ErrorPart(SEEDS, sum(part.variance for part in parts), parts[0].freedom)]
        intervals[name] = _around(found.middle, MeanError((*parts, *timings)))
    changes = [one - other for one, other in zip(logs_of(reference), logs_of(arm), strict=True)]
    seeds = ErrorPart(SEEDS, _variance(changes) / len(changes), len(changes) - 1.0)
    intervals["paired"] = _around(found.middle, MeanError((seeds, *timings)))
    return intervals


def _around(middle: float, error: MeanError) -> Interval:
    half = error.half_width()
    return middle - half, middle + half


def _prior(variances: Sequence[float], freedom: float) -> tuple[float, float]:
    """Variance that all arms are drawn towards, and by how many degrees of freedom: infinite where they all agree."""
    logs = [math.log(max(variance, 1e-12)) - _digamma(freedom / 2) + math.log(freedom / 2) for variance in variances]
    excess = _variance(logs) - _trigamma(freedom / 2)
    if excess <= 0:
        return math.exp(statistics.fmean(logs)), math.inf
    low, high = 1e-3, 1e6  # trigamma falls
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > excess else (low, middle)
    half = math.sqrt(low * high)
    return math.exp(statistics.fmean(logs) + _digamma(half) - math.log(half)), 2 * half


def _digamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total -= 1 / x
        x += 1
    square = 1 / (x * x)
    return total + math.log(x) - 1 / (2 * x) - square * (1 / 12 - square * (1 / 120 - square / 252))


def _trigamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total += 1 / (x * x)
        x += 1
    square = 1 / (x * x)
    return total + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))
