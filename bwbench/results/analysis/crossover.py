"""Below which bandwidth one arm overtakes another: where the ratio of their times, paired by seed, is 1.

Between two measured bandwidths the logarithm of each seed's ratio is taken as a straight line over the logarithm of
bandwidth. All bandwidths at which the 95 % interval of the ratio holds 1 make the interval of the crossover (as in
Fieller's theorem), so it may be open: reach below or above all that was measured. S/(B·T), how long a model's gradient
takes on a link in steps of computing, tells a crossover in terms of no machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from bwbench.base.units import DURATION
from bwbench.records import CellFolder
from bwbench.records.files import read_first_event
from bwbench.records.schema import Start
from bwbench.results.analysis.cells import value_at
from bwbench.results.analysis.statistics import Arrival, log_interval, paired_logs, paired_ratio

BELOW, ABOVE = "below all measured", "above all measured"
ONE, SEVERAL, NONE = "one", "several", "none"

_PARTS = 32  # of the way from one measured bandwidth to the next, before bisection
_HALVINGS = 30


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
        bandwidth_bps: where the mean of the seeds crosses; None where it is known only to lie between the ends.
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
        num: the smallest number of pairs at a bandwidth that has any.
    """

    kind: str
    found: tuple[Crossover, ...]
    why: str
    num: int


@dataclass(frozen=True)
class _MeasuredPoint:
    """What a measured bandwidth says. ``logs`` by seed; None with a censored repeat, when ``sign`` alone may be known.

    ``known``: log of the mean ratio, or of the bound that a censored repeat leaves.
    """

    log_bps: float
    logs: Mapping[int, float] | None
    floor: float
    shared: float
    sign: int
    known: float


@dataclass(frozen=True)
class _Sample:
    """A place on the axis: certain sign of the ratio's logarithm (0: none), and its centre where that is known."""

    log_bps: float
    sign: int
    centre: float | None


def find_crossovers(measured: Sequence[Measured]) -> Crossovers:
    """The crossovers of two arms; bandwidths at which nothing is known of their ratio are left out."""
    points = [point for one in sorted(measured, key=lambda m: m.bandwidth_bps) if (point := _point(one)) is not None]
    pairs = [len(one.reference.keys() & one.arm.keys()) for one in measured]
    num = min(filter(None, pairs), default=0)  # a bandwidth without is left out, and says nothing of the others
    if len(points) < 2:
        return Crossovers(NONE, (), "fewer than two bandwidths have a ratio", num)
    samples = _samples(points)
    found = _inside(samples, has_interval=num > 1)
    if found:
        return Crossovers(ONE if len(found) == 1 else SEVERAL, tuple(found), "", num)
    return _outside(points, samples, num)


def _point(measured: Measured) -> _MeasuredPoint | None:
    seeds = sorted(measured.reference.keys() & measured.arm.keys())
    ratio = paired_ratio(measured.reference, measured.arm)
    if ratio is None:
        return None
    log_bps, known = math.log(measured.bandwidth_bps), math.log(ratio.value)
    if not ratio.num_censored:
        logs, floor, shared = paired_logs([(measured.reference[seed], measured.arm[seed]) for seed in seeds])
        by_seed = dict(zip(seeds, logs, strict=True))
        sign = _certain_sign(logs, floor, shared)
        return _MeasuredPoint(log_bps, by_seed, floor, shared, sign, statistics.fmean(logs))
    certain = {"": True, ">": known > 0, "<": known < 0}[ratio.bound]
    return _MeasuredPoint(log_bps, None, 0.0, 0.0, (known > 0) - (known < 0), known) if certain else None


def _certain_sign(logs: Sequence[float], floor: float, shared: float) -> int:
    ends = log_interval(logs, floor, shared) or (logs[0], logs[0])
    return (ends[0] > 0) - (ends[1] < 0)


def _between(a: _MeasuredPoint, b: _MeasuredPoint, weight: float) -> _Sample | None:
    """The sample that far from ``a`` to ``b``; None where a side is censored or the two have no seed in common."""
    if a.logs is None or b.logs is None:
        return None
    seeds = a.logs.keys() & b.logs.keys()
    if not seeds:
        return None
    logs = [(1 - weight) * a.logs[seed] + weight * b.logs[seed] for seed in sorted(seeds)]
    floor, shared = ((1 - weight) * one + weight * other for one, other in ((a.floor, b.floor), (a.shared, b.shared)))
    log_bps = (1 - weight) * a.log_bps + weight * b.log_bps
    return _Sample(log_bps, _certain_sign(logs, floor, shared), statistics.fmean(logs))


def _samples(points: Sequence[_MeasuredPoint]) -> list[_Sample]:
    """The axis from the first to the last measured bandwidth, with every change of certainty found by bisection."""
    samples = [_at(points[0])]
    for a, b in pairwise(points):
        inner = [_between(a, b, part / _PARTS) for part in range(_PARTS + 1)]
        if any(sample is None for sample in inner):
            # Where sides differ, the crossover may lie anywhere between them.
            unknown = [] if a.sign == b.sign != 0 else [_Sample(one.log_bps, 0, None) for one in (a, b)]
            samples += [*unknown, _at(b)]
            continue
        for part, (left, right) in enumerate(pairwise(sample for sample in inner if sample is not None)):
            if left.sign != right.sign:
                samples += _changes(a, b, part / _PARTS, (part + 1) / _PARTS)
            samples.append(right)
    return samples


def _at(point: _MeasuredPoint) -> _Sample:
    return _Sample(point.log_bps, point.sign, None if point.logs is None else point.known)


def _changes(a: _MeasuredPoint, b: _MeasuredPoint, left: float, right: float) -> list[_Sample]:
    """Samples on both sides of the places where certainty ends and begins; without an interval, the crossing itself."""
    ends = _edge(a, b, left, right) + _edge(a, b, right, left)[::-1]
    if ends[0].sign * ends[-1].sign < 0 and all(end.sign != 0 for end in ends):  # one repeat: certain on both sides
        return [ends[0], _Sample(ends[0].log_bps, 0, 0.0), ends[-1]]
    return sorted(ends, key=lambda sample: sample.log_bps)


def _edge(a: _MeasuredPoint, b: _MeasuredPoint, near: float, far: float) -> list[_Sample]:
    """The last sample whose sign is that at ``near``, and the first whose sign is not, on the way to ``far``."""
    first, other = _between(a, b, near), _between(a, b, far)
    assert first is not None and other is not None
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        half = _between(a, b, middle)
        assert half is not None
        if half.sign == first.sign:
            near, first = middle, half
        else:
            far, other = middle, half
    return [first, other]


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


def _outside(points: Sequence[_MeasuredPoint], samples: Sequence[_Sample], num: int) -> Crossovers:
    """Nothing inside: the crossover lies where the ratio tends to 1, if it tends anywhere."""
    signs = {sample.sign for sample in samples}
    if signs == {0}:
        return Crossovers(NONE, (), "equally fast within their intervals at all measured bandwidths", num)
    sign = 1 if 1 in signs else -1
    trend = _trend(points[0], points[-1])
    if trend == 0:
        which = "faster" if sign > 0 else "slower"
        return Crossovers(NONE, (), f"{which} at all measured bandwidths, and no trend in it", num)
    certain = [sample.log_bps for sample in samples if sample.sign == sign]
    if trend * sign < 0:
        return Crossovers(ABOVE, (Crossover(None, math.exp(certain[-1]), None, sign > 0),), "", num)
    return Crossovers(BELOW, (Crossover(None, None, math.exp(certain[0]), sign < 0),), "", num)


def _trend(first: _MeasuredPoint, last: _MeasuredPoint) -> int:
    """+1 where the ratio certainly rises with bandwidth, -1 where it falls, 0 where that cannot be said."""
    if first.logs is not None and last.logs is not None:
        seeds = sorted(first.logs.keys() & last.logs.keys())
        if seeds:
            changes = [last.logs[seed] - first.logs[seed] for seed in seeds]
            return _certain_sign(changes, math.hypot(first.floor, last.floor), math.hypot(first.shared, last.shared))
    change = last.known - first.known
    # A bound understates how far a ratio is from 1: it tells a trend where the bound alone is farther than the other.
    farther = first if abs(first.known) > abs(last.known) else last
    nearer = last if farther is first else first
    return 0 if nearer.logs is None else (change > 0) - (change < 0)


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
    declared = [value_at(folder.cell.config, "compute.step_time") for folder in folders]
    if folders and all(text is not None for text in declared):
        compute_s: float | None = statistics.median(DURATION.parse(text) for text in declared)
    else:
        medians = [folder.status.compute_median_s for folder in folders if folder.status is not None]
        known = [median for median in medians if median]
        compute_s = statistics.median(known) if known else None
    found = (size for folder in folders if (size := gradient_bytes_of(folder)) is not None)
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
