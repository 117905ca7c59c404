"""How many repeats, and when to stop: ways to decide, judged by how often the interval that is printed holds the truth.

Arms whose log times spread by 5 to 30 % are made up, composed (three timing runs that differ by 3 %, which all repeats
share) or whole, and the ratio of two of them is asked for to ± 15 % with 24 repeats of each at most.

    one by one    add a repeat to the arm with the larger variance until the interval is narrow enough
    two stages    the spread of a pilot says how many; the interval is computed anew from all repeats
    pilot's       the same, and the variance in the interval is the pilot's alone (Stein 1945): what bwbench does

Exit status 1 where the way that bwbench takes, with its pilot of 8, covers less than 93.5 % anywhere.

Usage: python benchmarks/repeats.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bwbench.experiment.config.experiment import UntilKnown
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival
from bwbench.running.sweep.needed_repeats import repeats_for

UNTIL, AT_MOST = 0.15, 24
SPREADS = ((0.05, 0.05), (0.1, 0.1), (0.15, 0.15), (0.2, 0.2), (0.3, 0.3), (0.05, 0.3), (0.1, 0.2))
TIMING_RUNS, BETWEEN = 3, 0.03
PILOTS = (3, 5, 8)
ASKED = 93.5  # % coverage


@dataclass(frozen=True)
class Trial:
    """Both arms as they would be with all repeats; truth: the ratio is 1."""

    reference: tuple[Arrival, ...]
    arm: tuple[Arrival, ...]


@dataclass
class Row:
    """One way of deciding under one condition; coverage, wide: in %, wide: intervals that are wider than asked."""

    way: str
    pilot: int
    spreads: tuple[float, float]
    composed: bool
    coverage: float
    repeats: float
    wide: float


def made_up(rng: random.Random, spreads: tuple[float, float], *, composed: bool) -> Trial:
    """Two arms that are equally fast in truth."""
    arms = []
    for spread in spreads:
        runs = [rng.gauss(0.0, BETWEEN) for _ in range(TIMING_RUNS)] if composed else [0.0, 0.0]
        variance = statistics.variance(runs) / len(runs)
        freedom = len(runs) - 1.0 if composed else math.inf
        shared = statistics.fmean(runs)
        arms.append(
            tuple(
                Arrival(math.exp(shared + rng.gauss(0.0, spread)), None, 0.0, variance, freedom) for _ in range(AT_MOST)
            )
        )
    return Trial(arms[0], arms[1])


def ratio(trial: Trial, numbers: tuple[int, int], pilot: int | None) -> Ratio:
    """Of so many repeats of each arm; pilot: repeats whose spread counts, None: all."""
    sides = [
        {seed: _of_pilot(one, seed, pilot) for seed, one in enumerate(arm[:number])}
        for arm, number in zip((trial.reference, trial.arm), numbers, strict=True)
    ]
    found = ratio_of(*sides)
    assert found is not None
    return found


def _of_pilot(one: Arrival, seed: int, pilot: int | None) -> Arrival:
    counts = pilot is None or seed < pilot
    return Arrival(one.time_s, None, 0.0, one.timing_variance, one.timing_freedom, of_pilot=counts)


def _spread(arm: Sequence[Arrival]) -> float:
    return statistics.stdev(math.log(one.or_infinity) for one in arm)


def one_by_one(trial: Trial, pilot: int) -> tuple[Ratio, int]:
    """Look after every repeat."""
    numbers = [pilot, pilot]
    while True:
        found = ratio(trial, (numbers[0], numbers[1]), None)
        if _half_width(found) <= math.log1p(UNTIL) or min(numbers) == AT_MOST:
            return found, sum(numbers)
        parts = [
            _spread(arm[:number]) ** 2 / number if number < AT_MOST else -1.0
            for arm, number in zip((trial.reference, trial.arm), numbers, strict=True)
        ]
        numbers[parts.index(max(parts))] += 1


def two_stages(trial: Trial, pilot: int, *, by_pilot: bool) -> tuple[Ratio, int]:
    """Decide once, by the pilots."""
    asked = UntilKnown(until=UNTIL, at_least=pilot, at_most=AT_MOST)
    first, second = (min(AT_MOST, repeats_for(_spread(arm[:pilot]), asked)) for arm in (trial.reference, trial.arm))
    return ratio(trial, (first, second), pilot if by_pilot else None), first + second


def _half_width(found: Ratio) -> float:
    assert found.low is not None and found.high is not None
    return math.log(found.high / found.low) / 2


WAYS: dict[str, Callable[[Trial, int], tuple[Ratio, int]]] = {
    "one by one": one_by_one,
    "two stages": lambda trial, pilot: two_stages(trial, pilot, by_pilot=False),
    "pilot's": lambda trial, pilot: two_stages(trial, pilot, by_pilot=True),
}


def measure(trials: int) -> list[Row]:
    """Every way under every condition, with so many trials each."""
    rows = []
    for composed in (False, True):
        for spreads in SPREADS:
            rng = random.Random(f"{spreads} {composed}")
            made = [made_up(rng, spreads, composed=composed) for _ in range(trials)]
            for way, decide in WAYS.items():
                some = made[: len(made) // 8] if decide is one_by_one else made  # it looks ten times as often
                for pilot in PILOTS:
                    ends = [decide(trial, pilot) for trial in some]
                    held = statistics.fmean(one.low <= 1 <= one.high for one, _ in ends if one.low and one.high)
                    wide = statistics.fmean(_half_width(one) > math.log1p(UNTIL) + 1e-9 for one, _ in ends)
                    number = statistics.fmean(number for _, number in ends) / 2
                    rows.append(Row(way, pilot, spreads, composed, 100 * held, number, 100 * wide))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    trials = 100 if arguments.quick else 4000
    rows = measure(trials)
    print(f"{'':12}{'pilot':>6}{'worst coverage':>16}{'mean':>8}{'repeats an arm':>16}{'wider than asked':>18}")
    for way in WAYS:
        for pilot in PILOTS:
            of_way = [row for row in rows if (row.way, row.pilot) == (way, pilot)]
            worst, mean = min(row.coverage for row in of_way), statistics.fmean(row.coverage for row in of_way)
            number, wide = (statistics.fmean(getattr(row, name) for row in of_way) for name in ("repeats", "wide"))
            print(f"{way:12}{pilot:6}{worst:14.1f} %{mean:6.1f} %{number:16.1f}{wide:16.1f} %")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({"trials": trials, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )
    own = [row.coverage for row in rows if (row.way, row.pilot) == ("pilot's", 8)]
    return 0 if arguments.quick or min(own) >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
