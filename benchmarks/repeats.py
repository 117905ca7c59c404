"""How many repeats, and when to stop: ways to decide, judged by how often the interval that is printed holds the truth.

Arms whose log times spread by 5 to 30 % are made up, and the ratio of two of them is asked for to ± 15 % with 24
repeats of each at most. They run whole, or are composed: then all repeats of an arm share timing runs, three in the
pilot and 24 at most, which differ by 3 % as measured, or by 10 %, where they leave more open than the repeats.

    one by one    add a repeat to the arm with the larger variance until the interval is narrow enough
    two stages    what a pilot's repeats and timing runs differ by says how many of both; the interval is computed anew
    pilot's       the same, and the variance in the interval is the pilot's alone (Stein 1945): what bwbench does

Exit status 1 where the way that bwbench takes, with its pilot of 8, covers less than 93.5 % anywhere.

Usage: python benchmarks/repeats.py [--json FILE] [--quick] [--own]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival
from bwbench.running.sweep.needed_repeats import Known

UNTIL, AT_MOST = 0.15, 24
SPREADS = ((0.05, 0.05), (0.1, 0.1), (0.15, 0.15), (0.2, 0.2), (0.3, 0.3), (0.05, 0.3), (0.1, 0.2))
TIMING_RUNS = 3  # of the pilot
BETWEEN = (None, 0.03, 0.1)  # what they differ by; None: whole runs
PILOTS = (3, 5, 8)
ASKED = 93.5  # % coverage
OWN = "pilot's"


@dataclass(frozen=True)
class Arm:
    """One arm as it would be with all repeats and all timing runs, as logarithms; in truth each is 0.

    Attributes:
        repeats: by their own chance alone.
        runs: what each timing run is off by, for all repeats alike; none where the arm runs whole.
    """

    repeats: tuple[float, ...]
    runs: tuple[float, ...]

    def with_pilot(self, pilot: int) -> Known:
        """What its pilot says of it."""
        spread = statistics.stdev(self.repeats[:pilot])
        if not self.runs:
            return Known(spread, pilot, pilot)
        between = statistics.variance(self.runs[:TIMING_RUNS])
        return Known(spread, pilot, pilot, between, TIMING_RUNS, TIMING_RUNS)

    def arrivals(self, repeats: int, timing_runs: int, pilot: int | None) -> dict[int, Arrival]:
        """Of so many; pilot: repeats whose spread counts, and the same for timing runs; None: all count."""
        runs = self.runs[:timing_runs]
        shared = statistics.fmean(runs) if runs else 0.0
        counted = runs if pilot is None else runs[:TIMING_RUNS]
        variance = statistics.variance(counted) / len(runs) if runs else 0.0
        freedom = len(counted) - 1.0 if runs else math.inf
        by_pilot = pilot is not None and bool(runs)
        return {
            seed: Arrival(
                math.exp(shared + log),
                timing_variance=variance,
                timing_freedom=freedom,
                timing_by_pilot=by_pilot,
                of_pilot=pilot is None or seed < pilot,
            )
            for seed, log in enumerate(self.repeats[:repeats])
        }


Trial = tuple[Arm, Arm]


@dataclass
class Row:
    """One way of deciding under one condition.

    Attributes:
        between: standard deviation between timing runs; None where arms run whole.
        coverage: of 95 % intervals, in %; wide: those that are wider than asked, in %.
        repeats, timing_runs: of one arm, on average.
    """

    way: str
    pilot: int
    spreads: tuple[float, float]
    between: float | None
    coverage: float
    repeats: float
    timing_runs: float
    wide: float


def made_up(rng: random.Random, spreads: tuple[float, float], between: float | None) -> Trial:
    """Two arms that are equally fast in truth."""

    def arm(spread: float) -> Arm:
        runs = [rng.gauss(0.0, between) for _ in range(AT_MOST)] if between is not None else []
        return Arm(tuple(rng.gauss(0.0, spread) for _ in range(AT_MOST)), tuple(runs))

    return arm(spreads[0]), arm(spreads[1])


@dataclass(frozen=True)
class Ended:
    """The interval that is printed, and what it took of both arms."""

    ratio: Ratio
    repeats: int
    timing_runs: int


def ended(trial: Trial, numbers: Sequence[tuple[int, int]], pilot: int | None) -> Ended:
    """With so many repeats and timing runs of each arm; pilot as in ``Arm.arrivals``."""
    sides = [arm.arrivals(*number, pilot) for arm, number in zip(trial, numbers, strict=True)]
    found = ratio_of(*sides)
    assert found is not None
    return Ended(found, sum(repeats for repeats, _ in numbers), sum(runs for _, runs in numbers))


def one_by_one(trial: Trial, pilot: int) -> Ended:
    """Look after every repeat."""
    numbers = [pilot, pilot]
    while True:
        found = ended(trial, [(number, TIMING_RUNS) for number in numbers], None)
        if _half_width(found.ratio) <= math.log1p(UNTIL) or min(numbers) == AT_MOST:
            return found
        parts = [
            statistics.variance(arm.repeats[:number]) / number if number < AT_MOST else -1.0
            for arm, number in zip(trial, numbers, strict=True)
        ]
        numbers[parts.index(max(parts))] += 1


def two_stages(trial: Trial, pilot: int, *, by_pilot: bool) -> Ended:
    """Decide once, by the pilots."""
    needed = [arm.with_pilot(pilot).until(math.log1p(UNTIL), AT_MOST) for arm in trial]
    return ended(trial, [(one.repeats, one.timing_runs) for one in needed], pilot if by_pilot else None)


def _half_width(found: Ratio) -> float:
    assert found.low is not None and found.high is not None
    return math.log(found.high / found.low) / 2


WAYS: dict[str, Callable[[Trial, int], Ended]] = {
    "one by one": one_by_one,
    "two stages": lambda trial, pilot: two_stages(trial, pilot, by_pilot=False),
    "pilot's": lambda trial, pilot: two_stages(trial, pilot, by_pilot=True),
}


def measure(trials: int, ways: Mapping[str, Sequence[int]]) -> list[Row]:
    """These ways, each with these pilots, under every condition, with so many trials each."""
    rows = []
    for between in BETWEEN:
        for spreads in SPREADS:
            rng = random.Random(f"{spreads} {between}")
            made = [made_up(rng, spreads, between) for _ in range(trials)]
            for way, pilots in ways.items():
                decide = WAYS[way]
                some = made[: len(made) // 8] if decide is one_by_one else made  # it looks ten times as often
                for pilot in pilots:
                    ends = [decide(trial, pilot) for trial in some]
                    found = [one.ratio for one in ends]
                    held = statistics.fmean(one.low <= 1 <= one.high for one in found if one.low and one.high)
                    wide = statistics.fmean(_half_width(one) > math.log1p(UNTIL) + 1e-9 for one in found)
                    repeats = statistics.fmean(one.repeats for one in ends) / 2
                    runs = statistics.fmean(one.timing_runs for one in ends) / 2 if between is not None else 0.0
                    rows.append(Row(way, pilot, spreads, between, 100 * held, repeats, runs, 100 * wide))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--own", action="store_true", help="only the way that bwbench takes, with its pilot of 8")
    arguments = parser.parse_args()
    trials = 100 if arguments.quick else 1000 if arguments.own else 4000
    ways = {OWN: (8,)} if arguments.own else dict.fromkeys(WAYS, PILOTS)
    rows = measure(trials, ways)
    print(f"{'':26}{'pilot':>6}{'worst coverage':>16}{'mean':>8}{'repeats':>9}{'timing runs':>13}{'too wide':>10}")
    for between in BETWEEN:
        kind = "whole" if between is None else f"runs {100 * between:.0f} %"
        for way, pilots in ways.items():
            for pilot in pilots:
                alike = [row for row in rows if (row.way, row.pilot, row.between) == (way, pilot, between)]
                worst, mean = min(row.coverage for row in alike), statistics.fmean(row.coverage for row in alike)
                number, runs, wide = (
                    statistics.fmean(getattr(row, name) for row in alike) for name in ("repeats", "timing_runs", "wide")
                )
                print(f"{kind:12}{way:14}{pilot:6}{worst:14.1f} %{mean:6.1f} %{number:9.1f}{runs:13.1f}{wide:8.1f} %")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({"trials": trials, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )
    own = [row.coverage for row in rows if (row.way, row.pilot) == (OWN, 8)]
    return 0 if arguments.quick or min(own) >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
