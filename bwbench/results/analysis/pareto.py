"""Which arms are worth a look: those that no other arm beats in both time to the target and final metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bwbench.results.analysis.arrival import by_seed, number
from bwbench.results.analysis.statistics import estimate


@dataclass(frozen=True)
class Standing:
    """One arm among the others of its group.

    Attributes:
        time_s: geometric mean of the times to target; None where the median repeat did not reach it.
        metric, metric_value: name, and mean over the repeats at the last evaluation on the validation split.
        optimal: no other arm is at least as good in both and better in one.
    """

    algorithm: str
    time_s: float | None
    metric: str
    metric_value: float
    n: int
    num_censored: int
    composed: bool
    optimal: bool


def standings(rows_by_arm: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Standing]:
    """All arms with a time and a final metric, fastest first.

    Args:
        rows_by_arm: rows of ``cells.cell_row``, all equal but for arm and repeat.
    """
    points: list[tuple[float, float, Standing]] = []
    for arm, rows in rows_by_arm.items():
        arrivals = list(by_seed(rows).values())
        finals = [value for row in rows if (value := number(row.get("final_metric"))) is not None]
        metric = str(next((row["target_metric"] for row in rows if row.get("target_metric")), ""))
        if not arrivals or not finals:
            continue
        centre, mean = estimate(arrivals), statistics.fmean(finals)
        time_s = None if math.isinf(centre.value) else centre.value
        composed = any(row.get("composed") for row in rows)
        standing = Standing(arm, time_s, metric, mean, centre.num, centre.num_censored, composed, False)
        points.append((centre.value, -mean if metric == "loss" else mean, standing))
    points.sort(key=lambda point: (point[0], -point[1], point[2].algorithm))
    optimal = non_dominated([(time_s, -good) for time_s, good, _ in points])
    return [replace(standing, optimal=best) for (_, _, standing), best in zip(points, optimal, strict=True)]


def non_dominated(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether no other point is at least as small in both and smaller in one."""
    return [
        not any(x <= mine[0] and y <= mine[1] and (x < mine[0] or y < mine[1]) for x, y in points) for mine in points
    ]
