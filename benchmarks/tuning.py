"""How far the rates that a search finds are from the best ones, by simulation: loss in samples to the target.

    python benchmarks/tuning.py [--trials 4000] [--json benchmarks/records/tuning.json]

A training at a rate r needs exp(c(r) + luck) samples, where c is lowest at the best rate, which lies anywhere in the
three middle octaves of the grid, and luck is normal, of its own for every training: evaluations that flicker, and the
seed. Loss is what the chosen rate needs beyond the best one on average, without luck. Shapes:

    even         twice as many samples two and a half octaves away, on both sides
    lopsided     towards high rates twice as steep, and divergence from three octaves above the best on
    flat         four octaves to twice as many: the rate hardly matters, and is hard to find

The searches: ``one seed`` is that of tables with one seed (the middle three, then outwards); ``seven once`` takes the
best of all rates; ``halves`` is a race (seven once; the best four twice more; the best two twice more); ``parabola`` is
what `bwbench tune` does.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bwbench.running.tuning.trainings import Judgement, Training, budget_of, follow

GRID = tuple(0.05 * 2.0**power for power in range(-3, 4))
LIMIT = 120_000
LEAST_SAMPLES = 25_000


@dataclass(frozen=True)
class Shape:
    """How samples grow with the distance from the best rate: octaves to twice as many, below and above it."""

    below: float
    above: float
    diverges: float = math.inf

    def log_samples(self, octaves: float) -> float:
        """Beyond the least, in natural logs."""
        width = self.above if octaves > 0 else self.below
        return math.log(2) * (octaves / width) ** 2


SHAPES = {"even": Shape(2.5, 2.5), "lopsided": Shape(2.8, 1.4, 3.0), "flat": Shape(4.0, 4.0)}
SPREADS = (0.10, 0.15, 0.20, 0.30)


@dataclass
class Arm:
    """One arm, whose trainings come out as they would: the same one always the same."""

    shape: Shape
    best: float
    spread: float
    luck: random.Random

    def __post_init__(self) -> None:
        self.seen: dict[Training, Judgement] = {}

    def octaves(self, rate: float) -> float:
        return math.log2(rate / self.best)

    def train(self, training: Training) -> Judgement:
        if training not in self.seen:
            away, luck = self.octaves(training.rate), self.luck.gauss(0, self.spread)
            samples = LEAST_SAMPLES * math.exp(self.shape.log_samples(away) + luck)
            arrived = samples if samples <= LIMIT / 1.5 else None
            loss = 0.3 * math.exp(self.shape.log_samples(away) / 4 + luck / 4)
            self.seen[training] = Judgement(arrived, loss, diverged=away > self.shape.diverges)
        return self.seen[training]

    def loss(self, rate: float) -> float:
        return math.expm1(self.shape.log_samples(self.octaves(rate)))


def one_seed(arm: Arm) -> float:
    tried = list(GRID[2:5])
    while True:
        best = min(tried, key=lambda rate: arm.train(Training(rate)).cost)
        at = GRID.index(best)
        new = [GRID[i] for i in (at - 1, at + 1) if 0 <= i < len(GRID) and GRID[i] not in tried]
        if not new:
            return best
        tried += new


def seven_once(arm: Arm) -> float:
    return min(GRID, key=lambda rate: arm.train(Training(rate)).cost)


def halves(arm: Arm) -> float:
    left, seeds = list(GRID), 1
    for keep in (4, 2, 1):
        left.sort(key=lambda rate: statistics.fmean(_value(arm.train(Training(rate, 0, n))) for n in range(seeds)))
        left, seeds = left[:keep], seeds + 2
    return left[0]


def parabola(arm: Arm) -> float:
    found = follow(GRID, 1, budget_of(len(GRID)), LIMIT, arm.train).best
    return GRID[3] if found is None else found.rate


def _value(judged: Judgement) -> float:
    return 99.0 if judged.diverged else math.log(judged.samples or LIMIT)


SEARCHES: dict[str, Callable[[Arm], float]] = {
    "one seed": one_seed,
    "seven once": seven_once,
    "halves": halves,
    "parabola": parabola,
}


def simulate(shape: Shape, spread: float, search: Callable[[Arm], float], trials: int) -> dict[str, float]:
    losses, trained = [], []
    for seed in range(trials):
        where = random.Random(seed)
        arm = Arm(shape, GRID[3] * 2 ** where.uniform(-1.5, 1.5), spread, random.Random(seed + 1_000_000))
        losses.append(100 * arm.loss(search(arm)))
        trained.append(len(arm.seen))
    losses.sort()
    return {
        "mean_loss_percent": statistics.fmean(losses),
        "standard_error": statistics.stdev(losses) / math.sqrt(trials),
        "p95_loss_percent": losses[int(0.95 * trials)],
        "trainings": statistics.fmean(trained),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000, help="arms simulated of each kind")
    parser.add_argument("--json", type=Path, help="file for the record")
    options = parser.parse_args()
    record = []
    print(f"loss from the best rate in % of samples, mean of {options.trials} arms (95 % of them below)")
    print(f"{'shape':10}{'spread':>8}  " + "".join(f"{name:>22}" for name in SEARCHES))
    for name, shape in SHAPES.items():
        for spread in SPREADS:
            row = {search: simulate(shape, spread, by, options.trials) for search, by in SEARCHES.items()}
            cells = (f"{one['mean_loss_percent']:.1f} ({one['p95_loss_percent']:.0f})" for one in row.values())
            print(f"{name:10}{100 * spread:>7.0f}%  " + "".join(f"{cell:>22}" for cell in cells))
            record.append({"shape": name, "spread": spread, "searches": row})
    trained = {name: statistics.fmean(row["searches"][name]["trainings"] for row in record) for name in SEARCHES}
    print(f"{'trainings':18}  " + "".join(f"{trained[name]:>22.1f}" for name in SEARCHES))
    if options.json:
        content = {"trials": options.trials, "python": sys.version.split()[0], "rows": record}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
