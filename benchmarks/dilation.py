"""Whether steps take in slow motion what they take in the machine's own time: records of experiments/dilation.yaml.

A row a method and dilation K: the mean over all links of the ratio of its step time to that with K = 1, with its 95 %
interval (Welch, on logarithms), and the ratio on each link by itself. The row is kept where the interval lies within
3 % of 1. What the runs were made with is in their records: `bwbench run experiments/dilation.yaml`, which goes on where
it was ended.

Exit status 1 where a row fails whose dilation is one that ``dilation: auto`` takes (1 and more), or where there are no
runs.

With ``--beside PUBLISHED`` (results/published/latency) RESULTS are cells of that experiment timed again in slow motion
(`bwbench run experiments/latency-dilated.yaml`): a row a method and link, its step over the published one, and whether
they differ by more than runs of a cell do. Of runs 3 % are assumed (standard deviation), as in `bwbench compare` where
a cell was timed once.

Usage: python benchmarks/dilation.py [RESULTS] [--beside PUBLISHED] [--json FILE] [--quick]
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
from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.records import iter_cells
from bwbench.results.analysis.cells import dilation_of, setting_of
from bwbench.results.analysis.statistics import ASSUMED_BETWEEN
from bwbench.results.analysis.welch import TIMING_RUNS, ErrorPart, MeanError

MOST_OFF = 0.03
RECORDS = Path(__file__).parent / "records" / "dilation"

Steps = dict[tuple[str, float, str], list[float]]  # seconds of a step, by arm, dilation and link


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RECORDS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--beside", type=Path, help="published cells whose steps RESULTS has timed again")
    parser.add_argument("--quick", action="store_true", help="the same: records are read in a second")
    options = parser.parse_args()
    if options.beside:
        again = rows_beside(options.results, options.beside)
        heads = f"{'runs':>6}{'published':>11}{'again':>9}{'ratio':>8}{'95 %':>18}"
        print(f"{'method':<18}{'bandwidth':>12}{'RTT':>9}{heads}")
        for row in again:
            span = f"{row['low']:.3f} to {row['high']:.3f}" + ("" if row["alike"] else "  DIFFERS")
            steps = f"{row['published_s']:>9.4f} s{row['step_s']:>7.4f} s{row['ratio']:>8.3f}"
            print(f"{row['arm']:<18}{row['bandwidth']:>12}{row['rtt']:>9}{row['runs']:>6}{steps}{span:>18}")
        if options.json:
            options.json.write_text(json.dumps(again, indent=1) + "\n")
        sys.exit(not again)
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


def rows_beside(results: Path, published: Path) -> list[dict[str, Any]]:
    """A row each arm and link of ``results`` that ``published`` has too."""
    here, there = (_steps_by_link(folder) for folder in (results, published))
    found = []
    for (arm, bandwidth, rtt), steps in sorted(here.items()):
        before = there.get((arm, bandwidth, rtt))
        if before is None:
            continue
        logs = [math.log(step) for step in steps]
        # The seeds of a published cell share its timing run.
        parts = (
            ErrorPart(TIMING_RUNS, ASSUMED_BETWEEN**2, math.inf),
            ErrorPart(TIMING_RUNS, ASSUMED_BETWEEN**2 / len(logs), math.inf),
        )
        published_s = statistics.geometric_mean(before)
        difference, half = statistics.fmean(logs) - math.log(published_s), MeanError(parts).half_width()
        found.append(
            {
                "arm": arm,
                "bandwidth": bandwidth,
                "rtt": rtt,
                "runs": len(logs),
                "published_s": published_s,
                "step_s": statistics.geometric_mean(steps),
                "ratio": math.exp(difference),
                "low": math.exp(difference - half),
                "high": math.exp(difference + half),
                "alike": abs(difference) <= half,
            }
        )
    return found


def _steps_by_link(results: Path) -> dict[tuple[str, str, str], list[float]]:
    """Mean steps of finished cells with a link, by arm, bandwidth and round trip as they were asked."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for cell in iter_cells(results):
        status, setting = cell.status, setting_of(cell.cell.config)
        if status is None or status.status != "done" or not status.training_clock_s or not status.steps:
            continue
        if setting.bandwidth_bps is not None and setting.rtt_s is not None:
            key = cell.cell.arm, BANDWIDTH.format(setting.bandwidth_bps), DURATION.format(setting.rtt_s)
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
