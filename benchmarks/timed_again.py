"""How far the steps of published cells are from those of timing runs made anew, days later or on another machine.

A published cell that was composed keeps, for each kind of its steps, how many there were and what they took in its
timing runs. `bwbench run EXPERIMENT --part timing --results AGAIN` times the same cells once more. Printed are, for
each, the time of all its steps by both, and of all the standard deviation of one run: that of the differences of their
logarithms over the root of two. Cells in which nothing crosses a link are set aside: they say what the hosts differ by.

AGAIN may be a record of this (`--json`) as well, which is printed: without it `benchmarks/records/timed_again.json` is.
Exit status 1 where nothing in AGAIN is published.

Usage: python benchmarks/timed_again.py [AGAIN] [--published DIR] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bwbench.base.errors import BwbenchError
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.experiment.plan.composing import TIMING_FOLDER, Parts, parts_of
from bwbench.methods.roles import METHOD
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.compose import Timed
from bwbench.results.analysis.statistics import ASSUMED_BETWEEN
from bwbench.running.composed import located

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
RECORD = Path(__file__).parent / "records/timed_again.json"
NORMAL_95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Pair:
    """A cell by its published timing run and by the new one; seconds of emulated time of all its steps."""

    experiment: str
    arm: str
    link: str
    nodes: int
    role: str
    published_s: float
    again_s: float

    @property
    def log(self) -> float:
        return math.log(self.again_s / self.published_s)

    @property
    def counts(self) -> bool:
        """Whether its steps wait for a link."""
        return self.role == METHOD


def pairs_of(again: Path, published: Path) -> Iterator[Pair]:
    """One for each timing run in ``again`` that a published cell has as well: the first of the cells that share it."""
    for folder in sorted(path for path in again.iterdir() if (published / path.name).is_dir()):
        there = {str(one.cell.id): one for one in iter_cells(published / folder.name)}
        seen = set()
        for cell in build_plan(load_experiment(EXPERIMENTS / f"{folder.name}.yaml", ())).cells:
            was = there.get(str(cell.id))
            composed = None if was is None else was.composed
            parts = parts_of(cell)
            if composed is None or parts.timings[0].id in seen:
                continue
            now = step_means(CellFolder(located(parts.timings[0], folder / TIMING_FOLDER)), parts)
            seen.add(parts.timings[0].id)
            kinds = [kind for kind in composed.kinds if kind.name in now]
            if kinds:
                published_s = sum(kind.num_steps * kind.mean_s for kind in kinds)
                again_s = sum(kind.num_steps * now[kind.name] for kind in kinds)
                link = cell.config.link.describe().partition(",")[0]
                yield Pair(folder.name, cell.arm, link, cell.config.nodes, str(cell.role), published_s, again_s)


def recorded(file: Path) -> list[Pair]:
    """Those of a record of this benchmark."""
    return [Pair(**row) for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]


def step_means(timing: CellFolder, parts: Parts) -> dict[str, float]:
    """Mean seconds of each kind of step; none where the run is not done."""
    if timing.status is None or timing.status.status != "done":
        return {}
    by_kind = Timed.of(timing.events(), parts.timing_phases).by_kind
    return {kind: statistics.fmean(step.duration_s for step in steps) for kind, steps in by_kind.items()}


def summary_of(pairs: list[Pair]) -> dict[str, Any]:
    """Standard deviation of one run, the worst pair, and how many differ by less than is assumed of two runs."""
    logs = [pair.log for pair in pairs if pair.counts]
    allowed = NORMAL_95 * ASSUMED_BETWEEN * math.sqrt(2)
    return {
        "pairs": len(logs),
        "sd_of_a_run": math.sqrt(statistics.fmean(log**2 for log in logs) / 2) if logs else None,
        "mean": statistics.fmean(logs) if logs else None,
        "most": max(map(abs, logs), default=None),
        "within_what_is_assumed": sum(abs(log) <= allowed for log in logs),
        "most_where_nothing_is_sent": max((abs(pair.log) for pair in pairs if not pair.counts), default=None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("again", type=Path, nargs="?", default=RECORD)
    parser.add_argument("--published", type=Path, default=Path("results/published"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    options = parser.parse_args()
    try:
        pairs = list(pairs_of(options.again, options.published) if options.again.is_dir() else recorded(options.again))
    except (BwbenchError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for one in pairs:
        print(f"{one.experiment:20} {one.arm:50} {one.link:>12} {one.nodes:2}  {one.published_s:9.2f} s "
              f"{one.again_s:9.2f} s  {100 * math.expm1(one.log):+6.2f} %")  # fmt: skip
    summary = summary_of(pairs)
    print(json.dumps(summary))
    if options.json:
        rows = [asdict(one) for one in pairs]
        options.json.write_text(json.dumps({"rows": rows, **summary}, indent=1) + "\n")
    return 0 if pairs else 1


if __name__ == "__main__":
    sys.exit(main())
