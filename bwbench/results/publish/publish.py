"""Experiment folders into one small file each. Cells that were published before and have no folder here stay in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bwbench.base.errors import ConfigError, PackedRecordsError, RecordError
from bwbench.records import iter_cells, read_record
from bwbench.records.lock import locked
from bwbench.records.packed import PACKED, read_packed, write_packed
from bwbench.records.schema import PlanRecord, PublishedPlan
from bwbench.results.analysis.cells import state_of
from bwbench.results.analysis.runs import runs_of
from bwbench.results.publish.entry import entry_of


@dataclass(frozen=True)
class Published:
    """What became of one experiment.

    Attributes:
        path: of the file.
        num_cells: in it, of which ``num_undone`` ended otherwise than done.
        left_out: a line for each cell that is not in it, and why.
    """

    experiment: str
    path: Path
    num_cells: int
    num_undone: int
    num_bytes: int
    left_out: list[str] = field(default_factory=list)


def publish(folder: Path, out: Path | None = None) -> Iterator[Published]:
    """Write the published file of every experiment in ``folder``: a results folder, or one experiment.

    Args:
        out: results folder for the files; by default each lies in its experiment.

    Raises ConfigError where there is nothing to publish, RecordError where a file cannot be read or written.
    """
    experiments = _experiments(folder)
    if not experiments:
        hint = "name a results folder or one experiment in it, or make one with `bwbench run FILE`"
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")
    for experiment in experiments:
        try:
            target = experiment if out is None else out / experiment.name
            with locked(target):
                yield _publish(experiment, target)
        except OSError as error:
            raise RecordError(f"{error.filename or experiment}: {error.strerror or error}") from None


def _experiments(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name a results folder or one experiment in it")
    if (folder / "cell.json").is_file():
        raise ConfigError(f"{folder} is a single cell; name the experiment that it belongs to: {folder.parent}")
    children = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    if (folder / PACKED).is_file() or any((child / "cell.json").is_file() for child in children):
        return [folder.resolve()]
    return [child for child in children if next(iter_cells(child), None) is not None]


def _publish(experiment: Path, target: Path) -> Published:
    entries, left_out, name, undone = {}, [], experiment.name, 0
    convergence: set[str] = set()
    cells = []
    for cell in iter_cells(experiment):
        try:
            if cell.problem is None and cell.status is None:
                left_out.append(f"{cell.path.name}: {state_of(cell)}")
                continue
            entries[cell.path.name] = entry_of(cell)
        except PackedRecordsError:
            raise
        except RecordError as error:
            left_out.append(str(error))
            continue
        name = cell.cell.experiment
        undone += state_of(cell) != "done"
        if (composed := cell.composed_beside) is not None:
            convergence.add(composed.convergence)
        cells.append(cell.cell)
    if not entries:
        raise ConfigError(f"{experiment}: none of its cells has ended; there is nothing to publish")
    before = read_packed(experiment)
    about = None
    try:
        if (plan := read_record(PlanRecord, experiment / "plan.json")) is not None:
            about = PublishedPlan(experiment=plan.experiment, order=plan.order)
    except RecordError as error:
        left_out.append(str(error))
    runs = runs_of(experiment, convergence, cells)
    path = write_packed(target, name, entries, runs, about or (before.plan if before else None))
    return Published(name, path, len(entries), undone, path.stat().st_size, left_out)
