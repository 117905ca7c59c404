"""Runs that are no cells of an experiment and took machine time for it: convergence, timing and tuning runs.

They lie in hidden folders of the results. A published experiment keeps how long each of them took.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from bwbench.base.errors import RecordError
from bwbench.base.plain_data import mapping_at
from bwbench.records import CellFolder
from bwbench.records.packed import id_of, read_packed
from bwbench.records.schema import CellRecord, JsonObject, PublishedRun
from bwbench.results.analysis.provenance import commit_of, host_of

# Where sweeps and tuning keep them (plan/composing.py, tuning/search.py).
CONVERGENCE_FOLDER, TUNING_FOLDER = ".convergence", ".tuning"  # below results/
TIMING_FOLDER = ".timing"  # below results/<experiment>/
RunKind = Literal["convergence", "timing", "tuning"]
CONVERGENCE: RunKind = "convergence"
TIMING: RunKind = "timing"
TUNING: RunKind = "tuning"
KINDS = (CONVERGENCE, TIMING, TUNING)
# What a search for a learning rate is made for once, whatever the link and the seed.
_WORKLOAD = ("nodes", "model", "dataset", "batch_size", "accumulate", "algorithm", "collective", "compression")


def runs_of(experiment: Path, convergence: Collection[str], cells: Iterable[CellRecord]) -> list[PublishedRun]:
    """The runs that an experiment's cells rest on, those in folders and those that were published; by kind and id.

    Args:
        convergence: ids of the convergence runs that its cells were composed from.
        cells: cell.json of its cells: tuning runs of the same workloads belong to them.
    """
    packed = read_packed(experiment)
    published = packed.runs if packed is not None else ()
    found = {(run.kind, run.id): run for run in published}
    workloads = {_workload(cell.config) for cell in cells}
    root = experiment.parent
    there = (
        _in(experiment / TIMING_FOLDER, TIMING),
        _in(root / CONVERGENCE_FOLDER, CONVERGENCE, convergence),
        _in(root / TUNING_FOLDER, TUNING, workloads=workloads),
    )
    found |= {(run.kind, run.id): run for run in itertools.chain.from_iterable(there)}
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
