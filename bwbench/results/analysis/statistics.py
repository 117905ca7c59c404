"""Centre and interval of few, positive, sometimes censored times; ratios of paired ones.

Times are skewed and compared by ratio, so everything happens on their logarithms, with Student's t: at n = 3 a
bootstrap interval that says 95 % covers 75 %. A censored repeat ("> limit") has no logarithm to average; then the
median stands, with the censored ones as infinity, and no interval.

A time is known up to the interval between two evaluations. Where repeats spread wider than that, their spread holds
what the grid adds, and Student's t is right as it is. Where they do not, they may all fall between the same two
evaluations and show no spread at all: then the grid alone sets the width. docs/statistics.md has the reasons, and
benchmarks/coverage.py how often these intervals cover.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import SupportsFloat, cast

from bwbench.results.analysis.arrival import FIT

COLUMNS = (
    "seed", "time_to_target_s", "censored_at_s", "timing_share",
    "evaluate_every_samples", "samples_to_target", "global_batch", "arrival_kind",
)  # fmt: skip
"""Those of ``cells.cell_row`` that an arrival is made of."""
SHORTEST_TIME_S = 1e-6  # stands for 0 s (a target met before the first step), which has no logarithm


@dataclass(frozen=True)
class Arrival:
    """One repeat's time to the target, or the limit at which it was given up. Exactly one of the two is set.

    Attributes:
        time_s: training clock at the first evaluation that met the target.
        grid_s: training clock between that evaluation and the one before: the target was reached somewhere in between.
            0 where nothing is known of it.
        timing_share: standard error that all repeats share, as a share of the time: of the timing run that composed
            values rest on. 0 for cells that ran whole.
    """

    time_s: float | None
    censored_at_s: float | None = None
    grid_s: float = 0.0
    timing_share: float = 0.0

    @property
    def or_infinity(self) -> float:
        """The time; infinity where the target was not reached."""
        return math.inf if self.time_s is None else max(self.time_s, SHORTEST_TIME_S)

    @property
    def at_least(self) -> float:
        """The time, or the limit that it is known to exceed."""
        if self.time_s is not None:
            return self.or_infinity
        return math.inf if self.censored_at_s is None else self.censored_at_s

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
    if time_s is None:
        return None if limit_s is None else Arrival(None, limit_s)
    every, samples = number(row.get("evaluate_every_samples")), number(row.get("samples_to_target"))
    grid_s = 0.0
    if every is not None and samples and row.get("arrival_kind") != FIT:  # which is interpolated
        # The last interval as its share of all samples until the target. Evaluations stand at the first step after
        # every multiple of it: their distance is at least a step.
        grid_s = time_s * min(1.0, max(every, number(row.get("global_batch")) or 0.0) / samples)
    return Arrival(time_s, None, grid_s, number(row.get("timing_share")) or 0.0)


def number(value: object) -> float | None:
    """``value`` as a float; None where it is missing or, in a table of pandas, NaN."""
    if value is None:
        return None
    found = float(cast(SupportsFloat, value))
    return None if math.isnan(found) else found


CONFIDENCE = 0.95


@lru_cache
def student_t(degrees_of_freedom: int, confidence: float = CONFIDENCE) -> float:
    """Half-width of the two-sided interval in standard errors: 4.303 for 2 degrees of freedom at 95 %."""
    low, high = 0.0, 1.0
    while _two_sided(high, degrees_of_freedom) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _two_sided(middle, degrees_of_freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _two_sided(t: float, degrees_of_freedom: int) -> float:
    """P(|T| <= t) for whole degrees of freedom: Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even)."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees_of_freedom % 2
    term = cosine if odd else 1.0
    total = term if degrees_of_freedom > 1 or not odd else 0.0
    for k in range(2 + odd, degrees_of_freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


_NORMAL = 1.96  # two-sided 95 % in standard deviations, for errors that all repeats share and none of them shows


@dataclass(frozen=True)
class Estimate:
    """Centre of some repeats, with its 95 % interval where there is one.

    Attributes:
        value: geometric mean; the median where repeats are censored; infinity where that is beyond the limit.
        low, high: interval, with the grid of evaluations in it; None for n = 1 and with any censored repeat.
        at_least: what ``value`` is known to exceed where it is infinite, else ``value`` itself.
        num, num_censored: repeats, and how many of them did not reach the target.
    """

    value: float
    low: float | None
    high: float | None
    at_least: float
    num: int
    num_censored: int

    @property
    def kind(self) -> str:
        """Name of the centre."""
        return "median" if self.num_censored else "geometric mean"


@dataclass(frozen=True)
class Ratio:
    """Ratio of paired times, reference over arm: above 1 the arm is faster. Limits as in ``Estimate``.

    Attributes:
        bound: ">" where the reference is censored, so that the ratio is at least ``value``; "<" where the arm is.
        num, num_censored: pairs, and those of them with a censored side.
    """

    value: float
    low: float | None
    high: float | None
    num: int
    bound: str = ""
    num_censored: int = 0

    @property
    def kind(self) -> str:
        """What ``value`` is: ``geometric mean``, ``median`` or ``bound``."""
        if self.bound:
            return "bound"
        return "median" if self.num_censored else "geometric mean"


def estimate(arrivals: Sequence[Arrival]) -> Estimate:
    """Centre and interval of one arm's repeats; raises ValueError without any."""
    if not arrivals:
        raise ValueError("no repeats to average")
    num_censored = sum(1 for arrival in arrivals if arrival.time_s is None)
    if num_censored:
        centre = statistics.median(arrival.or_infinity for arrival in arrivals)
        bound = statistics.median(arrival.at_least for arrival in arrivals)
        return Estimate(centre, None, None, bound if math.isinf(centre) else centre, len(arrivals), num_censored)
    value = math.exp(statistics.fmean(math.log(arrival.or_infinity) for arrival in arrivals))
    logs = [math.log(arrival.middle_s) for arrival in arrivals]
    low, high = _around(value, log_interval(logs, _floor([arrivals]), _shared(arrivals)))
    return Estimate(value, low, high, value, len(arrivals), 0)


def paired_ratio(reference: Mapping[int, Arrival], arm: Mapping[int, Arrival]) -> Ratio | None:
    """How many times faster ``arm`` is than ``reference``, both by seed; only seeds that both have count.

    Pairs share initial weights and order of data, which cancels in each ratio. None where no seed is shared, or where
    censoring on both sides leaves nothing to say.
    """
    pairs = [(reference[seed], arm[seed]) for seed in sorted(reference.keys() & arm.keys())]
    if not pairs:
        return None
    num_censored = sum(1 for one, other in pairs if one.time_s is None or other.time_s is None)
    if not num_censored:
        value = math.exp(statistics.fmean(math.log(one.or_infinity / other.or_infinity) for one, other in pairs))
        low, high = _around(value, log_interval(*paired_logs(pairs)))
        return Ratio(value, low, high, len(pairs))
    # Each ratio lies between a lower and an upper end, which a censored side moves to infinity or to 0.
    lower = _median_ratio([one.at_least / other.or_infinity for one, other in pairs])
    upper = _median_ratio([one.or_infinity / other.at_least for one, other in pairs])
    if lower == upper:
        return Ratio(lower, None, None, len(pairs), "", num_censored)
    if lower > 0 and math.isinf(upper):
        return Ratio(lower, None, None, len(pairs), ">", num_censored)
    if lower == 0 and math.isfinite(upper):
        return Ratio(upper, None, None, len(pairs), "<", num_censored)
    return None


def _median_ratio(ratios: Sequence[float]) -> float:
    """Median of ratios that may be 0 or infinite: of an even number the geometric mean of the middle two.

    So it is the inverse where the arms are swapped, and a bound where either of the two is one.
    """
    ordered = sorted(ratios)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else math.sqrt(low) * math.sqrt(high)


def paired_logs(pairs: Sequence[tuple[Arrival, Arrival]]) -> tuple[list[float], float, float]:
    """What ``log_interval`` takes, for the ratio of uncensored pairs (reference, arm)."""
    reference, arm = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    logs = [math.log(one.middle_s / other.middle_s) for one, other in pairs]
    return logs, _floor([reference, arm]), math.hypot(_shared(reference), _shared(arm))


def log_interval(logs: Sequence[float], floor: float = 0.0, shared: float = 0.0) -> tuple[float, float] | None:
    """Ends of the 95 % interval of the mean of ``logs``; None for fewer than two.

    Args:
        floor: half-width below which the grid of evaluations leaves nothing to know.
        shared: half-width of errors that all of them have in common, so that their spread does not show it.
    """
    if len(logs) < 2:
        return None
    centre = statistics.fmean(logs)
    half = max(student_t(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)), floor)
    half = math.hypot(half, shared)
    return centre - half, centre + half


def geometric_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of positive ``values`` and the ends of its 95 % interval, None where there is only one."""
    logs = [math.log(value) for value in values]
    centre, ends = statistics.fmean(logs), log_interval(logs)
    if ends is None:
        return math.exp(centre), None, None
    return math.exp(centre), math.exp(ends[0]), math.exp(ends[1])


def _around(value: float, ends: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """The interval in times, wide enough to hold the value as recorded, half a grid later than its middle."""
    if ends is None:
        return None, None
    return min(math.exp(ends[0]), value), max(math.exp(ends[1]), value)


def _floor(arms: Sequence[Sequence[Arrival]]) -> float:
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


def _shared(arrivals: Sequence[Arrival]) -> float:
    return _NORMAL * max(arrival.timing_share for arrival in arrivals)
