"""Whether steps take in slow motion what they take in the machine's own time: records of experiments/dilation.yaml.

A row a method and dilation K: the mean over all links of the ratio of its step time to that with K = 1, with its 95 %
interval (Welch, on logarithms), and the ratio on each link by itself. The row is kept where the interval lies within
3 % of 1. What the runs were made with is in their records: `bwbench run experiments/dilation.yaml`, which goes on where
it was ended.

Exit status 1 where a row fails whose dilation is one that ``dilation: auto`` takes (1 and more), or where there are no
runs.

Usage: python benchmarks/dilation.py [RESULTS] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bwbench.base.errors import RecordError
from bwbench.records import iter_cells
from bwbench.results.analysis.cells import dilation_of, setting_of
from bwbench.results.analysis.welch import TIMING_RUNS, ErrorPart, MeanError

MOST_OFF = 0.03
RECORDS = Path(__file__).parent / "records" / "dilation"

Steps = dict[tuple[str, float, str], list[float]]  # seconds of a step, by arm, dilation and link


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RECORDS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the same: records are read in a second")
    options = parser.parse_args()
    try:
        found = rows(steps_of(options.results))
    except RecordError as error:
        sys.exit(f"{error}; `bwbench run experiments/dilation.yaml` makes results/dilation")
    print(f"{'method':<20}{'K':>6}{'runs':>6}{'ratio':>8}{'95 %':>18}  links")
    for row in found:
        links = "  ".join(f"{link}: {ratio:.3f}" for link, ratio in row["links"].items())
        span = f"{row['low']:.3f} to {row['high']:.3f}"
        kept = "" if row["kept"] else "  FAILS"
        print(f"{row['arm']:<20}{row['dilation']:>6g}{row['runs']:>6}{row['ratio']:>8.3f}{span:>18}  {links}{kept}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(not found or any(not row["kept"] and row["dilation"] > 1 for row in found))


def steps_of(results: Path) -> Steps:
    """Mean step of every finished run."""
    found: Steps = defaultdict(list)
    for cell in iter_cells(results):
        status, config = cell.status, cell.cell.config
        if status is None or status.status != "done" or not status.training_clock_s or not status.steps:
            continue
        key = cell.cell.arm, dilation_of(config), setting_of(config).link
        found[key].append(status.training_clock_s / status.steps)
    return found


def rows(steps: Mapping[tuple[str, float, str], Sequence[float]]) -> list[dict[str, Any]]:
    """A row each arm and dilation but 1."""
    found = []
    for arm, dilation in sorted({(arm, dilation) for arm, dilation, _ in steps if dilation != 1.0}):
        differences: dict[str, float] = {}
        parts: list[ErrorPart] = []
        for link in sorted({link for a, d, link in steps if (a, d) == (arm, dilation)}):
            here, plain = steps[arm, dilation, link], steps.get((arm, 1.0, link), [])
            if min(len(here), len(plain)) < 2:
                continue
            logs = [[math.log(value) for value in values] for values in (here, plain)]
            differences[link] = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
            for values in logs:
                parts.append(ErrorPart(TIMING_RUNS, statistics.variance(values) / len(values), len(values) - 1))
        if not differences:
            continue
        mean, half = statistics.fmean(differences.values()), MeanError(tuple(parts)).half_width() / len(differences)
        low, high = math.exp(mean - half), math.exp(mean + half)
        found.append(
            {
                "arm": arm,
                "dilation": dilation,
                "runs": sum(len(steps[arm, dilation, link]) for link in differences),
                "ratio": math.exp(mean),
                "low": low,
                "high": high,
                "kept": 1 - MOST_OFF <= low and high <= 1 + MOST_OFF,
                "links": {link: math.exp(value) for link, value in differences.items()},
            }
        )
    return found


if __name__ == "__main__":
    main()
