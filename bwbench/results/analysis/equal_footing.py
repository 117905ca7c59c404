"""How good each arm is at equal samples, at equal time and at the end, on both splits: what no time to a target says.

Only where every run went on to its limit: of one that ended at its target nothing is known from there on. Equal means
up to where the shortest run of the condition came, so that no value is extrapolated. On the test split a value is known
where that was looked at, in all repeats alike (``evaluate: {test: always}``); it is never made up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.errors import RecordError
from bwbench.records import CellFolder
from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import metric_at
from bwbench.results.analysis.cell_arrival import kept_curve, target_at
from bwbench.results.analysis.cells import is_virtual
from bwbench.results.analysis.welch import MeanError, of_seeds

Curve = Sequence[CurvePoint]
# How far a metric can go: Student's t knows of no such ends, and with two repeats reaches beyond them.
_POSSIBLE = {"accuracy": (0.0, 1.0), "loss": (0.0, math.inf)}


@dataclass(frozen=True)
class MetricMean:
    """Mean of a metric over repeats, with its 95 % interval, as far as the metric can go; None for one repeat."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Footing:
    """One arm among others of one condition.

    Attributes:
        metric: of the target; on the validation split but for those that begin with ``test``.
        samples, clock_s: that all runs of the condition came to, in samples and seconds of training; no time, and
            nothing at it, where one of them had virtual nodes.
        at_samples, at_time: straight between the evaluations on both sides of these.
        at_end: at each run's own end.
        test_at_samples, test_at_time, test: the same three on the test split; None where a run was not looked at there.
    """

    metric: str
    samples: float
    clock_s: float | None
    at_samples: MetricMean
    at_time: MetricMean | None
    at_end: MetricMean
    test_at_samples: MetricMean | None
    test_at_time: MetricMean | None
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
    samples = float(min(end.samples for end in ends))
    timed = not any(is_virtual(cell) for cells in arms.values() for cell in cells)
    clock_s = min(end.clock_s for end in ends) if timed else None

    def validation(point: CurvePoint) -> float | None:
        return point.metrics.get(metric)

    def test(point: CurvePoint) -> float | None:
        return point.test.get(metric)

    return {
        name: Footing(
            metric,
            samples,
            clock_s,
            at_samples=_level(_after_samples(of_arm, validation, samples), metric),
            at_time=None if clock_s is None else _level(_after_time(of_arm, validation, clock_s), metric),
            at_end=_level([_value(curve[-1], metric) for curve in of_arm], metric),
            test_at_samples=_level_of_all(_after_samples(of_arm, test, samples), metric, len(of_arm)),
            test_at_time=(
                None if clock_s is None else _level_of_all(_after_time(of_arm, test, clock_s), metric, len(of_arm))
            ),
            test=_level_of_all(_tested_at_end(arms[name], of_arm, metric), metric, len(of_arm)),
        )
        for name, of_arm in curves.items()
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


Split = Callable[[CurvePoint], float | None]  # the metric of an evaluation on it, where that is known


def _after_samples(curves: Sequence[Curve], split: Split, samples: float) -> list[float]:
    """Of the curves that know it."""
    found = (metric_at(curve, split, samples, lambda point: point.samples) for curve in curves)
    return [value for value in found if value is not None]


def _after_time(curves: Sequence[Curve], split: Split, clock_s: float) -> list[float]:
    """Likewise."""
    found = (metric_at(curve, split, clock_s, lambda point: point.clock_s) for curve in curves)
    return [value for value in found if value is not None]


def _tested_at_end(cells: Sequence[CellFolder], curves: Sequence[Curve], metric: str) -> list[float]:
    """As status.json has it; of another metric than that is about, as the curve has it."""
    found = [
        cell.status.test_metric
        if cell.status is not None and cell.status.metric == metric
        else curve[-1].test.get(metric)
        for cell, curve in zip(cells, curves, strict=True)
    ]
    return [value for value in found if value is not None]


def _level_of_all(values: Sequence[float], metric: str, num_runs: int) -> MetricMean | None:
    """Only where every run is among them."""
    return _level(values, metric) if len(values) == num_runs else None


def _level(values: Sequence[float], metric: str) -> MetricMean:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return MetricMean(mean, None, None, len(values))
    half = MeanError((of_seeds(values),)).half_width()
    lowest, highest = _POSSIBLE.get(metric, (-math.inf, math.inf))
    return MetricMean(mean, max(lowest, mean - half), min(highest, mean + half), len(values))
