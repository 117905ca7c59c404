"""When a validation curve reaches a target: where its isotonic fit crosses, not where its noise does.

The first evaluation that meets a target is a lucky one: the more a curve flickers, the earlier it comes. So the metric
is fitted over the logarithm of samples by the closest curve that never gets worse (least squares, pool adjacent
violators; Barlow et al. 1972), up to the best mean of three evaluations, since a curve may decline after its peak.
Between the centres of the fit's blocks it is interpolated. docs/statistics.md has the reasons, benchmarks/arrival.py
how far off this is, and how far a first crossing. Pure, and without numpy: a run's parent would wait for it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bwbench.records.schema import CurvePoint

FIT = "fit"  # the fit crosses the target
FIRST_CROSSING = "first crossing"  # the first evaluation that met it: of runs that ended there, or too soon behind it
CENSORED = "censored"  # the budget was spent, or too much of it, before the fit crossed
UNKNOWN = "unknown"  # until it is run again, for longer

AT_OR_AFTER = 3  # evaluations that must lie at or after an arrival: one alone may be luck
TIE = 1e-12  # means of equal values differ in their last digit
OF_BUDGET = 1.5  # an arrival counts up to the budget over this: later ones have too little behind them to be told


@dataclass(frozen=True)
class Budget:
    """What a run may spend: samples over all nodes, and seconds of training clock; None is no limit."""

    samples: float | None = None
    time_s: float | None = None

    def holds(self, samples: float, clock_s: float) -> bool:
        """Whether an arrival there is early enough to count."""
        within_samples = self.samples is None or samples * OF_BUDGET <= self.samples
        return within_samples and (self.time_s is None or clock_s * OF_BUDGET <= self.time_s)


@dataclass(frozen=True)
class CurveArrival:
    """Where a curve reaches a target.

    Attributes:
        kind: FIT, CENSORED or UNKNOWN.
        samples, clock_s: over all nodes; training clock. Of FIT at the arrival, of CENSORED at the time up to which it
            is known not to have arrived, else None.
    """

    kind: str
    samples: float | None = None
    clock_s: float | None = None


class Block(NamedTuple):  # of which hundreds of thousands are made
    """Neighbouring evaluations that the fit gives one value: ``centre`` is the mean of their log samples."""

    centre: float
    value: float
    num: int


def arrival_on(
    curve: Sequence[CurvePoint], metric: str, target: float, budget: Budget, *, went_on: bool
) -> CurveArrival:
    """Where ``curve`` reaches ``target``.

    Args:
        curve: the validation evaluations in order, that of 0 samples among them or not.
        metric: losses fall, all else rises. Evaluations without it, or with no finite value, do not count.
        budget: what the run might have spent.
        went_on: it ended at its budget; else at a target, and what would have come then is not known.
    """
    known = _known(curve, metric)
    if not known:
        return CurveArrival(UNKNOWN)
    samples = crossing(known, metric, target)
    if samples is not None:
        clock_s = clock_at(known, samples)
        after = sum(1 for point in known if point.samples >= samples)
        if budget.holds(samples, clock_s):
            return CurveArrival(FIT, samples, clock_s) if after >= AT_OR_AFTER else CurveArrival(UNKNOWN)
    elif not went_on:
        return CurveArrival(UNKNOWN)
    samples, clock_s = _last_counted(known, budget)
    return CurveArrival(CENSORED, samples, clock_s) if clock_s > 0 else CurveArrival(UNKNOWN)  # later than 0 s: no word


def crossing(curve: Sequence[CurvePoint], metric: str, target: float) -> float | None:
    """Samples at which the fit of ``curve`` crosses ``target``; None where it does not.

    A fit that meets it from its beginning is said to do so at the first evaluation: it is no later than that.
    """
    sign = -1.0 if metric == "loss" else 1.0
    known, aim = _known(curve, metric), sign * target - TIE
    before = [point for point in known if point.samples <= 0]  # samples of 0 have no logarithm
    blocks = isotonic(known, metric)
    if not blocks:
        return None
    if blocks[0].value >= aim:
        first = next(point for point in known if point.samples > 0)
        met_before = any(sign * (point.metrics[metric] or 0.0) >= aim for point in before)
        return 0.0 if met_before else float(first.samples)
    later = next((number for number, block in enumerate(blocks) if block.value >= aim), None)
    if later is None:
        return None
    left, right = blocks[later - 1], blocks[later]
    share = (aim - left.value) / (right.value - left.value)
    return math.exp(left.centre + share * (right.centre - left.centre))


def isotonic(curve: Sequence[CurvePoint], metric: str) -> list[Block]:
    """The fit: blocks of rising values, of losses with their sign turned round; none for a curve without evaluations.

    Evaluations count alike, up to the last of the three with the best mean; that of 0 samples is left out.
    """
    sign = -1.0 if metric == "loss" else 1.0
    points = [(math.log(point.samples), sign * (point.metrics[metric] or 0.0)) for point in _known(curve, metric)
              if point.samples > 0]  # fmt: skip
    blocks: list[Block] = []
    for centre, value in points[: _best_of_three([value for _, value in points])]:
        blocks.append(Block(centre, value, 1))
        while len(blocks) > 1 and blocks[-2].value >= blocks[-1].value - TIE:
            last, before = blocks.pop(), blocks.pop()
            num = before.num + last.num
            middle = (before.num * before.centre + last.num * last.centre) / num
            blocks.append(Block(middle, (before.num * before.value + last.num * last.value) / num, num))
    return blocks


def clock_at(curve: Sequence[CurvePoint], samples: float) -> float:
    """Training clock in s after so many samples: straight between evaluations, and from 0 to the first of them."""
    return _interpolated(samples, [(point.samples, point.clock_s) for point in curve])


def payload_at(curve: Sequence[CurvePoint], samples: float) -> float | None:
    """Bytes of payload that all ranks had sent by then, likewise; None where they were not recorded."""
    known = [(point.samples, point.payload_bytes) for point in curve if point.payload_bytes is not None]
    return _interpolated(samples, known) if len(known) == len(curve) > 0 else None


def metric_at(
    curve: Sequence[CurvePoint],
    value: Callable[[CurvePoint], float | None],
    place: float,
    along: Callable[[CurvePoint], float],
) -> float | None:
    """What a curve says at a place that may lie between two evaluations: straight from one to the other.

    Args:
        value: of an evaluation; None where it is not known.
        along: where an evaluation lies, in the units of ``place``; rising.

    Returns:
        None where an evaluation that is needed does not know it. Before the first evaluation its value, behind the
        last one that of the last.
    """
    if not curve:
        return None
    after = next((number for number, point in enumerate(curve) if along(point) >= place), len(curve) - 1)
    right = curve[after]
    if after == 0 or along(right) <= place:
        return value(right)
    left = curve[after - 1]
    first, last = value(left), value(right)
    if first is None or last is None:
        return None
    return first + (last - first) * (place - along(left)) / (along(right) - along(left))


def first_crossing(curve: Sequence[CurvePoint], metric: str, target: float) -> CurvePoint | None:
    """The first evaluation that meets the target by itself; None where none does."""
    return next((point for point in _known(curve, metric) if meets_target(metric, point.metrics[metric], target)), None)


def meets_target(metric: str, value: float | None, target: float) -> bool:
    """Whether ``value`` is as good as ``target``: losses fall, everything else rises."""
    return value is not None and (value <= target if metric == "loss" else value >= target)


def _known(curve: Sequence[CurvePoint], metric: str) -> list[CurvePoint]:
    return [point for point in curve if (value := point.metrics.get(metric)) is not None and math.isfinite(value)]


def _best_of_three(values: Sequence[float]) -> int:
    """How many values there are up to the end of the three neighbours with the best mean; of equal ones the last."""
    if len(values) <= AT_OR_AFTER:
        return len(values)
    best = 3
    for end in range(4, len(values) + 1):
        if sum(values[end - 3 : end]) >= sum(values[best - 3 : best]) - TIE:
            best = end
    return best


def _last_counted(curve: Sequence[CurvePoint], budget: Budget) -> tuple[float, float]:
    """Samples and clock up to which an arrival counts: where the budget over OF_BUDGET ends, or the curve."""
    samples = float(curve[-1].samples)
    if budget.samples is not None:
        samples = min(samples, budget.samples / OF_BUDGET)
    if budget.time_s is not None:
        clocks = [(point.clock_s, float(point.samples)) for point in curve]
        samples = min(samples, _interpolated(budget.time_s / OF_BUDGET, clocks))
    return samples, clock_at(curve, samples)


def _interpolated(x: float, points: Sequence[tuple[float, float]]) -> float:
    """Straight between points in the order of rising x, from (0, 0) to the first of them; the last value beyond."""
    after = bisect_left(points, x, key=lambda point: point[0])
    if after == len(points):
        return points[-1][1]
    begin_x, begin = points[after - 1] if after else (0.0, 0.0)
    end_x, end = points[after]
    return end if end_x <= begin_x else begin + (end - begin) * (x - begin_x) / (end_x - begin_x)
