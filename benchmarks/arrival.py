"""How far off each rule is that says when a noisy validation curve reaches its target, and what records say of it.

Made-up curves whose true arrival is known: over u, the log of samples over those of the arrival, the metric is
target + slope (u - 0.2 u^2), plus flicker that evaluations do not share. Slope and flicker of ``ring`` and ``top-k``
are those of results/published/precision (flicker by differences of neighbours, slope by least squares from 30,000
samples on).
Other rows change one thing: coarse evaluations, a decline after the peak, a flat start, a loss. Rules:

    first     the first evaluation that meets the target
    three     the first evaluation of the first three neighbours whose mean meets it
    moving    the last evaluation of the first five neighbours whose mean meets it
    fit       where the isotonic fit crosses: bwbench.results.analysis.arrival, as `bwbench compare` uses it

``coverage``: 95 % intervals (Welch on log samples) of the ratio of the two arms, seeds that spread by 8 %: how many
hold the true ratio. ``tested``: of how many arrivals by the fit the test split was looked at on both sides, and how
often a run looks at it (``evaluate: {test: arrivals}``). ``stopped``: the fit at lower targets, of curves that end at
their first crossing, as most that are published do. ``records``: first crossing over fit, of the published curves that
go on behind their target, at targets that most of them reach: how much a first crossing flatters each arm. It is below
1.

Usage: python benchmarks/arrival.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bwbench.experiment.config.cell_config import TargetConfig
from bwbench.records import iter_cells, readable
from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import AT_OR_AFTER, FIT, Budget, arrival_on, crossing, meets_target
from bwbench.results.analysis.cell_arrival import kept_curve
from bwbench.results.analysis.statistics import geometric_interval, student_t
from bwbench.results.analysis.targets import Ended, arrival_at
from bwbench.training.loop.arrival_watch import ArrivalWatch

RECORDS = Path(__file__).parents[1] / "results" / "published" / "precision"
RECORDED_TARGETS = (0.85, 0.86, 0.87)
TARGET = 0.87
LOWER_TARGETS = (0.82, 0.84, 0.86)
SEEDS = 0.08  # standard deviation of log samples to target between seeds
CURVATURE = 0.2
RULES = ("first", "three", "moving", "fit")


@dataclass(frozen=True)
class Shape:
    """A made-up arm: slope of the metric over log samples at the arrival, its flicker, and what else it does.

    Attributes:
        arrival, every, budget: samples: the true arrival, between evaluations, and to the end.
        decline: of the metric for each log sample behind the peak, which is at 1.6 times the arrival.
        flat: up to this share of the arrival the metric does not change.
    """

    name: str
    slope: float
    flicker: float
    arrival: float
    every: float = 2000.0
    budget: float = 120_000.0
    metric: str = "accuracy"
    decline: float = 0.0
    flat: float = 0.0

    def value(self, samples: float) -> float:
        """Of the metric without flicker; a loss falls as an accuracy rises."""
        u = math.log(max(samples, self.flat * self.arrival) / self.arrival)
        peak = math.log(1.6)
        behind = max(0.0, u - peak) if self.decline else 0.0
        u -= behind
        rise = self.slope * (u - CURVATURE * u * u) - self.decline * behind
        return TARGET - rise if self.metric == "loss" else TARGET + rise

    def curve(self, generator: random.Random) -> list[CurvePoint]:
        """One trial: the grid of evaluations lies anywhere beside the arrival."""
        at = self.every * generator.uniform(0.5, 1.5)
        points = []
        while at <= self.budget:
            value = self.value(at) + generator.gauss(0.0, self.flicker)
            points.append(CurvePoint(step=len(points) + 1, metrics={self.metric: value}, samples=round(at), clock_s=at))
            at += self.every
        return points


RING = Shape("ring", 0.030, 0.0085, 38_000.0)
TOP_K = Shape("top-k", 0.031, 0.0105, 58_000.0, budget=180_000.0)
SHAPES = (
    RING,
    TOP_K,
    Shape("ring, every 5000", 0.030, 0.0085, 38_000.0, every=5000.0),
    Shape("ring, every 10000", 0.030, 0.0085, 38_000.0, every=10_000.0),
    Shape("ring, every 500", 0.030, 0.0085, 38_000.0, every=500.0),
    Shape("ring, declines", 0.030, 0.0085, 38_000.0, decline=0.03),
    Shape("top-k, declines", 0.031, 0.0105, 58_000.0, budget=180_000.0, decline=0.03),
    Shape("ring, no noise", 0.033, 0.0, 38_000.0),
    Shape("steep, flat start", 0.30, 0.0084, 38_000.0, flat=0.7),
    Shape("loss, like ring", 0.030, 0.0085, 38_000.0, metric="loss"),
    Shape("loss, steep", 0.30, 0.01, 38_000.0, metric="loss"),
    Shape("loss, declines", 0.10, 0.02, 38_000.0, metric="loss", decline=0.10),
)


def by_rule(curve: Sequence[CurvePoint], shape: Shape) -> dict[str, float]:
    """Samples to the target by each rule that finds an arrival."""
    values = [point.metrics[shape.metric] or 0.0 for point in curve]
    found: dict[str, float | None] = {
        "first": _mean_of(curve, values, 1, shape.metric, lambda begin: begin),
        "three": _mean_of(curve, values, 3, shape.metric, lambda begin: begin),
        "moving": _mean_of(curve, values, 5, shape.metric, lambda begin: begin + 4),
    }
    fitted = arrival_on(curve, shape.metric, TARGET, Budget(samples=shape.budget), went_on=True)
    found["fit"] = fitted.samples if fitted.kind == FIT else None
    return {rule: samples for rule, samples in found.items() if samples is not None}


def _mean_of(
    curve: Sequence[CurvePoint], values: Sequence[float], num: int, metric: str, place: Callable[[int], int]
) -> float | None:
    for begin in range(len(values) - num + 1):
        if meets_target(metric, statistics.fmean(values[begin : begin + num]), TARGET):
            return float(curve[place(begin)].samples)
    return None


def simulated(shape: Shape, trials: int) -> dict[str, list[float]]:
    """Logs of each rule's arrival over the true one."""
    generator = random.Random(shape.name)
    errors: dict[str, list[float]] = {rule: [] for rule in RULES}
    for _ in range(trials):
        for rule, samples in by_rule(shape.curve(generator), shape).items():
            errors[rule].append(math.log(samples / shape.arrival))
    return errors


def accuracy_rows(trials: int) -> Iterator[dict[str, Any]]:
    """Bias and standard deviation of each rule, on each shape, as shares."""
    for shape in SHAPES:
        errors = simulated(shape, trials)
        row: dict[str, Any] = {**asdict(shape), "trials": trials}
        for rule, of_rule in errors.items():
            row[f"{rule}_bias"] = math.expm1(statistics.fmean(of_rule))
            row[f"{rule}_sd"] = statistics.stdev(of_rule)
            row[f"{rule}_arrived"] = len(of_rule) / trials
        yield row


def tested_rows(trials: int) -> Iterator[dict[str, Any]]:
    """Share of arrivals by the fit between two looks at the test split; looks and evaluations of a run, in mean."""
    for shape in SHAPES:
        generator, target = random.Random(f"{shape.name}, tested"), TargetConfig(metric=shape.metric, value=TARGET)
        known = arrived = looks = evaluations = 0
        for _ in range(trials):
            watch, curve = ArrivalWatch(), []
            for point in shape.curve(generator):
                looked = watch.is_due((target,), point.metrics)
                curve.append(point.model_copy(update={"test": {shape.metric: 0.5 if looked else None}}))
                looks, evaluations = looks + looked, evaluations + 1
            found = arrival_at(curve, (shape.metric, TARGET), Ended(Budget(samples=shape.budget), went_on=True))
            arrived += found.kind == FIT
            known += found.kind == FIT and found.test_metric is not None
        per_run = {"looks": looks / trials, "evaluations": evaluations / trials}
        yield {"name": shape.name, "trials": trials, "known": known / arrived, **per_run}


def coverage_rows(trials: int) -> Iterator[dict[str, Any]]:
    """How often Welch's interval of the ratio of both arms holds the true ratio."""
    pools = [simulated(shape, 4 * trials) for shape in (RING, TOP_K)]
    for num in (5, 12, 24):
        row: dict[str, Any] = {"n": num, "trials": trials}
        for rule in RULES:
            generator, held = random.Random(f"{rule}/{num}"), 0
            for _ in range(trials):
                arms = [[generator.choice(pool[rule]) + generator.gauss(0.0, SEEDS) for _ in range(num)]
                        for pool in pools]  # fmt: skip
                held += welch_holds_zero(*arms)
            row[rule] = held / trials
        yield row


def stopped_rows(trials: int) -> Iterator[dict[str, Any]]:
    """Bias and standard deviation of the fit at lower targets, of curves that end at their first crossing of TARGET."""
    for shape in (RING, TOP_K):
        generator = random.Random(f"{shape.name}, stopped")
        for lower in LOWER_TARGETS:
            # value = TARGET + slope (u - CURVATURE u^2), solved for u < 0
            u = (1 - math.sqrt(1 - 4 * CURVATURE * (lower - TARGET) / shape.slope)) / (2 * CURVATURE)
            errors = []
            for _ in range(trials):
                curve = shape.curve(generator)
                end = next(
                    n for n, p in enumerate(curve) if meets_target(shape.metric, p.metrics[shape.metric], TARGET)
                )
                found = arrival_on(curve[: end + 1], shape.metric, lower, Budget(), went_on=False)
                if found.kind == FIT and found.samples is not None:
                    errors.append(math.log(found.samples / shape.arrival) - u)
            told = {"told": len(errors) / trials, "bias": math.expm1(statistics.fmean(errors))}
            yield {"name": shape.name, "target": lower, **told, "sd": statistics.stdev(errors)}


def welch_holds_zero(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the 95 % interval of the difference of two means holds 0."""
    parts = [statistics.variance(values) / len(values) for values in (one, other)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (one, other)))  # noqa: B905
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(sum(parts))
    return abs(statistics.fmean(one) - statistics.fmean(other)) <= half


def record_rows() -> Iterator[dict[str, Any]]:
    """First crossing over fit, by arm: geometric mean over targets and seeds, the interval over seeds."""
    cells, _ = readable(iter_cells(RECORDS))
    by_arm: dict[str, dict[int, list[float]]] = {}
    for folder in cells:
        curve = kept_curve(folder)
        for target in RECORDED_TARGETS:
            fitted = crossing(curve, "accuracy", target)
            first = next((p.samples for p in curve if meets_target("accuracy", p.metrics["accuracy"], target)), None)
            if fitted and first and sum(1 for point in curve if point.samples >= fitted) >= AT_OR_AFTER:
                of_arm = by_arm.setdefault(folder.cell.arm, {})
                of_arm.setdefault(folder.cell.repeat, []).append(math.log(first / fitted))
    for arm, seeds in sorted(by_arm.items()):
        means = [statistics.fmean(values) for values in seeds.values()]
        row = {"arm": arm, "seeds": len(means), "curves": sum(map(len, seeds.values()))}
        value, low, high = geometric_interval([math.exp(mean) for mean in means])
        yield {**row, "first_over_fit": value, "low": low, "high": high}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="100 trials a row instead of 2000")
    options = parser.parse_args()
    trials = 100 if options.quick else 2000
    print(f"{'bias / sd in %':<22}" + "".join(f"{rule:>16}" for rule in RULES) + "   arrived by the fit")
    shapes = []
    for row in accuracy_rows(trials):
        shapes.append(row)
        cells = "".join(f"{100 * row[f'{rule}_bias']:+9.1f} / {100 * row[f'{rule}_sd']:4.1f}" for rule in RULES)
        print(f"{row['name']:<22}{cells}   {100 * row['fit_arrived']:.0f} %", flush=True)
    tested = list(tested_rows(trials))
    for row in tested:
        looks = f"{row['looks']:.1f} looks in {row['evaluations']:.0f} evaluations"
        print(f"{row['name']}: test split known at {100 * row['known']:.0f} % of arrivals, {looks}", flush=True)
    coverage = list(coverage_rows(trials))
    for row in coverage:
        print(f"coverage, n = {row['n']:<9}" + "".join(f"{100 * row[rule]:14.1f} %" for rule in RULES), flush=True)
    stopped = list(stopped_rows(trials))
    for row in stopped:
        numbers = f"{100 * row['bias']:+.1f} / {100 * row['sd']:.1f}, told in {100 * row['told']:.0f} %"
        print(f"{row['name']}, stopped at {TARGET}: fit at {row['target']}: {numbers}", flush=True)
    records = list(record_rows())
    for row in records:
        ends = "one seed" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
        print(f"{row['arm']:<42} first / fit {row['first_over_fit']:.3f} ({ends}), {row['seeds']} seeds")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        parts = {"shapes": shapes, "tested": tested, "coverage": coverage, "stopped": stopped, "records": records}
        options.json.write_text(json.dumps(parts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
