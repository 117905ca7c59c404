"""Composed against whole: how far composed times to accuracy are off, and how much machine time they save.

Every cell of the matrix is made both ways by `bwbench run` (mode: composed, whole: {share: 1}), on links that are
verified. The saving is that of a matrix over these links and some more (`--more-links`, where cells are composed only),
with three seeds, and with a tenth of its cells run whole as well: convergence runs are shared by links, timing runs by
seeds. It does not depend on the number of arms, if others are like these.

Exit status 1 where the median error is above 5 %, the largest above 12 %, or the saving below 5 x (not with --quick,
which tries the program on runs of seconds).

Usage: python benchmarks/composed.py [--json FILE] [--quick] [--results DIR] [--arms …] [--links …] [--step-time …]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.experiment.plan.composing import CONVERGENCE_FOLDER, TIMING_FOLDER
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.caveats import composed_error

NAME, REST = "composed", "composed-only"
ARMS = ("ddp", "ring-fp16", "top-k", "local-sgd")
LINKS_MBPS = (10.0, 50.0, 200.0)
MORE_MBPS = (1.0, 2.0, 5.0, 20.0, 100.0)
RUN_LIMIT_S = 3 * 3600.0
MOST_MEDIAN, MOST_LARGEST, LEAST_SAVING = 0.05, 0.12, 5.0
MATRIX_SEEDS, WHOLE_SHARE = 3, 0.1
EXPERIMENT = """
name: {name}
nodes: {nodes}
link: {{bandwidth: 10 Mbit/s, latency: 2.5 ms}}
model: {model}
dataset: {dataset}
batch_size: 32
optimizer: {{sgd: {{lr: 0.05, momentum: {momentum}}}}}
compute: {{threads: 1{step_time}}}
evaluate: {{every: {every} samples}}
target: {{accuracy: {target}}}
limit: {{samples: {samples}, time: {time}}}
mode: composed
whole: {{share: {share}, at_least: 0}}
matrix:
  link.bandwidth: [{links}]
  algorithm: [{arms}]
"""
FULL = {
    "nodes": 4,
    "model": "cnn",
    "dataset": "fashion-mnist",
    "momentum": 0.9,
    "every": 1000,
    "target": 0.85,
    "samples": 80_000,
}
QUICK = {
    "nodes": 2,
    "model": "logistic",
    "dataset": "digits",
    "momentum": 0,
    "every": 320,
    "target": 0.9,
    "samples": 20_000,
}


@dataclass(frozen=True)
class Walls:
    """Seconds of the machine, start-up and verification of links included, summed over the cells of links x arms.

    Attributes:
        whole_s: of all cells run whole: measured, or, where a cell was only composed, its composed training and what
            evaluations and overhead take of the others.
        convergence_s, timing_s: of the runs that they are composed from.
        links, arms: so many of each.
    """

    whole_s: float
    convergence_s: float
    timing_s: float
    links: int
    arms: int

    @property
    def saving(self) -> float:
        """Machine time of the whole matrix over that of the composed one: all arms like these, all seeds alike."""
        composed_s = MATRIX_SEEDS * self.convergence_s + self.timing_s
        whole_s = MATRIX_SEEDS * self.whole_s
        return whole_s / (composed_s + WHOLE_SHARE * whole_s)


def experiment(options: argparse.Namespace, name: str, links: Sequence[float], share: int) -> str:
    step_time = "20 ms" if options.quick else options.step_time
    return EXPERIMENT.format(
        **(QUICK if options.quick else FULL),
        name=name,
        share=share,
        time="30 min" if share else "2 h",  # what is composed may take longer than anybody waits
        step_time="" if step_time == "none" else f", step_time: {step_time}",
        links=", ".join(f"{rate:g} Mbit/s" for rate in links),
        arms=", ".join(options.arms),
    )


def run(text: str, results: Path) -> None:
    """Both ways of every cell; what is there already is kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NAME}.yaml"
        file.write_text(text)
        argv = [sys.executable, "-m", "bwbench.cli.main", "run", str(file), "--results", str(results)]
        argv += ["--retry", "failed|invalid|timeout"]
        subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, timeout=RUN_LIMIT_S)


def rows_of(results: Path) -> list[dict[str, Any]]:
    """A row for every cell that was made both ways, and for those that were not, saying so."""
    rows = []
    for folder in iter_cells(results / NAME):
        cell, status, both = folder.cell, folder.status, composed_error(folder)
        row = {
            "arm": cell.arm,
            "link": cell.config["link"]["bandwidth"],
            "status": status.status if status is not None else "missing",
        }
        row |= {"wall_s": getattr(status, "wall_s", None), "error": None, "reason": getattr(status, "reason", None)}
        if both is not None:
            row |= {"whole_s": both.whole_s, "composed_s": both.composed_s, "error": both.error, "inside": both.inside}
            row["interval_s"] = json.loads(folder.composed_file.read_text())["interval_s"]
        rows.append(row)
    return sorted(rows, key=lambda row: (row["arm"], float(row["link"].split()[0])))


def walls_of(results: Path, num_arms: int) -> Walls:
    """What the machine spent on everything below ``results``, and would have spent on whole runs."""
    both = [folder for folder in iter_cells(results / NAME) if ended(folder)]
    others = [folder for folder in iter_cells(results / REST) if ended(folder)] if (results / REST).is_dir() else []
    beside_s = statistics.fmean(folder.status.overhead_s + folder.status.evaluation_s for folder in both)
    timing = [*stored(results / NAME / TIMING_FOLDER), *stored(results / REST / TIMING_FOLDER)]
    return Walls(
        whole_s=sum(folder.status.wall_s for folder in both)
        + sum(folder.status.training_clock_s + beside_s for folder in others),
        convergence_s=sum(folder.status.wall_s for folder in stored(results / CONVERGENCE_FOLDER)),
        timing_s=sum(folder.status.wall_s for folder in timing),
        links=(len(both) + len(others)) // num_arms,
        arms=num_arms,
    )


def ended(folder: CellFolder) -> bool:
    return folder.status is not None and folder.status.status == "done"


def stored(folder: Path) -> list[CellFolder]:
    return [CellFolder(path.parent) for path in sorted(folder.glob("*/status.json"))]


def shown(row: dict[str, Any]) -> str:
    where = f"{row['arm']:12} {row['link']:>11}"
    if row["error"] is None:
        return f"{where}  {row['status']}: {row['reason']}"
    low, high = row["interval_s"] or (row["composed_s"],) * 2
    return (
        f"{where}  whole {row['whole_s']:8.2f} s  composed {row['composed_s']:8.2f} s [{low:.2f}, {high:.2f}]"
        f"  {100 * row['error']:+6.1f} %{'  outside its interval' if row['inside'] is False else ''}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, two nodes, one method on one link")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/out/composed"))
    parser.add_argument("--arms", nargs="*", default=ARMS, metavar="PRESET")
    parser.add_argument("--links", nargs="*", type=float, default=LINKS_MBPS, metavar="MBIT")
    parser.add_argument("--step-time", default="100 ms", help="declared duration of a step's computing, or none")
    parser.add_argument("--more-links", nargs="*", type=float, default=MORE_MBPS, metavar="MBIT", help="composed only")
    options = parser.parse_args()
    if options.quick:
        options.arms, options.links, options.more_links = ["local-sgd"], [20.0], []
    with tempfile.TemporaryDirectory() as folder:
        return compared(options, Path(folder) if options.quick else options.results)


def compared(options: argparse.Namespace, results: Path) -> int:
    """Make both ways of every cell, print and write how far they are apart. Returns the exit status."""
    run(experiment(options, NAME, options.links, share=1), results)
    if options.more_links:
        run(experiment(options, REST, options.more_links, share=0), results)
    rows = rows_of(results)
    for row in rows:
        print(shown(row))
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    if not errors:
        print("no cell was made both ways", file=sys.stderr)
        return 1
    walls = walls_of(results, len(options.arms))
    summary = {"median_error": statistics.median(errors), "largest_error": max(errors), "saving": walls.saving}
    print(
        f"{len(errors)} of {len(rows)} cells: off by {100 * summary['median_error']:.1f} % (median), "
        f"{100 * summary['largest_error']:.1f} % at most; {walls.links} links x {walls.arms} arms take "
        f"{walls.whole_s:.0f} s whole, {walls.convergence_s:.0f} s without link, {walls.timing_s:.0f} s timed; with "
        f"{MATRIX_SEEDS} seeds, and a tenth run whole as well, composing saves {walls.saving:.1f} x"
    )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"rows": rows, **summary, **vars(walls)}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    good = summary["median_error"] <= MOST_MEDIAN and summary["largest_error"] <= MOST_LARGEST
    return 0 if options.quick or (good and walls.saving >= LEAST_SAVING and len(errors) == len(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
