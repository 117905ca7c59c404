"""How good each arm is after equal samples, after equal time, and at the end: what a time to one target does not say.

Only where every run went on to its limit: of one that ended at its target nothing is known from there on. Equal means
up to where the shortest run of the condition came, so that no value is extrapolated.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.errors import RecordError
from bwbench.records import CellFolder
from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.cell_arrival import kept_curve, target_at
from bwbench.results.analysis.welch import MeanError, of_seeds

Curve = Sequence[CurvePoint]


@dataclass(frozen=True)
class MetricMean:
    """Mean of a metric over repeats, with its 95 % interval; None for one repeat."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Footing:
    """One arm among others of one condition.

    Attributes:
        metric: of the target; on the validation split but for ``test``.
        samples, clock_s: that all runs of the condition came to, in samples and seconds of training.
        at_samples, at_time: straight between the evaluations on both sides of these.
        at_end: at each run's own end; ``test`` on the test split, None where it was not recorded.
    """

    metric: str
    samples: float
    clock_s: float
    at_samples: MetricMean
    at_time: MetricMean
    at_end: MetricMean
    test: MetricMean | None


def equal_footing(arms: Mapping[str, Sequence[CellFolder]]) -> dict[str, Footing]:
    """Every arm, by name; nothing where fewer than two are there, or where a run did not go on or has no curve."""
    metrics = {target[0] for cells in arms.values() for cell in cells if (target := target_at(cell)) is not None}
    if len(arms) < 2 or len(metrics) != 1:
        return {}
    metric = metrics.pop()
    curves: dict[str, list[Curve]] = {}
    for name, cells in arms.items():
        found = [_curve(cell, metric) for cell in cells]
        curves[name] = [curve for curve in found if curve is not None]
        if len(curves[name]) < len(found) or not found:
            return {}
    ends = [curve[-1] for of_arm in curves.values() for curve in of_arm]
    samples, clock_s = float(min(end.samples for end in ends)), min(end.clock_s for end in ends)
    return {
        name: Footing(
            metric,
            samples,
            clock_s,
            _level([_at(curve, metric, samples, lambda point: point.samples) for curve in curves[name]]),
            _level([_at(curve, metric, clock_s, lambda point: point.clock_s) for curve in curves[name]]),
            _level([_value(curve[-1], metric) for curve in curves[name]]),
            _test(arms[name]),
        )
        for name in arms
    }


def _curve(cell: CellFolder, metric: str) -> Curve | None:
    """Evaluations of a run that went on to its limit; None for any other."""
    if cell.status is None or cell.status.reason == "target":
        return None
    try:
        curve = [point for point in kept_curve(cell) if math.isfinite(_value(point, metric))]
    except RecordError:  # who reads the events themselves says so
        return None
    return curve if len(curve) > 1 else None


def _value(point: CurvePoint, metric: str) -> float:
    found = point.metrics.get(metric)
    return math.nan if found is None else found


def _at(curve: Curve, metric: str, where: float, along: Callable[[CurvePoint], float]) -> float:
    after = next((number for number, point in enumerate(curve) if along(point) >= where), len(curve) - 1)
    if after == 0:
        return _value(curve[0], metric)
    left, right = curve[after - 1], curve[after]
    width = along(right) - along(left)
    share = min(1.0, (where - along(left)) / width) if width > 0 else 1.0
    return _value(left, metric) + share * (_value(right, metric) - _value(left, metric))


def _test(cells: Sequence[CellFolder]) -> MetricMean | None:
    found = [cell.status.test_metric for cell in cells if cell.status is not None]
    known = [value for value in found if value is not None]
    return _level(known) if known and len(known) == len(found) else None


def _level(values: Sequence[float]) -> MetricMean:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return MetricMean(mean, None, None, len(values))
    half = MeanError((of_seeds(values),)).half_width()
    return MetricMean(mean, mean - half, mean + half, len(values))
