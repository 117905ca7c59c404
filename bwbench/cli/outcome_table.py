"""The table at the end of a run: which method got there first, and whether several nodes were worth it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TypeAlias

from bwbench.cli.cell_table import time_to_target
from bwbench.cli.output import MAX_ROWS, new_table, size, stderr, stdout
from bwbench.cli.results_folder import say_unreadable
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.methods.roles import REFERENCE
from bwbench.records import CellFolder, cell_at
from bwbench.records.schema import Status
from bwbench.results.analysis.cells import is_composed
from bwbench.results.analysis.composed_error import composed_errors, composed_note
from bwbench.results.analysis.grouping import flat_settings, group_cells
from bwbench.results.analysis.provenance import provenance_note
from bwbench.running.sweep.account import Tally

Row: TypeAlias = tuple[PlannedCell, CellFolder, Status]
MOST_REASONS = 20  # of cells that are not done, each of some lines
_METHOD_KEYS = ("nodes", "link", "algorithm", "collective", "compression")


def print_outcome(planned: Sequence[PlannedCell], tally: Tally) -> None:
    """Print a table of the cells that are done on stdout, fastest first; what else is to be said of all on stderr."""
    found = [(item, cell_at(item.folder)) for item in planned]
    cells = [(item, folder, folder.status) for item, folder in found if folder.problem is None]
    done = [(item, folder, status) for item, folder, status in cells if status is not None and status.status == "done"]
    done.sort(key=lambda row: _time_to_target(row[2]))
    if done:
        _print_table(done, _Singles([(item, status) for item, _, status in cells]))
    folders = [folder for _, folder, _ in done]
    composed = composed_note(sum(map(is_composed, folders)), len(done), [e.error for e in composed_errors(folders)])
    for note in (composed, provenance_note(folders)):
        if note:
            stderr().print(f"note: {note}")
    undone = [(item, status) for item, _, status in cells if status is not None and status.status != "done"]
    for item, status in undone[:MOST_REASONS]:
        stderr().print(f"{item.cell.slug}: {status.status}: {status.reason or ''}")
    if len(undone) > MOST_REASONS:
        stderr().print(f"… and {len(undone) - MOST_REASONS} more; `bwbench status` lists all")
    say_unreadable([folder.problem for _, folder in found if folder.problem is not None])
    if left := {status: count for status, count in tally.earlier.items() if status in ENDED_UNDONE}:
        again = " ".join(f"--retry {status}" for status in sorted(left))
        stderr().print(
            f"{sum(left.values())} cell(s) had ended badly before and were left alone; {again} runs them again"
        )


def _print_table(done: Sequence[Row], singles: _Singles) -> None:
    # Flat names of what tells cells of one method on one link apart, as ``batch_size`` or ``model.name``.
    settings = [name for name, _ in group_cells([folder for _, folder, _ in done], {"link"})[0].key]
    right = ("time to target", "vs single", "samples to target", "final", "payload/step", "wire/step")
    varied = (name.removesuffix(".name") for name in settings)
    table = new_table("method", *varied, "link", *right, "goodput asked", "achieved", right=right)
    for item, folder, status in done[:MAX_ROWS]:
        method, *rest = _row(item, folder, status, singles.time_s(item))
        flat = flat_settings(folder)
        table.add_row(method, *(str(flat.get(name, "-")) for name in settings), *rest)
    stdout().print(table)
    if len(done) > MAX_ROWS:
        stderr().print(f"… and {len(done) - MAX_ROWS} slower ones; `bwbench status` lists all")


def _row(item: PlannedCell, folder: CellFolder, status: Status, single_s: float) -> tuple[str, ...]:
    own_s = _time_to_target(status)
    ratio = single_s / own_s if own_s > 0 else math.nan  # 0: a target that is met before the first step
    wire = folder.link.wire if folder.link is not None else None
    asked, achieved = _goodput(folder)
    return (
        f"{item.cell.arm}" + (f" (seed {item.cell.config.seed})" if item.cell.config.seed else ""),
        item.cell.config.link.describe().partition(" (")[0],
        time_to_target(status.time_to_target_s, status.censored_at_s, composed=status.composed is not None),
        f"{ratio:.2f}x" if math.isfinite(ratio) and ratio > 0 else "-",
        str(status.samples_to_target or "-"),
        f"{status.final_metric:.3f}" if status.final_metric is not None else "-",
        size(_per_step(status, status.payload_bytes)),
        size(wire.per_step_bytes if wire is not None else _per_step(status, status.wire_bytes)),
        asked,
        achieved,
    )


def _per_step(status: Status, num_bytes: int | None) -> float | None:
    return num_bytes / status.steps if status.steps and num_bytes is not None else None


def _goodput(folder: CellFolder) -> tuple[str, str]:
    """Asked and achieved goodput between neighbours before training, in Mbit/s: lowest and highest of all pairs."""
    measured = folder.link.achieved_before if folder.link is not None else None
    if measured is None or not measured.pairs or not (asked_bps := measured.pairs[0].asked_goodput_bps):
        return "-", "-"
    achieved = sorted((pair.achieved_goodput_bps or 0.0) / 1e6 for pair in measured.pairs)
    return f"{asked_bps / 1e6:.4g} Mbit/s", f"{achieved[0]:.4g}-{achieved[-1]:.4g}"


def _time_to_target(status: Status | None) -> float:
    reached_s = status.time_to_target_s if status is not None else None
    return reached_s if reached_s is not None else math.inf


class _Singles:
    """The `single` cell that each other one compares with: they differ in how nodes agree, and over what link.

    Where every arm has a learning rate of its own, it is the only one that differs in nothing but its optimizer.
    """

    def __init__(self, cells: Sequence[tuple[PlannedCell, Status | None]]) -> None:
        self._found: dict[str, list[float]] = {}
        for item, status in cells:
            if item.cell.role == REFERENCE:
                done = status is not None and status.status == "done"
                for workload in _workloads(item):
                    self._found.setdefault(workload, []).append(_time_to_target(status) if done else math.nan)

    def time_s(self, item: PlannedCell) -> float:
        """Its time to target; nan where there is none to compare with."""
        if not self._found:
            return math.nan
        found = (self._found.get(workload, []) for workload in _workloads(item))
        return next((times_s[0] for times_s in found if len(times_s) == 1), math.nan)


def _workloads(item: PlannedCell) -> list[str]:
    """What is trained, with and without its optimizer."""
    config = item.cell.config.model_dump(mode="json", by_alias=True, exclude=set(_METHOD_KEYS))
    without = {key: value for key, value in config.items() if key != "optimizer"}
    return [json.dumps(content, sort_keys=True) for content in (config, without)]
