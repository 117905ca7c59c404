"""How often the 95 % intervals hold the truth, of the worst arm: made-up experiments with what was measured put in.

Twelve arms, seeds that spread by 5 to 30 %, accuracies that flicker by 1 point (arrivals by the isotonic fit of such
curves), three timing runs a cell that differ by 3 %, with and without 20 % of the repeats beyond a limit. Asked are
bwbench.results.analysis' time of an arm, ratio of two arms, crossover and best set: what `bwbench compare` prints.
Beside them other procedures on the same repeats (coverage_parts/procedures.py): a mean over arms hides the noisy one,
so that each is judged by the arm that it covers worst. docs/statistics.md says what follows.

Exit status 1 where the procedure in use covers less than 93.5 % (less three errors of the simulation) of any kind of
value, or the best set misses the fastest arm more than once in 20.

Usage: python benchmarks/coverage.py [--published results] [--json FILE] [--workers 4] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from coverage_parts.made_up import Arm, Setting, arm_of, fit_errors, recorded
from coverage_parts.procedures import PROCEDURES, AllArms, Interval, logs_of, ratio_intervals, time_intervals
from coverage_parts.published import summary, widths

from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.crossover import Measured, find_crossovers
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import estimate
from bwbench.results.analysis.student import student_t

NUMBERS = (3, 5, 8, 12)
BANDWIDTHS_BPS = (1e6, 3e6, 10e6, 30e6, 100e6)
ENOUGH, ENOUGH_OF_SETS = 0.935, 0.95
EVEN = Setting("all 8 %", (0.08,) * 12)
NOISY = Setting("ten 8 %, two 30 %", (0.08,) * 10 + (0.30,) * 2)
MIXED = Setting("5 to 30 %", tuple(0.05 + 0.25 * number / 11 for number in range(12)))
ONE_RUN = replace(NOISY, name="ten 8 %, two 30 %, one timing run", timing_runs=1)
WHOLE = {setting.name: setting for setting in (EVEN, NOISY, MIXED, ONE_RUN)}
CENSORED = replace(NOISY, name="ten 8 %, two 30 %, 20 % censored", censored=0.2)
PARTS = (*WHOLE, "censored", "kin", "crossovers", "best sets")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="folder of results whose intervals are compared with pairs'")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the trials")
    parser.add_argument("--workers", type=int, default=1, help="processes; the rows are the same")
    options = parser.parse_args()
    trials = 75 if options.quick else 1500
    errors = fit_errors(random.Random("flicker"))
    print(f"fit of curves that flicker by 1 point: off by {100 * statistics.fmean(errors):+.1f} %, "
          f"standard deviation {100 * statistics.stdev(errors):.1f} %")  # fmt: skip
    rows: list[dict[str, Any]] = []
    print("what       n  arms                              by         worst arm  mean  half-width  no interval")
    for row in all_rows(trials, errors, options.workers):
        rows.append(row)
        print(line(row), flush=True)
    document: dict[str, Any] = {"trials": trials, "flicker_fit_sd": statistics.stdev(errors), "rows": rows}
    if options.published:
        document["published"] = list(summary(list(widths(options.published))))
        print("published ratios         ratios  half-width now  before  narrower  timing dominates")
        for part in document["published"]:
            print(f"{part['what']:24s} {part['ratios']:6d}  {100 * part['now_median']:12.1f} % "
                  f"{100 * part['before_median']:6.1f} %  {100 * part['narrower_share']:6.0f} %  "
                  f"{100 * part['timing_dominates_share']:14.0f} %")  # fmt: skip
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    bad = [row for row in rows if not row["ok"]]
    print(f"{len(bad)} of {len(rows)} rows cover too little" if bad else "all that is in use covers enough")
    return 1 if bad else 0


def line(row: dict[str, Any]) -> str:
    """One row for people."""
    width = "-" if row["half_width"] is None else f"{100 * row['half_width']:.1f} %"
    size = f"  {row['size']:.1f} of 12 in the set" if "size" in row else ""
    return (
        f"{row['what']:9s} {row['n']:2d}  {row['arms']:32s}  {row['by']:9s} {100 * row['worst']:8.1f} % "
        f"{100 * row['mean']:5.1f}  {width:>10s}  {100 * row['no_interval']:10.1f} %{size}"
        f"{'' if row['ok'] else '  <-- too little'}"
    )


def all_rows(trials: int, errors: Sequence[float], workers: int) -> Iterator[dict[str, Any]]:
    """Every part draws from its own random numbers, so that any number of workers gives the same rows."""
    with ProcessPoolExecutor(workers) as pool:
        parts = [pool.submit(rows_of, n, part, trials, errors) for n in NUMBERS for part in PARTS]
        for part in parts:
            yield from part.result()


def rows_of(n: int, part: str, trials: int, errors: Sequence[float]) -> list[dict[str, Any]]:
    """The rows of one of ``PARTS`` with ``n`` repeats an arm."""
    rng = random.Random(f"{n}/{part}")
    if part in WHOLE:
        return list(of_times_and_ratios(n, WHOLE[part], trials, errors, rng))
    if part == "censored":
        return list(of_censored(n, CENSORED, trials, errors, rng))
    if part == "kin":
        return [of_kin(n, trials, errors, rng)]
    if part == "crossovers":
        pairs = ((0.08, 0.08), (0.08, 0.30))
        return [of_crossovers(n, spreads, trials // 2, errors, rng) for spreads in pairs]
    return [row for best in ("quiet", "noisy") for row in of_best_sets(n, best, trials // 2, errors, rng)]


class Tally:
    """Hits, misses and half-widths by procedure and arm."""

    def __init__(self) -> None:
        self.hits: dict[tuple[str, str], list[bool]] = defaultdict(list)
        self.halves: dict[str, list[float]] = defaultdict(list)

    def add(self, by: str, arm: str, interval: Interval, truth: float = 0.0) -> None:
        """One interval of a logarithm whose truth is known."""
        self.hits[by, arm].append(interval[0] <= truth <= interval[1])
        self.halves[by].append((interval[1] - interval[0]) / 2)

    def row(self, what: str, n: int, arms: str, by: str, no_interval: float = 0.0) -> dict[str, Any]:
        """Coverage of the worst arm and the mean over arms. Procedures that are not in use may cover what they like."""
        shares = {arm: sum(hits) / len(hits) for (name, arm), hits in self.hits.items() if name == by}
        counts = min(len(hits) for (name, _), hits in self.hits.items() if name == by)
        slack = 3 * math.sqrt(0.95 * 0.05 / counts)
        worst = min(shares.values())
        return {
            "what": what, "n": n, "arms": arms, "by": by, "worst": worst, "mean": statistics.fmean(shares.values()),
            "by_arm": shares, "half_width": statistics.median(self.halves[by]), "no_interval": no_interval,
            "trials": counts, "ok": by not in ("welch", "fit") or worst >= ENOUGH - slack,
        }  # fmt: skip


def of_times_and_ratios(
    n: int, setting: Setting, trials: int, errors: Sequence[float], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Of the first two arms and the last two: where spreads differ, the quiet and the noisy ones."""
    times, ratios = Tally(), Tally()
    named = {"quiet": (0, 1), "quiet, noisy": (0, 11), "noisy": (10, 11)}
    for _ in range(trials):
        arms = [arm_of(n, 1.0, spread, setting, errors, rng) for spread in setting.spreads]
        everything = AllArms.of(arms)
        for name, number in (("quiet", 0), ("noisy", 11)):
            for by, interval in time_intervals(arms[number], everything).items():
                times.add(by, name, interval)
        for name, (one, other) in named.items():
            for by, interval in ratio_intervals(arms[one], arms[other], everything).items():
                ratios.add(by, name, interval)
    yield from (times.row("time", n, setting.name, by) for by in PROCEDURES if by != "paired")
    yield from (ratios.row("ratio", n, setting.name, by) for by in PROCEDURES)


def of_censored(
    n: int, setting: Setting, trials: int, errors: Sequence[float], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """The censored fit; where fewer than half of an arm arrive there is no interval, and none is counted."""
    times, ratios, bounds = Tally(), Tally(), [0, 0]
    for _ in range(trials):
        arms = {
            name: arm_of(n, 1.0, spread, setting, errors, rng) for name, spread in (("quiet", 0.08), ("noisy", 0.3))
        }
        again = arm_of(n, 1.0, 0.08, setting, errors, rng)
        for name, arm in arms.items():
            found, ratio = estimate(list(arm.values())), ratio_of(again, arm)
            if found.low is not None and found.high is not None:
                times.add("fit", name, (math.log(found.low), math.log(found.high)))
            else:
                bounds[0] += 1
            if ratio is not None and ratio.low is not None and ratio.high is not None:
                ratios.add("fit", name, (math.log(ratio.low), math.log(ratio.high)))
            else:
                bounds[1] += 1
    yield times.row("time", n, setting.name, "fit", bounds[0] / trials / 2)
    yield ratios.row("ratio", n, setting.name, "fit", bounds[1] / trials / 2)


def of_kin(n: int, trials: int, errors: Sequence[float], rng: random.Random) -> dict[str, Any]:
    """Arms that learn alike but for rounding, which moves an arrival by 2 %: paired by seed."""
    tally, setting = Tally(), Setting("kin", (0.2,) * 2)
    for _ in range(trials):
        common = [rng.gauss(0.0, 0.2) + rng.choice(errors) for _ in range(n)]
        arms: list[Arm] = []
        for _ in range(2):
            arm = recorded([one + rng.gauss(0.0, 0.02) for one in common], 1.0, setting, math.inf, rng)
            arms.append({seed: replace(one, kin="mean") for seed, one in arm.items()})
        ratio = ratio_of(*arms)
        assert ratio is not None and ratio.paired and ratio.low is not None and ratio.high is not None
        tally.add("welch", "kin", (math.log(ratio.low), math.log(ratio.high)))
    return tally.row("ratio", n, "kin, 20 %, paired by seed", "welch")


def of_crossovers(
    n: int, spreads: tuple[float, float], trials: int, errors: Sequence[float], rng: random.Random
) -> dict[str, Any]:
    """All seeds take as long at every bandwidth but for the link: composed cells share their convergence runs."""
    tally, setting = Tally(), Setting("crossover", spreads)
    for _ in range(trials):
        truth = math.exp(rng.uniform(math.log(3e6), math.log(30e6)))
        sides = [[rng.gauss(0.0, spread) + rng.choice(errors) for _ in range(n)] for spread in spreads]
        measured = []
        for bandwidth in BANDWIDTHS_BPS:
            slower = (truth / bandwidth) ** 0.7  # the ratio of times is 1 at ``truth``
            reference, arm = (
                recorded(side, true_s, setting, math.inf, rng)
                for side, true_s in zip(sides, (slower, 1.0), strict=True)
            )
            measured.append(Measured(bandwidth, reference, arm))
        found = find_crossovers(measured).found
        low = (found[0].low_bps if found else None) or BANDWIDTHS_BPS[0] / 1e3
        high = (found[-1].high_bps if found else None) or BANDWIDTHS_BPS[-1] * 1e3
        tally.add("welch", "crossover", (math.log(low / truth), math.log(high / truth)))
    return tally.row("crossover", n, f"{100 * spreads[0]:.0f} % and {100 * spreads[1]:.0f} %", "welch")


def of_best_sets(
    n: int, best: str, trials: int, errors: Sequence[float], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Whether the truly fastest arm is in the set; others take 5 % to twice as long. ``pooled``: one variance."""
    spreads = {f"arm{number}": 0.08 for number in range(12)} | {"arm1": 0.30}
    spreads["arm0"] = 0.30 if best == "noisy" else 0.08
    true_s = {name: 1.0 if name == "arm0" else 1.05 + 0.95 * max(0, number - 3) / 8
              for number, name in enumerate(spreads)}  # fmt: skip
    setting = Setting("best set", tuple(spreads.values()))
    hits: dict[str, list[bool]] = {"welch": [], "pooled": []}
    sizes: dict[str, list[int]] = {"welch": [], "pooled": []}
    for _ in range(trials):
        arms = {name: arm_of(n, true_s[name], spreads[name], setting, errors, rng) for name in spreads}
        for by, members in (("welch", best_set(arms).members), ("pooled", _pooled_set(arms))):
            hits[by].append("arm0" in members)
            sizes[by].append(len(members))
    for by in hits:
        share, slack = statistics.fmean(hits[by]), 3 * math.sqrt(0.95 * 0.05 / trials)
        yield {
            "what": "best set", "n": n, "arms": f"the fastest of 12 is {best}", "by": by, "worst": share, "mean": share,
            "half_width": None, "no_interval": 0.0, "trials": trials, "size": statistics.fmean(sizes[by]),
            "ok": by != "welch" or share >= ENOUGH_OF_SETS - slack,
        }  # fmt: skip


def _pooled_set(arms: dict[str, Arm]) -> tuple[str, ...]:
    """The same test with one variance for all arms and no timing runs: multiple comparisons as they are usual."""
    logs = {name: logs_of(arm) for name, arm in arms.items()}
    means = {name: statistics.fmean(values) for name, values in logs.items()}
    count, n = len(arms), len(next(iter(logs.values())))
    variance, freedom = statistics.fmean(statistics.variance(values) for values in logs.values()), count * (n - 1.0)
    half = student_t(freedom, 1 - 2 * 0.05 / (count - 1)) * math.sqrt(2 * variance / n)
    shortest = min(means.values())
    return tuple(name for name, mean in means.items() if mean - shortest <= half)


if __name__ == "__main__":
    sys.exit(main())
