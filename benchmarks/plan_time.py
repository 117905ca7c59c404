"""How long `bwbench plan` says that a cell takes, against how long it took.

Before any run: by the estimate alone. Calibrated: by one half of the cells that have finished, predicting the other
half, over many ways to halve them. A cell that reached its target is predicted for the steps that it took, since nobody
can know those before; all others for their limit. Time is that of the whole cell, from its start to its end.

Predictions are for the machine that this runs on, so results have to be from here too: those of `--results DIR` (whole
cells of all experiments in it, such as benchmarks/composed.py leaves), else of a matrix that is run now.

Exit status 1 where the median error is above 25 % before any run, or above 10 % calibrated (not with --quick, which
tries the program on runs of seconds).

Usage: python benchmarks/plan_time.py [--json FILE] [--quick] [--results DIR] [--step-time …]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.base.errors import BwbenchError, ConfigError
from bwbench.experiment.plan import Cell, CellEstimate, estimate_cells
from bwbench.experiment.plan.calibration import Calibration
from bwbench.records import iter_cells
from bwbench.records.schema import Status

MOST_BEFORE, MOST_CALIBRATED = 0.25, 0.10
SHUFFLES = 20
RUN_LIMIT_S, QUICK_LIMIT_S = 3 * 3600.0, 36.0
EXPERIMENT = """
name: plan_time
nodes: {nodes}
link: {{bandwidth: 10 Mbit/s, latency: 2.5 ms}}
model: {model}
dataset: {dataset}
batch_size: 32
optimizer: {{sgd: {{lr: 0.05}}}}
compute: {{threads: 1{step_time}}}
evaluate: {{every: 2000 samples}}
stop: limit
limit: {{samples: {samples}}}
matrix:
  algorithm: [{arms}]
  link.bandwidth: [{links}]
"""
FULL = {
    "nodes": 4,
    "model": "cnn",
    "dataset": "fashion-mnist",
    "samples": 51_200,
    "arms": "ddp, ring-fp16, top-k, local-sgd",
    "links": "10 Mbit/s, 50 Mbit/s, 200 Mbit/s",
}
QUICK = {
    "nodes": 2,
    "model": "mlp",
    "dataset": "digits",
    "samples": 3200,
    "arms": "ring, local-sgd",
    "links": "50 Mbit/s",
}


@dataclass(frozen=True)
class Finished:
    """A whole cell that is done."""

    cell: Cell
    status: Status

    @property
    def wall_s(self) -> float:
        return float(self.status.wall_s)


def run(text: str, results: Path, limit_s: float) -> None:
    """Run the cells that are not done yet; what is still to do after ``limit_s`` is left."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan_time.yaml"
        file.write_text(text)
        argv = [sys.executable, "-m", "bwbench.cli.main", "run", str(file), "--results", str(results)]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def finished_in(results: Path) -> list[Finished]:
    """Whole cells that are done, of all experiments; those that went on after an interruption are left out."""
    found: dict[str, Finished] = {}
    for folder in iter_cells(results):
        status = folder.status
        if status is None or status.status != "done" or status.composed or status.attempt != 1:
            continue
        try:
            cell = Cell.from_json(folder.cell.to_json(), plugins=())
        except ConfigError as error:
            print(f"{folder.path}: left out: {error}", file=sys.stderr)
            continue
        found[cell.id] = Finished(cell, status)
    return list(found.values())


def errors_of(asked: Sequence[Finished], known: Calibration) -> dict[str, float]:
    """How far each cell is off, as a share of what it took, by id; too long is positive."""
    return {one.cell.id: known.predict(one.cell, steps=int(one.status.steps)).total_s / one.wall_s - 1 for one in asked}


def calibrated_errors(cells: Sequence[Finished], estimates: dict[str, CellEstimate]) -> dict[str, list[float]]:
    """Errors of each cell whenever it was in the half that is predicted from the other one."""
    found: dict[str, list[float]] = {one.cell.id: [] for one in cells}
    for seed in range(SHUFFLES):
        shuffled = random.Random(seed).sample(list(cells), len(cells))
        middle = len(shuffled) // 2
        for seen, asked in ((shuffled[:middle], shuffled[middle:]), (shuffled[middle:], shuffled[:middle])):
            known = Calibration(estimates)
            for one in seen:
                known.note(one.cell, one.status)
            for cell_id, error in errors_of(asked, known).items():
                found[cell_id].append(error)
    return found


def rows_of(cells: Sequence[Finished]) -> list[dict[str, Any]]:
    """A row a cell: what it took, what was said before any run, and how far both predictions are off."""
    estimates = estimate_cells([one.cell for one in cells])
    nothing_known = Calibration(estimates)
    before, calibrated = errors_of(cells, nothing_known), calibrated_errors(cells, estimates)
    rows = []
    for one in cells:
        said = nothing_known.predict(one.cell, steps=int(one.status.steps))
        errors = calibrated[one.cell.id]
        rows.append(
            {
                "arm": one.cell.arm,
                "link": one.cell.config.link.describe(),
                "nodes": one.cell.config.nodes,
                "model": one.cell.config.model.name,
                "steps": one.status.steps,
                "wall_s": one.wall_s,
                "overhead_s": one.status.overhead_s,
                "training_s": one.status.training_clock_s,
                "evaluation_s": one.status.evaluation_s,
                "predicted_s": said.total_s,
                "predicted_overhead_s": said.overhead_s,
                "predicted_training_s": said.training_s,
                "predicted_evaluation_s": said.evaluation_s,
                "error_before": before[one.cell.id],
                "error_calibrated": statistics.median(errors) if errors else None,
                "errors_calibrated": errors,
            }
        )
    return sorted(rows, key=lambda row: (row["arm"], row["link"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, two nodes, two methods on one link")
    parser.add_argument("--results", type=Path, help="whole cells that have finished on this machine; nothing is run")
    parser.add_argument("--step-time", default="100 ms", help="declared duration of a step's computing, or none")
    options = parser.parse_args()
    if options.results is not None:
        try:
            cells = finished_in(options.results)
        except BwbenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    else:
        with tempfile.TemporaryDirectory() as folder:
            step_time = "20 ms" if options.quick else options.step_time
            padding = "" if step_time == "none" else f", step_time: {step_time}"
            text = EXPERIMENT.format(**(QUICK if options.quick else FULL), step_time=padding)
            run(text, Path(folder), QUICK_LIMIT_S if options.quick else RUN_LIMIT_S)
            cells = finished_in(Path(folder))
    if len(cells) < 2:
        print(f"{len(cells)} whole cells are done: at least 2 are needed", file=sys.stderr)
        return 1
    rows = rows_of(cells)
    for row in rows:
        calibrated = f"{100 * row['error_calibrated']:+6.1f} %"
        parts = ", ".join(
            f"{name} {row[f'predicted_{name}_s']:.1f} ({row[f'{name}_s'] or 0:.1f})"
            for name in ("overhead", "training", "evaluation")
        )
        print(
            f"{row['arm']:16.16} {row['link'].partition(',')[0]:>11}  {row['wall_s']:7.1f} s, predicted "
            f"{row['predicted_s']:7.1f} s: {100 * row['error_before']:+6.1f} %, calibrated {calibrated}; {parts}"
        )
    summary = {
        "median_error_before": statistics.median(abs(row["error_before"]) for row in rows),
        "median_error_calibrated": statistics.median(abs(error) for row in rows for error in row["errors_calibrated"]),
    }
    print(
        f"{len(rows)} cells: off by {100 * summary['median_error_before']:.1f} % (median) before any run, by "
        f"{100 * summary['median_error_calibrated']:.1f} % once half of them have finished"
    )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows, **summary}, indent=1) + "\n")
    good = summary["median_error_before"] <= MOST_BEFORE and summary["median_error_calibrated"] <= MOST_CALIBRATED
    return 0 if options.quick or good else 1


if __name__ == "__main__":
    sys.exit(main())
