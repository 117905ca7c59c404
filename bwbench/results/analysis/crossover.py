"""Below which bandwidth one arm overtakes another: where the ratio of their times is 1.

Between two measured bandwidths the ratio that is printed, and both ends of its interval, are straight lines, log over
log. All bandwidths at which that band holds 1 make the interval of the crossover (as in Fieller's theorem), so it may
be open: reach below or above all that was measured. A crossover can therefore be read off the table of ratios, and
never contradicts it. S/(B·T), how long a model's gradient takes on a link in steps of computing, tells a crossover in
terms of no machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from bwbench.records import CellFolder
from bwbench.records.files import read_first_event
from bwbench.records.schema import Start
from bwbench.results.analysis.cells import setting_of, shrink_of, value_at
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival

BELOW, ABOVE = "below all measured", "above all measured"
ONE, SEVERAL, NONE = "one", "several", "none"


@dataclass(frozen=True)
class Measured:
    """Both arms at one bandwidth, by seed. A ratio (reference over arm) above 1 says that the arm is faster."""

    bandwidth_bps: float
    reference: Mapping[int, Arrival]
    arm: Mapping[int, Arrival]


@dataclass(frozen=True)
class Crossover:
    """One bandwidth at which two arms are equally fast.

    Attributes:
        bandwidth_bps: where the ratio itself crosses 1; None where it is known only to lie between the ends.
        low_bps, high_bps: 95 % interval; None where it is open, or where one repeat gives none.
        arm_faster_below: the arm is the faster one below it; None where neither side is certain.
    """

    bandwidth_bps: float | None
    low_bps: float | None
    high_bps: float | None
    arm_faster_below: bool | None


@dataclass(frozen=True)
class Crossovers:
    """All crossovers of two arms over the bandwidths that were measured.

    Attributes:
        kind: ``one``, ``several``, ``none``, ``below all measured`` or ``above all measured``.
        found: the crossovers, rising; of one that lies outside only the end towards the measured ones is known.
        why: a reason in words where there is none.
        num: the smallest number of repeats behind a ratio.
    """

    kind: str
    found: tuple[Crossover, ...]
    why: str
    num: int


@dataclass(frozen=True)
class _Point:
    """What a measured bandwidth says: the logarithm of the ratio and the ends of its interval; equal without one.

    Attributes:
        bounded: the ratio is a bound, so that ``sign`` is all that is known.
        sign: of the ratio's logarithm where that is certain, else 0.
    """

    log_bps: float
    centre: float
    low: float
    high: float
    bounded: bool
    measured: Measured

    @property
    def sign(self) -> int:
        return _sign(self.low, self.high)


def _sign(low: float, high: float) -> int:
    return (low > 0) - (high < 0)


@dataclass(frozen=True)
class _Sample:
    """A place on the axis: certain sign of the ratio's logarithm (0: none), and its centre where that is known."""

    log_bps: float
    sign: int
    centre: float | None


def find_crossovers(measured: Sequence[Measured]) -> Crossovers:
    """The crossovers of two arms; bandwidths at which nothing is known of their ratio are left out.

    So are those with single repeats where others have an interval.
    """
    ordered = sorted(measured, key=lambda one: one.bandwidth_bps)
    ratios = [(one, ratio) for one in ordered if (ratio := ratio_of(one.reference, one.arm)) is not None]
    has_interval = any(ratio.low is not None for _, ratio in ratios)
    if has_interval:  # single repeats beside them are certain of nothing
        ratios = [(one, ratio) for one, ratio in ratios if ratio.low is not None or ratio.bound]
    num = min((ratio.num for _, ratio in ratios), default=0)
    points = [point for one, ratio in ratios if (point := _point(one, ratio)) is not None]
    if len(points) < 2:
        return Crossovers(NONE, (), "fewer than two bandwidths have a ratio", num)
    samples = _samples(points)
    found = _inside(samples, has_interval=has_interval)
    if found:
        return Crossovers(ONE if len(found) == 1 else SEVERAL, tuple(found), "", num)
    return _outside(points, samples, num)


def _point(measured: Measured, ratio: Ratio) -> _Point | None:
    """None where a bound lies on the side of 1 that says nothing."""
    log_bps, centre = math.log(measured.bandwidth_bps), math.log(ratio.value)
    if ratio.bound:
        says = centre > 0 if ratio.bound == ">" else centre < 0
        return _Point(log_bps, centre, centre, centre, True, measured) if says else None
    low = centre if ratio.low is None else math.log(ratio.low)
    high = centre if ratio.high is None else math.log(ratio.high)
    return _Point(log_bps, centre, low, high, False, measured)


def _samples(points: Sequence[_Point]) -> list[_Sample]:
    """The axis from the first to the last measured bandwidth, with every place where certainty begins or ends."""
    samples = [_at(points[0])]
    for a, b in pairwise(points):
        if a.bounded or b.bounded:
            # Where sides differ, the crossover may lie anywhere between them.
            unknown = [] if a.sign == b.sign != 0 else [_Sample(one.log_bps, 0, None) for one in (a, b)]
            samples += [*unknown, _at(b)]
            continue
        changes = (_crosses(a.low, b.low), _crosses(a.centre, b.centre), _crosses(a.high, b.high))
        places = sorted({0.0, 1.0, *(weight for weight in changes if weight is not None)})
        for left, right in pairwise(places):
            samples += [_between(a, b, (left + right) / 2), _between(a, b, right, touching=right < 1.0)]
    return samples


def _at(point: _Point) -> _Sample:
    return _Sample(point.log_bps, point.sign, None if point.bounded else point.centre)


def _crosses(one: float, other: float) -> float | None:
    """How far from ``one`` to ``other`` a straight line is 0; None where it is not between them."""
    return one / (one - other) if one * other < 0 else None


def _between(a: _Point, b: _Point, weight: float, *, touching: bool = False) -> _Sample:
    """The sample that far from ``a`` to ``b``; ``touching`` where a line is 0 there, which holds 1."""

    def mixed(one: float, other: float) -> float:
        return (1 - weight) * one + weight * other

    sign = 0 if touching else _sign(mixed(a.low, b.low), mixed(a.high, b.high))
    centre = mixed(a.centre, b.centre)
    if touching and _crosses(a.centre, b.centre) == weight:
        centre = 0.0
    return _Sample(mixed(a.log_bps, b.log_bps), sign, centre)


def _inside(samples: Sequence[_Sample], *, has_interval: bool) -> list[Crossover]:
    """Crossovers between stretches of certain sign, and in an uncertain one at an end of what was measured."""
    stretches = [(sign, list(part)) for sign, part in groupby(samples, key=lambda sample: sample.sign)]
    found = []
    for number, (sign, part) in enumerate(stretches):
        if sign != 0 or len(stretches) == 1:
            continue
        before = stretches[number - 1][0] if number > 0 else 0
        after = stretches[number + 1][0] if number + 1 < len(stretches) else 0
        crossing = _crossing(part)
        if before * after > 0 or (before * after == 0 and crossing is None):
            continue  # it touches 1 and turns back, or comes close at an end
        low = math.exp(part[0].log_bps) if before and has_interval else None
        high = math.exp(part[-1].log_bps) if after and has_interval else None
        found.append(Crossover(crossing, low, high, before > 0 if before else after < 0))
    return found


def _crossing(part: Sequence[_Sample]) -> float | None:
    """Bandwidth at which the centre changes its sign: of several changes the middle one; None where it does not."""
    known = [(sample.log_bps, sample.centre) for sample in part if sample.centre is not None]
    if len(known) < len(part):
        return None
    places = [
        (left[0] * right[1] - right[0] * left[1]) / (right[1] - left[1])
        for left, right in pairwise(one for one in known if one[1] != 0.0)
        if left[1] * right[1] < 0
    ]
    if not places:  # exactly 1 at a measured bandwidth
        places = [log_bps for log_bps, centre in known if centre == 0.0][:1]
    return math.exp(places[len(places) // 2]) if len(places) % 2 else None


def _outside(points: Sequence[_Point], samples: Sequence[_Sample], num: int) -> Crossovers:
    """Nothing inside: the crossover lies where the ratio tends to 1, if it tends anywhere."""
    signs = {sample.sign for sample in samples}
    if signs == {0}:
        return Crossovers(NONE, (), "equally fast within their intervals at all measured bandwidths", num)
    sign = 1 if 1 in signs else -1
    trend = _trend(points[0], points[-1])
    if trend == 0:
        which = "faster" if sign > 0 else "slower"
        return Crossovers(NONE, (), f"{which} at all measured bandwidths, and no trend in it", num)
    certain = [number for number, sample in enumerate(samples) if sample.sign == sign]
    if trend * sign < 0:  # its certainty ends where an end of the interval is 1, which is the sample behind
        end = samples[min(certain[-1] + 1, len(samples) - 1)]
        return Crossovers(ABOVE, (Crossover(None, math.exp(end.log_bps), None, sign > 0),), "", num)
    end = samples[max(certain[0] - 1, 0)]
    return Crossovers(BELOW, (Crossover(None, None, math.exp(end.log_bps), sign < 0),), "", num)


def _trend(first: _Point, last: _Point) -> int:
    """+1 where the ratio certainly rises with bandwidth, -1 where it falls, 0 where that cannot be said.

    Of each arm's seeds how many times as long they take at one end as at the other, which takes out what they share;
    the ratio of those of both arms is the change of their ratio.
    """
    if not first.bounded and not last.bounded:
        one, other = first.measured, last.measured
        ratio = ratio_of(_change(one.reference, other.reference), _change(one.arm, other.arm))
        if ratio is not None and not ratio.bound:
            if ratio.low is None or ratio.high is None:
                return (ratio.value > 1) - (ratio.value < 1)
            return (ratio.low > 1) - (ratio.high < 1)
    change = last.centre - first.centre
    # A bound understates how far a ratio is from 1: it tells a trend where the bound alone is farther than the other.
    farther = first if abs(first.centre) > abs(last.centre) else last
    nearer = last if farther is first else first
    return 0 if nearer.bounded else (change > 0) - (change < 0)


def _change(first: Mapping[int, Arrival], last: Mapping[int, Arrival]) -> dict[int, Arrival]:
    """By seed, time at the last bandwidth over that at the first, of those that arrived at both; timings add up.

    Where one of the two was timed several times, and the error of the other is assumed, the sum is as little known as
    the first.
    """
    found = {}
    for seed in first.keys() & last.keys():
        one, other = first[seed], last[seed]
        if one.time_s is not None and other.time_s is not None:
            variance = one.timing_variance + other.timing_variance
            freedom = min(one.timing_freedom, other.timing_freedom)
            found[seed] = Arrival(other.middle_s / one.middle_s, None, 0.0, variance, freedom, kin=one.kin)
    return found


@dataclass(frozen=True)
class Scale:
    """What makes a bandwidth dimensionless; None where the records do not say.

    Attributes:
        gradient_bytes: S, the model's fp32 gradient.
        compute_s: T, what a node computes in a step: the declared ``step_time``, else the median over the cells.
    """

    gradient_bytes: int | None
    compute_s: float | None

    def at(self, bandwidth_bps: float | None) -> float | None:
        """S/(B·T) at a bandwidth; None where something of it is not known."""
        if bandwidth_bps is None or not self.gradient_bytes or not self.compute_s:
            return None
        return 8 * self.gradient_bytes / (bandwidth_bps * self.compute_s)


def scale_of(folders: Sequence[CellFolder]) -> Scale:
    """The scale of cells of one model and one compute setting."""
    declared = [setting_of(folder.cell.config).step_time_s for folder in folders]
    known_s = [seconds for seconds in declared if seconds is not None]
    compute_s: float | None
    if folders and len(known_s) == len(folders):
        compute_s = statistics.median(known_s)
    elif any(value_at(folder.cell.config, "compute.step_time") is not None for folder in folders):
        compute_s = None  # what is padded to a trace says nothing of it
    else:
        medians = [folder.status.compute_median_s for folder in folders if folder.status is not None]
        known = [median for median in medians if median]
        compute_s = statistics.median(known) if known else None
    found = (  # of the whole model: what is recorded was divided by ``shrink``
        round(size * shrink_of(folder.cell.config))
        for folder in folders
        if (size := gradient_bytes_of(folder)) is not None
    )
    return Scale(next(found, None), compute_s)


def gradient_bytes_of(folder: CellFolder) -> int | None:
    """Of the model of a cell; None where no record says.

    From the first event of rank 0, the only line that is read of a file that may be long; or from what stands for it.
    """
    if folder.digest is not None:
        return folder.digest.gradient_bytes or None
    for attempt in reversed(folder.attempts):
        start = read_first_event(attempt / "rank0.jsonl")
        if isinstance(start, Start) and start.gradient_bytes:
            return start.gradient_bytes
    return None
