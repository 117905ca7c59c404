"""Centre and interval of few, positive, sometimes censored times.

Times are skewed and compared by ratio, so everything happens on their logarithms. Each arm's interval is its own:
Student's t on the spread of its seeds (a spread that is pooled over arms hides the noisy one), with the error of its
timing runs added (``welch``). Where repeats are censored ("> limit") and at least half arrive, a censored normal
fit takes the place of the mean; where fewer do, a bound stands, and no interval. ``ratio`` compares two arms.

A time that was read off the first evaluation that met the target is known up to the interval between two evaluations.
Where repeats spread wider than that, their spread holds what the grid adds; where they do not, they may all fall
between the same two evaluations and show no spread at all: then the grid alone sets the width. docs/statistics.md has
the reasons, and benchmarks/coverage.py how often these intervals cover.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat, TypedDict, cast

from bwbench.results.analysis.arrival import FIT
from bwbench.results.analysis.censored import can_be_fitted, censored_mean
from bwbench.results.analysis.student import CONFIDENCE, student_t
from bwbench.results.analysis.welch import SEEDS, TIMING_RUNS, Cause, ErrorPart, MeanError, of_seeds

COLUMNS = (
    "seed", "time_to_target_s", "censored_at_s", "timing_share", "evaluate_every_samples", "samples_to_target",
    "global_batch", "samples", "training_clock_s", "composed", "timing_runs", "between_share", "timing_pilot", "kin",
    "arrival_kind", "of_pilot",
)  # fmt: skip
"""Those of ``cells.cell_row`` that an arrival is made of."""
ONE_REPEAT = "one repeat says nothing about chance"  # of n = 1, wherever that stands
SHORTEST_TIME_S = 1e-6  # stands for 0 s (a target met before the first step), which has no logarithm
WIDEST = 300.0  # half-width on the log scale: nothing is known, and JSON has no infinity
ASSUMED_BETWEEN = 0.03  # standard deviation between timing runs of a cell, where there is only one to tell


@dataclass(frozen=True)
class Arrival:
    """One repeat's time to the target, or the limit at which it was given up. Exactly one of the two is set.

    Attributes:
        time_s: training clock at the arrival; of a first crossing at the first evaluation that met the target.
        grid_s: training clock between that evaluation and the one before: the target was reached somewhere in between.
            0 for an arrival by the fit that lies behind the first evaluation, and where nothing is known of it.
        timing_variance: of the logarithm of the time, by the timing runs that it rests on and that all repeats of the
            arm share. 0 for cells that ran whole.
        timing_freedom: degrees of freedom that this is known with; infinite where it is assumed.
        timing_by_pilot: the number of timing runs followed from what the first of them differed by.
        samples: that the target took, or that were taken until the limit; None where records do not say.
        kin: equal for cells that learn alike, seed by seed; empty where a cell is nobody's kin.
        of_pilot: whether it counts for the spread of its arm: all do, unless their number followed from a pilot's.
    """

    time_s: float | None
    censored_at_s: float | None = None
    grid_s: float = 0.0
    timing_variance: float = 0.0
    timing_freedom: float = math.inf
    timing_by_pilot: bool = False
    samples: float | None = None
    kin: str = ""
    of_pilot: bool = True

    @property
    def or_infinity(self) -> float:
        """The time; infinity where the target was not reached."""
        return math.inf if self.time_s is None else max(self.time_s, SHORTEST_TIME_S)

    @property
    def at_least(self) -> float:
        """The time, or the limit that it is known to exceed."""
        if self.time_s is not None:
            return self.or_infinity
        return math.inf if self.censored_at_s is None else max(self.censored_at_s, SHORTEST_TIME_S)

    @property
    def middle_s(self) -> float:
        """The middle between the two evaluations: what is to be expected, where ``time_s`` is the latest possible."""
        return max(self.or_infinity - min(self.grid_s, self.or_infinity) / 2, SHORTEST_TIME_S)

    @property
    def grid_share(self) -> float:
        """Width of the interval between the two evaluations as a share of ``middle_s``; 0 for a censored repeat."""
        return 0.0 if self.time_s is None else min(self.grid_s, self.or_infinity) / self.middle_s

    @property
    def evaluation(self) -> int:
        """Which evaluation it was, counted in intervals; 0 where the grid is not known."""
        return round(self.or_infinity / self.grid_s) if self.time_s is not None and self.grid_s > 0 else 0


class _Timing(TypedDict):
    """Those fields of an ``Arrival`` that timing runs decide."""

    timing_variance: float
    timing_freedom: float
    timing_by_pilot: bool


def by_seed(rows: Iterable[Mapping[str, object]]) -> dict[int, Arrival]:
    """Each seed's time to the target, or the limit it is censored at. Cells without either are left out.

    Args:
        rows: of ``cells.cell_row``; COLUMNS of them suffice.
    """
    found: dict[int, Arrival] = {}
    for row in rows:
        arrival, seed = arrival_of(row), int(number(row["seed"]) or 0)
        if arrival is None:
            continue
        # One node alone may stand there twice, under unlike training limits: a time stands before a limit, the higher
        # limit before the lower one. Of two times the first stands: taking the shorter one would flatter.
        known = found.get(seed)
        reached = arrival.time_s is not None
        if known is None or (known.time_s is None and (reached or arrival.at_least > known.at_least)):
            found[seed] = arrival
    return found


def arrival_of(row: Mapping[str, object]) -> Arrival | None:
    """The arrival in one cell's row; None where the cell has neither a time nor a limit."""
    time_s, limit_s = number(row.get("time_to_target_s")), number(row.get("censored_at_s"))
    variance, freedom = _timing(row)
    kin = row.get("kin")
    by_pilot = number(row.get("timing_pilot")) is not None
    about: _Timing = {"timing_variance": variance, "timing_freedom": freedom, "timing_by_pilot": by_pilot}
    name, of_pilot = kin if isinstance(kin, str) else "", bool(row.get("of_pilot", True))
    if time_s is None:
        if limit_s is None:
            return None
        taken, clock_s = number(row.get("samples")), number(row.get("training_clock_s"))
        if taken is not None and clock_s:
            taken *= min(1.0, limit_s / clock_s)  # until the limit, which may lie before the end
        return Arrival(None, limit_s, **about, samples=taken, kin=name, of_pilot=of_pilot)
    every, samples = number(row.get("evaluate_every_samples")), number(row.get("samples_to_target"))
    grid_s = 0.0
    if every is not None and samples:
        # The last interval as its share of all samples until the target. Evaluations stand at the first step after
        # every multiple of it: their distance is at least a step.
        batch = number(row.get("global_batch")) or 0.0
        first = math.ceil(every / batch) * batch if batch else every
        if row.get("arrival_kind") != FIT or samples <= first:  # behind the first evaluation a fit is interpolated
            grid_s = time_s * min(1.0, max(every, batch) / samples)
    return Arrival(time_s, None, grid_s, **about, samples=samples, kin=name, of_pilot=of_pilot)


def _timing(row: Mapping[str, object]) -> tuple[float, float]:
    """Variance of the log of a composed time by its timing runs, and its degrees of freedom; 0 for a whole run.

    Several runs show how much they differ, by a variance of the log of the time. Of one alone its steps tell their own
    error, and what runs differ by has to be assumed.
    """
    if not row.get("composed"):
        return 0.0, math.inf
    runs, between = number(row.get("timing_runs")) or 1.0, number(row.get("between_share"))
    if runs > 1 and between is not None:
        return between / runs, (number(row.get("timing_pilot")) or runs) - 1
    return ASSUMED_BETWEEN**2 + (number(row.get("timing_share")) or 0.0) ** 2, math.inf


def number(value: object) -> float | None:
    """``value`` as a float; None where it is missing or, in a table of pandas, NaN."""
    if value is None:
        return None
    found = float(cast(SupportsFloat, value))
    return None if math.isnan(found) else found


@dataclass(frozen=True)
class Estimate:
    """Centre of some repeats, with its 95 % interval where there is one.

    Attributes:
        value: geometric mean; of the censored fit where repeats are censored; infinity where fewer than half arrive.
        low, high: interval, with timing and the grid of evaluations in it; None for one repeat, and for a bound.
        at_least: what ``value`` is known to exceed where it is infinite, else ``value`` itself.
        num, num_censored: repeats, and how many of them did not reach the target.
        middle: logarithm that the interval lies around, half a grid before ``value``; NaN for a bound.
        error: what it is off by; None where there is no interval.
    """

    value: float
    low: float | None
    high: float | None
    at_least: float
    num: int
    num_censored: int
    middle: float = field(default=math.nan, compare=False)
    error: MeanError | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """Name of the centre."""
        if math.isinf(self.value):
            return "bound"
        return "censored fit" if self.num_censored else "geometric mean"

    @property
    def dominant(self) -> Cause | None:
        """What makes the interval as wide as it is."""
        return None if self.error is None else self.error.dominant


def estimate(arrivals: Sequence[Arrival]) -> Estimate:
    """Centre and interval of one arm's repeats; raises ValueError without any."""
    if not arrivals:
        raise ValueError("no repeats to average")
    num, num_censored = len(arrivals), sum(1 for arrival in arrivals if arrival.time_s is None)
    if num_censored and not can_be_fitted(num, num_censored):
        bound = statistics.median(arrival.at_least for arrival in arrivals)
        return Estimate(math.inf, None, None, bound, num, num_censored)
    reached = [arrival for arrival in arrivals if arrival.time_s is not None]
    logs = [math.log(arrival.middle_s) for arrival in reached]
    later = statistics.fmean(math.log(arrival.or_infinity / arrival.middle_s) for arrival in reached)
    if num_censored:
        limits = [math.log(arrival.at_least) for arrival in arrivals if arrival.time_s is None]
        fitted = censored_mean(logs, limits)
        centre, seeds = fitted.centre, ErrorPart(SEEDS, fitted.variance, num - 1.0)
    else:
        centre, seeds = statistics.fmean(logs), of_seeds(logs, [arrival.of_pilot for arrival in reached])
    value = math.exp(centre + later)
    if num < 2:
        return Estimate(value, None, None, value, num, num_censored, centre)
    error = MeanError((seeds, timing_part(arrivals)), grid_floor([reached]))
    low, high = around(value, centre, error)
    return Estimate(value, low, high, value, num, num_censored, centre, error)


def timing_part(arrivals: Iterable[Arrival]) -> ErrorPart:
    """What the timing of an arm is off by: all its repeats share it."""
    worst = max(arrivals, key=lambda arrival: arrival.timing_variance)
    return ErrorPart(TIMING_RUNS, worst.timing_variance, worst.timing_freedom, worst.timing_by_pilot)


def around(value: float, middle: float, error: MeanError, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval, wide enough to hold the value as recorded, half a grid later than its middle."""
    half = min(error.half_width(confidence), WIDEST)
    return min(math.exp(middle - half), value), max(math.exp(middle + half), value)


def log_interval(logs: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the 95 % interval of the mean of ``logs``; None for fewer than two."""
    if len(logs) < 2:
        return None
    centre = statistics.fmean(logs)
    half = student_t(len(logs) - 1.0) * statistics.stdev(logs) / math.sqrt(len(logs))
    return centre - half, centre + half


def geometric_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of positive ``values`` and the ends of its 95 % interval, None where there is only one."""
    logs = [math.log(value) for value in values]
    centre, ends = statistics.fmean(logs), log_interval(logs)
    if ends is None:
        return math.exp(centre), None, None
    return math.exp(centre), math.exp(ends[0]), math.exp(ends[1])


def grid_floor(arms: Sequence[Sequence[Arrival]]) -> float:
    """Half-width on the log scale that the grid leaves to the mean of the arms' repeats, or to the ratio of two arms.

    Within an interval between evaluations all positions are alike: a uniform error, which repeats that arrived at the
    same evaluation have in common, and others not.
    """
    widths = [statistics.fmean(arrival.grid_share for arrival in repeats) for repeats in arms]
    counts = [Counter(arrival.evaluation for arrival in repeats) for repeats in arms]
    # Variance of a mean whose parts are equal within a class and independent between classes, by that of one part.
    in_common = [sum((count / of_arm.total()) ** 2 for count in of_arm.values()) for of_arm in counts]
    if all(share == 1.0 for share in in_common):
        # Half-width of the central 95 % of the difference of two uniform errors of these widths: a trapezoid.
        wide, narrow = sorted((*widths, 0.0), reverse=True)[:2]
        tail = math.sqrt((1 - CONFIDENCE) * wide * narrow)
        return (wide + narrow) / 2 - tail if tail < narrow else CONFIDENCE * wide / 2
    variance = sum(share * width**2 / 12 for share, width in zip(in_common, widths, strict=True))
    return CONFIDENCE * math.sqrt(3 * variance)
