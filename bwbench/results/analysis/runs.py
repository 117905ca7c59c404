"""Runs that are no cells of an experiment and took machine time for it: convergence, timing and tuning runs.

They lie in hidden folders of the results. A published experiment keeps how long each of them took.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bwbench.records import CellFolder, read_json
from bwbench.records.packed import id_of, read_packed
from bwbench.results.analysis.provenance import commit_of, host_of

# Where sweeps and tuning keep them (plan/composed.py, tuning/searches.py).
CONVERGENCE_FOLDER, TUNING_FOLDER = ".convergence", ".tuning"  # below results/
TIMING_FOLDER = ".timing"  # below results/<experiment>/
CONVERGENCE, TIMING, TUNING = "convergence", "timing", "tuning"
KINDS = (CONVERGENCE, TIMING, TUNING)
# What a search for a learning rate is made for once, whatever the link and the seed.
_WORKLOAD = ("nodes", "model", "dataset", "batch_size", "accumulate", "algorithm", "collective", "compression")


@dataclass(frozen=True)
class Run:
    """One such run.

    Attributes:
        kind: one of KINDS.
        wall_s: from its start to its end; of its last attempt.
        host, commit: empty where it was not recorded.
    """

    kind: str
    id: str
    slug: str
    arm: str
    status: str
    wall_s: float
    training_clock_s: float | None = None
    host: str = ""
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def runs_of(experiment: Path, convergence: Collection[str], cells: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs that an experiment's cells rest on, those in folders and those that were published; by kind and id.

    Args:
        convergence: ids of the convergence runs that its cells were composed from.
        cells: cell.json of its cells: tuning runs of the same workloads belong to them.
    """
    packed = read_packed(experiment)
    published = packed.runs if packed is not None else ()
    found = {(run["kind"], run["id"]): _of_json(run) for run in published}
    workloads = {_workload(cell["config"]) for cell in cells}
    root = experiment.parent
    there = (
        _in(experiment / TIMING_FOLDER, TIMING),
        _in(root / CONVERGENCE_FOLDER, CONVERGENCE, convergence),
        _in(root / TUNING_FOLDER, TUNING, workloads=workloads),
    )
    found |= {(run.kind, run.id): run for run in itertools.chain.from_iterable(there)}
    return [found[key] for key in sorted(found)]


def _of_json(run: Mapping[str, Any]) -> Run:
    return Run(**{key: run[key] for key in Run.__dataclass_fields__ if key in run})


def _in(
    store: Path, kind: str, ids: Collection[str] | None = None, workloads: Collection[str] | None = None
) -> Iterator[Run]:
    """Runs in a hidden folder that have ended: of these ids, of these workloads."""
    try:
        names = sorted(os.listdir(store))
    except OSError:
        return
    for name in names:
        if ids is not None and id_of(name) not in ids:
            continue
        folder, status = CellFolder(store / name), read_json(store / name / "status.json")
        if not isinstance(status, dict) or status.get("wall_s") is None:
            continue
        cell = read_json(store / name / "cell.json")
        if not isinstance(cell, dict) or (workloads is not None and _workload(cell["config"]) not in workloads):
            continue
        environment = folder.environment or {}
        yield Run(
            kind,
            str(cell["id"]),
            str(cell["slug"]),
            str(cell["arm"]),
            str(status.get("status")),
            float(status["wall_s"]),
            status.get("training_clock_s"),
            host_of(environment),
            commit_of(environment),
        )


def _workload(config: Mapping[str, Any]) -> str:
    kept = {key: config.get(key) for key in _WORKLOAD}
    kept["optimizer"] = (config.get("optimizer") or {}).get("name")
    return json.dumps(kept, sort_keys=True)
