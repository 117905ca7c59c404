"""How often the 95 % intervals hold the truth: made-up trials whose true times are known, seen through the evaluations.

A seed makes all arms faster or slower alike (``seed``); besides, every trial has noise of its own (``own``); both are
standard deviations of log time. What is recorded of a trial is the first evaluation after its true arrival. ``grid`` is
the distance of evaluations as a share of the samples that the reference needs; the other arm needs more or fewer of
them. The truth lies anywhere between two evaluations, since nobody chooses a target by the grid. Three questions are
asked of bwbench.results.analysis, by the code that `bwbench compare` runs: the time of one arm, the ratio of two arms
paired by seed, and the bandwidth at which that ratio is 1.

Rows marked ``within`` have what docs/statistics.md asks of an experiment: seeds that spread as widely as the grid.
There coverage must be 93 to 97 %. In the others all repeats may arrive at one evaluation; there it must be 93 % or
more. Exit status 1 where it is not.

Usage: python benchmarks/coverage.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bwbench.results.analysis.crossover import Measured, find_crossovers
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import Arrival, estimate, geometric_interval

BANDWIDTHS_BPS = (1e6, 3e6, 10e6, 30e6, 100e6)


@dataclass(frozen=True)
class Scenario:
    """Shares of a time: spread of seeds, of single trials, distance of evaluations; and what the other arm needs."""

    seed: float
    own: float
    grid: float
    needs: float

    @property
    def within(self) -> bool:
        """Whether repeats spread at least as widely as the grid, in both arms."""
        return math.hypot(self.seed, self.own) >= max(self.grid, self.grid / self.needs)


SCENARIOS = [
    Scenario(*numbers)
    for numbers in (
        # as measured on fashion-mnist and digits: seeds spread by 5 to 20 %, evaluations every 1 to 3 %
        (0.10, 0.05, 0.03, 1.0), (0.10, 0.05, 0.03, 2.0), (0.10, 0.02, 0.03, 1.3), (0.20, 0.10, 0.03, 1.0),
        (0.05, 0.05, 0.01, 0.7), (0.05, 0.02, 0.03, 1.0), (0.10, 0.005, 0.03, 1.0), (0.10, 0.005, 0.03, 2.0),
        (0.03, 0.03, 0.03, 1.0), (0.02, 0.02, 0.01, 3.0), (0.15, 0.10, 0.10, 1.0), (0.20, 0.05, 0.10, 2.0),
        # repeats closer together than the evaluations
        (0.02, 0.005, 0.03, 1.0), (0.005, 0.005, 0.03, 2.0), (0.02, 0.02, 0.10, 1.5), (0.0, 0.002, 0.05, 1.0),
    )
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="400 trials a row instead of 10000")
    options = parser.parse_args()
    trials = 400 if options.quick else 10_000
    rows = []
    print("what        n  seed    own     grid    needs  coverage  plain t  half-width")
    for number, scenario in enumerate(SCENARIOS):
        for n in (3, 5):
            for row in measure(scenario, n, trials, random.Random(f"{number}/{n}")):
                rows.append(row)
                print(line(row), flush=True)
    bad = [row for row in rows if not row["ok"]]
    within = [row["coverage"] for row in rows if row["within"]]
    print(f"within: {100 * min(within):.1f} to {100 * max(within):.1f} %; {len(bad)} of {len(rows)} rows are off")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"trials": trials, "rows": rows}, indent=1) + "\n")
    return 1 if bad else 0


def line(row: dict[str, Any]) -> str:
    plain = row["coverage_plain_t"]
    shares = "  ".join(f"{100 * row[key]:4.1f} %" for key in ("seed", "own", "grid"))
    counted = f"{100 * row['coverage']:6.1f} %  {'-' if plain is None else f'{100 * plain:.1f} %':>7s}"
    words = (
        f"{row['what']:10s} {row['n']:2d}  {shares}  {row['needs']:5.2f}  {counted}  {100 * row['half_width']:8.1f} %"
    )
    return words + ("" if row["within"] else "  (spread below the grid)") + ("" if row["ok"] else "  <-- wrong")


def measure(scenario: Scenario, n: int, trials: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Coverage of the three kinds of interval, and of Student's t that knows nothing of the grid."""
    hits: dict[str, int] = dict.fromkeys(("time", "ratio", "crossover"), 0)
    plain: dict[str, int] = dict.fromkeys(hits, 0)
    widths: dict[str, list[float]] = {what: [] for what in hits}
    crossed = max(40, trials // 20)  # twenty times the work of a ratio
    for trial in range(trials):
        reference_true, arm_true = 1 / scenario.grid, scenario.needs / scenario.grid  # in intervals of the grid
        phases = [math.exp(rng.uniform(-0.5, 0.5) * scenario.grid / min(1.0, scenario.needs)) for _ in range(2)]
        reference_true, arm_true = reference_true * phases[0], arm_true * phases[1]
        reference, arm = repeats(scenario, n, (reference_true, arm_true), (1.0, 1.0), rng)
        found, ratio = estimate(list(reference.values())), ratio_of(reference, arm)
        assert ratio is not None
        for what, truth, low, high, observed in (
            ("time", reference_true, found.low, found.high, [one.or_infinity for one in reference.values()]),
            ("ratio", reference_true / arm_true, ratio.low, ratio.high,
             [reference[seed].or_infinity / arm[seed].or_infinity for seed in reference]),
        ):  # fmt: skip
            assert low is not None and high is not None
            hits[what] += low <= truth <= high
            widths[what].append(math.log(high / low) / 2)
            _, plain_low, plain_high = geometric_interval(observed)
            assert plain_low is not None and plain_high is not None
            plain[what] += plain_low <= truth <= plain_high
        if trial < crossed:
            inside, width = _crossover(scenario, n, (reference_true, arm_true), rng)
            hits["crossover"] += inside
            widths["crossover"].append(width)
    for what in hits:
        count = crossed if what == "crossover" else trials
        coverage = hits[what] / count
        slack = 3 * math.sqrt(0.95 * 0.05 / count)  # of the simulation itself
        low, high = 0.93 - slack, (0.97 if scenario.within else 1.0) + slack
        yield {
            "what": what, "n": n, **asdict(scenario), "within": scenario.within, "trials": count, "coverage": coverage,
            "coverage_plain_t": None if what == "crossover" else plain[what] / count,
            "half_width": sorted(widths[what])[count // 2], "ok": low <= coverage <= high,
        }  # fmt: skip


def repeats(
    scenario: Scenario, n: int, true: tuple[float, float], slower: tuple[float, float], rng: random.Random
) -> tuple[dict[int, Arrival], dict[int, Arrival]]:
    """What is recorded of ``n`` seeds of both arms. ``true``, ``slower``: intervals of the grid; seconds of one."""
    arms: tuple[dict[int, Arrival], dict[int, Arrival]] = ({}, {})
    for seed in range(n):
        common = rng.gauss(0.0, scenario.seed)
        for arm, intervals, seconds in zip(arms, true, slower, strict=True):
            arrived = math.ceil(intervals * math.exp(common + rng.gauss(0.0, scenario.own)))
            arm[seed] = Arrival(arrived * seconds, None, seconds)
    return arms


def _crossover(scenario: Scenario, n: int, true: tuple[float, float], rng: random.Random) -> tuple[bool, float]:
    """Whether the interval of the crossover holds the truth, and half its width in log bandwidth."""
    truth = math.exp(rng.uniform(math.log(3e6), math.log(30e6)))
    measured = []
    for bandwidth in BANDWIDTHS_BPS:
        slower = true[1] / true[0] * (truth / bandwidth) ** 0.7  # the ratio of times is 1 at ``truth``
        reference, arm = repeats(scenario, n, true, (slower, 1.0), rng)
        measured.append(Measured(bandwidth, reference, arm))
    low, high = 0.0, math.inf
    found = find_crossovers(measured).found
    if found:
        low, high = found[0].low_bps or 0.0, found[-1].high_bps or math.inf
    return low <= truth <= high, math.log(min(high, 1e9) / max(low, 1e4)) / 2


if __name__ == "__main__":
    sys.exit(main())
