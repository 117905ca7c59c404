"""The targets of a cell, and when its curve reaches each of them: the one function behind status.json and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.plain_data import Json, JsonObject, list_at, mapping_at
from bwbench.base.units import DURATION
from bwbench.records.schema import CurvePoint, TargetArrival
from bwbench.results.analysis.arrival import (
    CENSORED,
    FIRST_CROSSING,
    FIT,
    UNKNOWN,
    Budget,
    arrival_on,
    first_crossing,
    meets_target,
    metric_at,
)


def target_of(config: JsonObject) -> tuple[str, float] | None:
    """Metric and value of a cell's target, ``("accuracy", 0.95)``; None where the cell has none.

    Of several targets it is the one that stands where only one is spoken of: the hardest of the first metric.
    """
    target = mapping_at(config, "target")
    return _read(target) if target else None


def targets_of(config: JsonObject) -> tuple[tuple[str, float], ...]:
    """Metric and value of each of a cell's targets, from easy to hard."""
    several = tuple(_read(item) for item in list_at(config, "targets") if isinstance(item, dict) and item)
    one = target_of(config)
    return several or (() if one is None else (one,))


def meets_all(config: JsonObject, metrics: Mapping[str, float | None]) -> bool | None:
    """Whether an evaluation meets all of a cell's targets; None where one of their metrics was not recorded."""
    targets = targets_of(config)
    if any(metrics.get(metric) is None for metric, _ in targets):
        return None
    return bool(targets) and all(meets_target(metric, metrics[metric], value) for metric, value in targets)


def budget_of(config: JsonObject) -> Budget:
    """What a cell may spend, as its configuration says under ``limit``."""
    limit = mapping_at(config, "limit")
    samples, time = limit.get("samples"), limit.get("time")
    return Budget(
        float(samples) if isinstance(samples, int) else None, DURATION.parse(time) if isinstance(time, str) else None
    )


@dataclass(frozen=True)
class Ended:
    """What is known behind the end of a curve.

    Attributes:
        budget: that the run might have spent.
        went_on: it ended at its budget. Else it ended at its targets or broke off, and nothing more is known.
    """

    budget: Budget
    went_on: bool


def arrivals_on(curve: Sequence[CurvePoint], config: JsonObject, *, went_on: bool) -> tuple[TargetArrival, ...]:
    """When a run reached each of its targets, from easy to hard, as status.json has it.

    Args:
        curve: its validation evaluations, in order.
        config: of the cell.
        went_on: as in ``Ended``.
    """
    ended = Ended(budget_of(config), went_on)
    return tuple(arrival_at(curve, target, ended) for target in targets_of(config))


def arrival_at(curve: Sequence[CurvePoint], target: tuple[str, float], ended: Ended) -> TargetArrival:
    """When a run reached one target: by the fit of its curve, or where that cannot say, by its first crossing.

    A run that ended at the very evaluation that met the target first says nothing of what would have come, so that its
    first crossing stands.
    """
    found = _reached(curve, target, ended)
    return found.model_copy(update={"test_metric": _test_at(curve, found)})


def _reached(curve: Sequence[CurvePoint], target: tuple[str, float], ended: Ended) -> TargetArrival:
    """Without what the test split says."""
    metric, value = target
    arrival = TargetArrival(metric=metric, value=value, kind=UNKNOWN)
    first = first_crossing(curve, metric, value)
    if first is not None:
        arrival = TargetArrival(
            metric=metric,
            value=value,
            kind=FIRST_CROSSING,
            time_s=first.clock_s,
            samples=first.samples,
            first_crossing_s=first.clock_s,
            first_crossing_samples=first.samples,
        )
        if not ended.went_on and first.samples == curve[-1].samples:
            return arrival
    found = arrival_on(curve, metric, value, ended.budget, went_on=ended.went_on)
    if found.kind == FIT:
        samples = None if found.samples is None else round(found.samples)
        return arrival.model_copy(update={"kind": FIT, "time_s": found.clock_s, "samples": samples})
    if found.kind == CENSORED:
        late = {"time_s": None, "samples": None, "censored_at_s": found.clock_s}
        return arrival.model_copy(update={"kind": CENSORED, **late})
    return arrival


def _test_at(curve: Sequence[CurvePoint], arrival: TargetArrival) -> float | None:
    """The metric on the test split at an arrival."""
    if arrival.samples is None:
        return None
    return metric_at(curve, lambda point: point.test.get(arrival.metric), arrival.samples, lambda point: point.samples)


def _read(target: Mapping[str, Json]) -> tuple[str, float]:
    short = next(iter(target.items()))  # the YAML's form {accuracy: 0.95}
    metric, value = (target["metric"], target["value"]) if "metric" in target else short
    return str(metric), float(value) if isinstance(value, (int, float)) else math.nan
