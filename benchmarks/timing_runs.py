"""How much the time of a step varies from one timing run to the next, and whether whole runs lie in the intervals.

The cells of an experiment (``mode: composed``) are timed in rounds, a run of every cell in each, which begin `--apart`
minutes after one another: five over two hours by default. Then `bwbench run` makes what is missing: the trainings
without a link, and the cells that run whole. What is there already is kept, so that a benchmark that was interrupted
goes on.

Printed are, for each cell, its times by each run and the standard deviation of their logarithms; of all cells the
pooled one, that of neighbouring rounds and that of the first and the last, and how many whole runs lie in their 95 %
interval with one, two and all timing runs. Cells in which nothing crosses the link say nothing of that.

Exit status 1 where fewer than 90 % of the whole runs lie inside (not with --quick, which tries the program on runs of
seconds).

Usage: python benchmarks/timing_runs.py [EXPERIMENT] [--json FILE] [--quick] [--results DIR] [--apart MINUTES]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.experiment.plan.assess import PlannedCell, assess
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import COMPOSED, TIMING_FOLDER, WHOLE, Parts, parts_of, ways
from bwbench.experiment.plan.estimate import estimate_cells
from bwbench.methods.roles import METHOD
from bwbench.records import CellFolder
from bwbench.records.schema import Event
from bwbench.results.analysis.compose import compose
from bwbench.results.analysis.composition import Composition
from bwbench.running.composed import located
from bwbench.running.run_cell import run_cell, wall_limit_s

LEAST_INSIDE = 0.9
RUN_LIMIT_S = 6 * 3600.0
STUDY = Path(__file__).parents[1] / "experiments" / "kin.yaml"
QUICK = """
name: timing-runs
nodes: 2
link: {latency: 2.5 ms}
model: logistic
dataset: digits
batch_size: 32
optimizer: {sgd: {lr: 0.05}}
compute: {threads: 1, step_time: 20 ms}
evaluate: {every: 320 samples}
target: {accuracy: 0.9}
limit: {samples: 20000, time: 30 min}
mode: composed
whole: {share: 1, at_least: 0}
timing: {runs: 2}
matrix:
  link.bandwidth: [20 Mbit/s, 50 Mbit/s]
  algorithm: [ring, local-sgd]
"""


@dataclass(frozen=True)
class Timed:
    """A cell with its timing runs, and its whole run.

    Attributes:
        times_s: the composed time by each timing run alone.
        found: composed of the first run, of the first two, …
        whole_s: measured; None where the whole run did not get to its end.
    """

    cell: Cell
    times_s: Sequence[float]
    found: Sequence[Composition]
    whole_s: float | None

    @property
    def repeat(self) -> int:
        return self.cell.repeat

    @property
    def logs(self) -> list[float]:
        return [math.log(time_s) for time_s in self.times_s]

    def inside(self, runs: int) -> bool | None:
        """Whether the whole run lies in the interval of so many timing runs; None where there is none to say."""
        interval = self.found[runs - 1].interval_s
        return None if self.whole_s is None or interval is None else interval[0] <= self.whole_s <= interval[1]


class Silent:
    """Watches a timing run and says nothing."""

    def cell_phase(self, cell: Cell, phase: str) -> None: ...

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None: ...


def cells_of(file: Path, results: Path) -> list[PlannedCell]:
    """The composed cells of an experiment over whose links something is sent."""
    experiment = load_experiment(file, ())
    cells = [cell for cell in build_plan(experiment).cells if cell.role == METHOD]
    planned = assess(cells, results, (), ways(experiment, cells), experiment.timing.runs)
    return [item for item in planned if item.way != WHOLE]


def make_rounds(items: Sequence[PlannedCell], runs: int, apart_s: float) -> None:
    """The timing runs, a round of all cells at a time; each begins ``apart_s`` after the one before, or later.

    In every round another order of the cells, as in a sweep.
    """
    first = [item for item in items if item.cell.repeat == 0]
    for number in range(runs):
        begun_s = time.monotonic()
        made = sum(_made(item, number) for item in random.Random(number).sample(first, len(first)))
        print(f"round {number + 1} of {runs}: {made} of {len(first)} cells timed", flush=True)
        if made and number < runs - 1:
            time.sleep(max(0.0, apart_s - (time.monotonic() - begun_s)))


def _made(item: PlannedCell, number: int) -> bool:
    """Whether this run was made now, and not before."""
    timing = parts_of(item.cell, timing_runs=number + 1).timings[number]
    folder = located(timing, item.folder.parent / TIMING_FOLDER)
    if (status := CellFolder(folder).status) is not None and status.status == "done":
        return False
    attempt = (status.attempt or 0) if status is not None else 0
    part = PlannedCell(timing, folder, "missing", runs=True, why="to be timed", attempt=attempt, part="timing")
    ended = run_cell(part, wall_limit_s(estimate_cells([timing])[timing.id].predicted_s), Silent())
    if ended.status != "done":
        print(f"{timing.slug}: {ended.status}: {ended.reason}", file=sys.stderr)
    return True


def run_whole(file: Path, results: Path) -> None:
    """Convergence runs, whole runs, and composing, by the program itself."""
    argv = [sys.executable, "-m", "bwbench.cli.main", "run", str(file), "--results", str(results)]
    subprocess.run([*argv, "--retry", "failed|invalid|timeout"], check=False, stdout=subprocess.DEVNULL,
                   timeout=RUN_LIMIT_S)  # fmt: skip


def timed_cells(items: Sequence[PlannedCell], results: Path, runs: int) -> Iterator[Timed]:
    """The first repeats, and all that ran whole, as far as all of their parts are there."""
    for item in items:
        if item.cell.repeat > 0 and not _ran_whole(item):
            continue
        parts = parts_of(item.cell, timing_runs=runs)
        convergence = CellFolder(located(parts.convergence, results / ".convergence"))
        timings = [CellFolder(located(timing, item.folder.parent / TIMING_FOLDER)) for timing in parts.timings]
        if any(part.status is None or part.status.status != "done" for part in (convergence, *timings)):
            continue
        status = CellFolder(item.folder).status
        whole_s = None if status is None or status.composed is not None else status.time_to_target_s
        events = [timing.events() for timing in timings]
        found = [_composed(parts, convergence, events[: number + 1]) for number in range(runs)]
        alone = [_composed(parts, convergence, [one]) for one in events]
        times_s = [one.time_to_target_s or one.training_clock_s for one in alone]
        yield Timed(item.cell, times_s, found, whole_s)


def _ran_whole(item: PlannedCell) -> bool:
    status = CellFolder(item.folder).status
    return status is not None and status.status == "done" and status.composed is None


def _composed(parts: Parts, convergence: CellFolder, timings: Sequence[Any]) -> Composition:
    return compose(
        convergence.events(),
        timings,
        parts.phases,
        parts.timing_phases,
        has_target=True,
        ends_at_target=parts.config.stop == "target",
        seconds_per_byte=parts.seconds_per_byte,
    )


def pooled_sd(logs: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of one run, over all cells with two runs or more."""
    several = [one for one in logs if len(one) > 1]
    freedom = sum(len(one) - 1 for one in several)
    return math.sqrt(sum(statistics.variance(one) * (len(one) - 1) for one in several) / freedom) if freedom else None


def summary_of(found: Sequence[Timed], runs: int) -> dict[str, Any]:
    of_cells = [one.logs for one in found if one.repeat == 0]  # further repeats rest on the same timing runs
    neighbours = [logs[number : number + 2] for logs in of_cells for number in range(runs - 1)]
    ends = [[logs[0], logs[-1]] for logs in of_cells if runs > 1]
    inside = {}
    for number in sorted({1, 2, runs}):
        if number <= runs:
            known = [answer for one in found if (answer := one.inside(number)) is not None]
            inside[number] = {"inside": sum(known), "of": len(known)}
    return {
        "cells": len(of_cells),
        "runs": runs,
        "sd_of_a_run": pooled_sd(of_cells),
        "sd_of_neighbouring_rounds": pooled_sd(neighbours),
        "sd_of_first_and_last": pooled_sd(ends),
        "inside": inside,
    }


def shown(one: Timed) -> str:
    times = " ".join(f"{time_s:8.2f}" for time_s in one.times_s)
    link = one.cell.config.link.describe().partition(" (")[0].partition(",")[0]
    spread = f"{100 * statistics.stdev(one.logs):5.1f} %" if len(one.logs) > 1 else "-"
    low, high = one.found[-1].interval_s or (math.nan, math.nan)
    whole = "-" if one.whole_s is None else f"{one.whole_s:.2f} s"
    outside = "  outside" if one.inside(len(one.found)) is False else ""
    return f"{one.cell.arm:12} {link:>11}  {times} s  sd {spread}  whole {whole} in [{low:.2f}, {high:.2f}]{outside}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def measured(options: argparse.Namespace, results: Path) -> int:
    """Make what is missing, print and write what varies. Returns the exit status."""
    results.mkdir(parents=True, exist_ok=True)
    file = options.experiment
    if options.quick:
        file = results / "timing-runs.yaml"
        file.write_text(QUICK)
    items = [replace(item, way=COMPOSED) for item in cells_of(file, results)]
    runs = max(item.timing_runs for item in items)
    make_rounds(items, runs, 60.0 * options.apart)
    run_whole(file, results)
    found = list(timed_cells(items, results, runs))
    if not found:
        print("no cell was timed and trained", file=sys.stderr)
        return 1
    for one in found:
        print(shown(one))
    summary = summary_of(found, runs)
    print(
        f"{summary['cells']} cells, {runs} runs each: a run varies by "
        f"{percent(summary['sd_of_a_run'])} (standard deviation), neighbouring rounds by "
        f"{percent(summary['sd_of_neighbouring_rounds'])}, first and last by {percent(summary['sd_of_first_and_last'])}"
    )
    for number, counts in summary["inside"].items():
        print(f"{counts['inside']} of {counts['of']} whole runs in their 95 % interval with {number} timing run(s)")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"arm": one.cell.arm, "link": one.cell.config.link.describe(), "repeat": one.repeat,
                 "times_s": list(one.times_s), "whole_s": one.whole_s, "interval_s": one.found[-1].interval_s}
                for one in found]  # fmt: skip
        options.json.write_text(json.dumps({"rows": rows, **summary}, indent=1) + "\n")
    last = summary["inside"][runs]
    good = last["of"] > 0 and last["inside"] >= LEAST_INSIDE * last["of"]
    return 0 if options.quick or good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?", default=STUDY)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, two nodes, four cells, rounds without a pause")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/out/timing_runs"))
    parser.add_argument("--apart", type=float, default=None, help="minutes between rounds [30; 0 with --quick]")
    options = parser.parse_args()
    options.apart = options.apart if options.apart is not None else (0.0 if options.quick else 30.0)
    with tempfile.TemporaryDirectory() as folder:
        return measured(options, Path(folder) if options.quick else options.results)


if __name__ == "__main__":
    sys.exit(main())
