"""How good is each arm of an experiment after equal samples, beside a baseline of the same seeds? A table in Markdown.

Reads what has been trained without a link: convergence runs of composed cells, and cells of virtual nodes. So it knows
the answer before a single step has been timed on a link. Only cells that the experiment plans count: those at another
rate, of an earlier search, do not. Metrics are those of the last look at the test split. ± is the 95 % interval of the
mean over the seeds (Student's t); a difference is that of the same seed.

Usage: python benchmarks/equal_samples.py EXPERIMENT.yaml [--results DIR] [--metric accuracy|loss] [--baseline ARM]
                                          [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import Cell, build_plan
from bwbench.experiment.plan.composing import CONVERGENCE_FOLDER, convergence_config
from bwbench.records import CellFolder
from bwbench.records.cell_identity import identity
from bwbench.records.schema import Evaluation
from bwbench.results.analysis.student import student_t
from bwbench.results.analysis.trial import evaluations

Mean = tuple[float, float | None]  # and half of its interval; None for fewer than two


def folders_of(results: Path, experiment: str) -> dict[str, Path]:
    """Folders of what has no link, by the id of their cell."""
    places = [results / experiment, results / CONVERGENCE_FOLDER]
    found = [folder for place in places if place.is_dir() for folder in place.iterdir() if folder.is_dir()]
    return {folder.name.rpartition("-")[2]: folder for folder in found}


def last_test(folder: Path) -> dict[str, float] | None:
    """Metrics of the last look at the test split, mean over the nodes; None where training has not ended well."""
    cell = CellFolder(folder)
    if cell.status is None or cell.status.status != "done":
        return None
    tests: list[Evaluation] = evaluations(cell.events()[0], "test")
    return {key: value for key, value in tests[-1].mean.items() if value is not None} if tests else None


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and half of its 95 % interval."""
    if len(values) < 2:
        return values[0], None
    return statistics.fmean(values), student_t(len(values) - 1.0) * statistics.stdev(values) / math.sqrt(len(values))


def rows_of(cells: Sequence[Cell], folders: dict[str, Path], metric: str, baseline: str) -> list[dict[str, Any]]:
    """A row for each arm, the best first."""
    found: dict[str, dict[int, float]] = {}
    about: dict[str, dict[str, Any]] = {}
    for cell in cells:
        ids = (cell.id, identity(convergence_config(cell.config)))
        # a cell that is planned and not yet composed has a folder, too
        tested = ((folders[one], last_test(folders[one])) for one in ids if one in folders)
        folder, metrics = next((found for found in tested if found[1] is not None), (None, None))
        row = about.setdefault(cell.arm, {"arm": cell.arm, "planned": set(), "undone": set()})
        row["planned"].add(cell.config.seed)
        if folder is None or metrics is None or metric not in metrics:
            row["undone"].add(cell.config.seed)
            continue
        status = CellFolder(folder).status
        found.setdefault(cell.arm, {})[cell.config.seed] = metrics[metric]
        row |= {"optimizer": cell.config.optimizer.name, "lr": getattr(cell.config.optimizer.options, "lr", None)}
        if status is not None and status.payload_bytes is not None and status.steps:
            row["payload_bytes_per_step"] = status.payload_bytes / status.steps / cell.config.nodes
    rows = []
    for arm, by_seed in found.items():
        value, half = mean_of([*by_seed.values()])
        against = [by_seed[seed] - found[baseline][seed] for seed in by_seed if seed in found.get(baseline, {})]
        difference = mean_of(against) if against and arm != baseline else (None, None)
        row = {**about[arm], "n": len(by_seed), "planned": len(about[arm]["planned"]), "value": value, "half": half}
        rows.append(row | {"difference": difference[0], "difference_half": difference[1], "undone": None})
    return sorted(rows, key=lambda row: row["value"], reverse=metric == "accuracy")


def shown(row: dict[str, Any], metric: str) -> str:
    """One line of the table; accuracy in percent, differences of it in points."""
    scale, digits = (100.0, 2) if metric == "accuracy" else (1.0, 4)

    def text(value: float | None, half: float | None, sign: str = "") -> str:
        if value is None:
            return "-"
        return f"{value * scale:{sign}.{digits}f}" + ("" if half is None else f" ± {half * scale:.{digits}f}")

    sent = row.get("payload_bytes_per_step")
    columns = (
        f"`{row['arm']}`",
        f"{row['optimizer']} {row['lr']:g}",
        f"{row['n']} of {row['planned']}",
        text(row["value"], row["half"]),
        text(row["difference"], row["difference_half"], "+"),
        "-" if not sent else f"{sent / 1e3:.1f} kB",
    )
    return "| " + " | ".join(columns) + " |"


def main() -> int:
    """Print the table; exit status 1 where nothing has been trained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--metric", choices=("accuracy", "loss"), default="accuracy")
    parser.add_argument("--baseline", default="ring")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    experiment = load_experiment(options.experiment)
    cells, folders = build_plan(experiment).cells, folders_of(options.results, experiment.name)
    rows = rows_of(cells, folders, options.metric, options.baseline)
    if not rows:
        print(f"nothing of {options.experiment} has been trained below {options.results}", file=sys.stderr)
        return 1
    unit = ", %" if options.metric == "accuracy" else ""
    print(f"| arm | optimizer, rate | seeds | test {options.metric}{unit} | beside {options.baseline} | sent a step |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(shown(row, options.metric))
    if options.json:
        options.json.write_text(json.dumps({"experiment": experiment.name, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
