"""What an experiment has cost, how much of it was measured whole, and how well its links did what was asked.

Convergence, timing and tuning runs are no cells of an experiment and took machine time for it. They lie in hidden
folders of the results. A published experiment keeps how long each of them took.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bwbench.base.errors import RecordError
from bwbench.base.plain_data import mapping_at
from bwbench.records import CellFolder
from bwbench.records.packed import id_of, read_packed
from bwbench.records.schema import CellRecord, JsonObject, PublishedRun
from bwbench.results.analysis.caveats import ComposedError, Spread, commit_of, composed_error, host_of, link_errors
from bwbench.results.analysis.cells import DONE, Row, state_of

# Where sweeps and tuning keep them (plan/composing.py, tuning/search.py).
CONVERGENCE_FOLDER, TUNING_FOLDER = ".convergence", ".tuning"  # below results/
TIMING_FOLDER = ".timing"  # below results/<experiment>/
RunKind = Literal["convergence", "timing", "tuning"]
KINDS: tuple[RunKind, ...] = ("convergence", "timing", "tuning")
# What a search for a learning rate is made for once, whatever the link and the seed.
_WORKLOAD = ("nodes", "model", "dataset", "batch_size", "accumulate", "algorithm", "collective", "compression")


def runs_of(
    experiments: Iterable[Path], convergence: Collection[str], cells: Iterable[CellRecord]
) -> list[PublishedRun]:
    """The runs that an experiment's cells rest on, those in folders and those that were published; by kind and id.

    Args:
        experiments: the folders that its cells are in: that of its own runs, and that of its published set.
        convergence: ids of the convergence runs that its cells were composed from.
        cells: cell.json of its cells: tuning runs of the same workloads belong to them.
    """
    workloads = {_workload(cell.config) for cell in cells}
    published, there = dict[tuple[str, str], PublishedRun](), dict[tuple[str, str], PublishedRun]()
    for experiment in experiments:
        packed, root = read_packed(experiment), experiment.parent
        published |= {(run.kind, run.id): run for run in (packed.runs if packed is not None else ())}
        in_folders = (
            _in(experiment / TIMING_FOLDER, "timing"),
            _in(root / CONVERGENCE_FOLDER, "convergence", convergence),
            _in(root / TUNING_FOLDER, "tuning", workloads=workloads),
        )
        there |= {(run.kind, run.id): run for run in itertools.chain.from_iterable(in_folders)}
    found = published | there
    return [found[key] for key in sorted(found)]


def _in(
    store: Path, kind: RunKind, ids: Collection[str] | None = None, workloads: Collection[str] | None = None
) -> Iterator[PublishedRun]:
    """Runs in a hidden folder that have ended: of these ids, of these workloads."""
    try:
        names = sorted(os.listdir(store))
    except OSError:
        return
    for name in names:
        if ids is not None and id_of(name) not in ids:
            continue
        folder = CellFolder(store / name)
        try:
            cell, status, environment = folder.cell, folder.status, folder.environment
        except RecordError:  # `bwbench status` of the store names it; here its time is not known
            continue
        if status is None or status.wall_s is None:
            continue
        if workloads is not None and _workload(cell.config) not in workloads:
            continue
        yield PublishedRun(
            kind=kind,
            id=cell.id,
            slug=cell.slug,
            arm=cell.arm,
            status=status.status,
            wall_s=status.wall_s,
            training_clock_s=status.training_clock_s,
            host=host_of(environment),
            commit=commit_of(environment),
        )


def _workload(config: JsonObject) -> str:
    kept = {key: config.get(key) for key in _WORKLOAD}
    kept["optimizer"] = mapping_at(config, "optimizer").get("name")
    return json.dumps(kept, sort_keys=True)


WHOLE = "whole"
_SUMMED = ("num_cells", "num_unreadable", "num_done", "num_whole", "num_composed", "num_unknown", "num_links",
           "errors", "goodput", "rtt")  # fmt: skip


@dataclass
class Spent:
    """One experiment, or all of them together.

    Attributes:
        whole_s: wall time of cells that ran whole, by cell; of the last attempt at each, however it ended.
        runs_s: wall time of convergence, timing and tuning runs: by kind, then by what tells them apart.
        num_done, num_whole, num_composed: cells that are done, and how they came by their result.
        num_unreadable: cells whose records cannot be read, and which count nowhere else.
        num_unknown: runs that cells were composed from, and of which the records say nothing.
        errors: of the cells that ran whole and were composed as well.
        goodput, rtt: measured over asked, less one: every pair of neighbours, before and after training; each
            measured link once, however many cells rest on it.
    """

    experiment: str
    whole_s: dict[str, float] = field(default_factory=dict)
    runs_s: dict[str, dict[str, float]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    num_cells: int = 0
    num_unreadable: int = 0
    num_done: int = 0
    num_whole: int = 0
    num_composed: int = 0
    num_unknown: int = 0
    errors: list[ComposedError] = field(default_factory=list)
    num_links: int = 0
    goodput: list[float] = field(default_factory=list)
    rtt: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each kind of run."""
        return {WHOLE: sum(self.whole_s.values())} | {kind: sum(runs.values()) for kind, runs in self.runs_s.items()}

    @property
    def total_s(self) -> float:
        """Wall time of all that was run for it; runs that experiments share count in each of them."""
        return sum(self.seconds.values())

    def add(self, other: Spent) -> None:
        """Take in another experiment; a run that both name counts once."""
        self.whole_s |= other.whole_s
        for kind, runs in other.runs_s.items():
            self.runs_s[kind] |= runs
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_json(self) -> Row:
        """As ``bwbench status --spent --json`` prints it."""
        off = Spread.of(error.error for error in self.errors)
        known = [error.inside for error in self.errors if error.inside is not None]
        return {
            "experiment": self.experiment,
            "machine_s": self.total_s,
            "machine_s_by_kind": self.seconds,
            "num_runs": {WHOLE: len(self.whole_s)} | {kind: len(runs) for kind, runs in self.runs_s.items()},
            "num_unknown_runs": self.num_unknown,
            "cells": self.num_cells,
            "done": self.num_done,
            "whole": self.num_whole,
            "composed": self.num_composed,
            "whole_share": self.num_whole / self.num_done if self.num_done else None,
            "composed_error": {**vars(off), "inside": sum(known), "with_interval": len(known)},
            "links": self.num_links,
            "goodput_error": vars(Spread.of(self.goodput)),
            "rtt_error": vars(Spread.of(self.rtt)),
        }


def spent(cells: Iterable[CellFolder]) -> tuple[list[Spent], Spent]:
    """Of every experiment that ``cells`` are of, and of all together, in which shared runs count once.

    Args:
        cells: in the order of ``iter_cells``.
    """
    found = [_spent(name, of_one) for name, of_one in itertools.groupby(cells, lambda cell: cell.path.parent.name)]
    total = Spent("all")
    for one in found:
        total.add(one)
    return found, total


def _spent(experiment: str, cells: Iterable[CellFolder]) -> Spent:
    found = Spent(experiment)
    folders: dict[Path, None] = {}  # of its own runs, and of its published set
    needed: dict[str, set[str]] = {kind: set() for kind in KINDS}
    planned, measured = [], set()
    for cell in cells:
        folders[cell.path.parent] = None
        if cell.problem is not None:
            found.num_unreadable += 1
            continue
        planned.append(cell.cell)
        found.num_cells += 1
        source = _take(found, cell, needed)
        if source not in measured and cell.link is not None and state_of(cell) == DONE:
            measured.add(source)
            errors = link_errors([cell])
            found.goodput += [error.goodput for error in errors if error.goodput is not None]
            found.rtt += [error.rtt for error in errors if error.rtt is not None]
            found.num_links += any(error.goodput is not None or error.rtt is not None for error in errors)
    for run in runs_of(folders, needed["convergence"], planned):
        scope = experiment if run.kind == "timing" else ""  # others are shared by all experiments
        found.runs_s[run.kind][f"{scope}/{run.id}"] = run.wall_s
        needed[run.kind].discard(run.id)
    found.num_unknown = sum(map(len, needed.values()))
    return found


def _take(found: Spent, cell: CellFolder, needed: Mapping[str, set[str]]) -> str:
    """Count one cell; returns the run in which its link was measured."""
    source, status = cell.cell.id, cell.status
    if (composed := cell.composed_beside) is not None:
        needed["convergence"].add(composed.convergence)
        needed["timing"].update(composed.timings or (composed.timing,))
    done = state_of(cell) == DONE
    found.num_done += done
    if cell.composed is not None:
        found.num_composed += done
        return cell.composed.timing
    found.num_whole += done
    # Of a cell that could not be composed the wall time is that of composing: the run that failed counts by itself.
    if status is not None and status.wall_s is not None and status.undone_part is None:
        found.whole_s[f"{found.experiment}/{source}"] = status.wall_s
    if (error := composed_error(cell)) is not None:
        found.errors.append(error)
    return source
