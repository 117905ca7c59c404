"""Where cells run: an executor has machines, is given cells for them, and reports how these ended.

There are two, which the scheduler (``scheduler.py``) does not tell apart: this machine, one cell after another in this
process, and a Ray cluster (``cluster/ray_executor.py``). Slurm is no third. Its jobs begin hours after they were
submitted and have limits of their own, so that a scheduler here would have to live on a login node for as long as the
queue is, which sites forbid. Each task of an array job is a sweep of its own on a machine of its own instead
(``cluster/job_scripts.py``), by this same scheduler, and claims in the results folder keep the tasks apart.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bwbench.base.errors import CellTakenError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Status
from bwbench.running.composed import run_item
from bwbench.running.run_cell import CellObserver, RunCell

COMPRESSION = 1  # records are text that shrinks eightfold at the lowest level; the machine has other work to do


@dataclass(frozen=True)
class Machine:
    """One node of a cluster, or this machine.

    Attributes:
        node: its id in the cluster.
        host: the same for all nodes on one physical machine.
        name: for messages; empty where there is but one.
        cpus: that may be used there.
        shared: whether it sees the results folder.
        problem: why it cannot be used; None where it can.
    """

    node: str
    host: str
    name: str
    cpus: float
    shared: bool
    problem: str | None = None


def free_machines(machines: Iterable[Machine], busy: Iterable[Machine], cells_per_machine: int) -> list[Machine]:
    """The usable machines that may take one more cell, those with the fewest first.

    Nodes on one physical machine share its cores, and so its ``cells_per_machine``.
    """
    busy = list(busy)
    on_host, on_node = Counter(m.host for m in busy), Counter(m.node for m in busy)
    free = [m for m in machines if m.problem is None and on_host[m.host] < cells_per_machine]
    return sorted(free, key=lambda m: (on_host[m.host], on_node[m.node]))


@dataclass(frozen=True)
class Finished:
    """A cell has ended, whichever way.

    Attributes:
        status: content of its status.json.
        bundle: the attempt, as ``pack`` gives it, from a machine that does not see the results folder.
    """

    status: Status
    bundle: bytes | None = None


@dataclass(frozen=True)
class TakenElsewhere:
    """Another process runs the cell."""


@dataclass(frozen=True)
class Unfit:
    """The machine cannot run the cell, nor any other; another machine may."""

    why: str


@dataclass(frozen=True)
class Lost:
    """The cell will never end: its machine is gone, or the process that ran it."""

    why: str


@dataclass(frozen=True)
class Report:
    """What has become of a cell that was started.

    Attributes:
        key: as ``start`` gave it.
    """

    key: int
    end: Finished | TakenElsewhere | Unfit | Lost


class Executor(Protocol):
    """Machines at work.

    Attributes:
        cells_per_machine: that may run at the same time on one physical machine.
    """

    cells_per_machine: int

    def machines(self) -> Sequence[Machine]:
        """All that are there now and have said what they are, usable or not."""

    @property
    def is_asking(self) -> bool:
        """Whether machines are there that have not yet said what they are."""

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        """Have a machine run a cell; returns the key of its report.

        Args:
            wall_limit_s: seconds after which the training is ended as ``timeout``.
            observer: told by ``reports`` what happens to the cell, and no more once its end has been reported.
        """

    def reports(self, limit_s: float) -> list[Report]:
        """Cells that have ended since the last call; waits ``limit_s`` for something to happen."""


class ThisMachine:
    """One cell after another, in this process: it runs while somebody waits for its report.

    Args:
        run: runs one cell.
    """

    def __init__(self, run: RunCell = run_item) -> None:
        self.cells_per_machine = 1
        self._run = run
        self._machine = Machine("here", "here", "", float(os.cpu_count() or 1), shared=True)
        self._started: tuple[int, PlannedCell, float, CellObserver] | None = None
        self._keys = 0

    def machines(self) -> Sequence[Machine]:
        """This one."""
        return [self._machine]

    @property
    def is_asking(self) -> bool:
        """Nothing has to be asked."""
        return False

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        """Keep the cell for the next call of ``reports``."""
        self._keys += 1
        self._started = self._keys, item, wall_limit_s, observer
        return self._keys

    def reports(self, limit_s: float) -> list[Report]:
        """Run the cell to its end.

        Raises what ``run_item`` raises but CellTakenError: where this machine is unfit there is no other one.
        """
        if self._started is None:
            time.sleep(limit_s)
            return []
        key, item, wall_limit_s, observer = self._started
        self._started = None
        try:
            return [Report(key, Finished(self._run(item, wall_limit_s, observer)))]
        except CellTakenError:
            return [Report(key, TakenElsewhere())]


def pack(attempt: Path) -> bytes:
    """The folder of an attempt as a compressed tar, under its own name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=COMPRESSION) as archive:
        archive.add(attempt, arcname=attempt.name)
    return buffer.getvalue()


def unpack(bundle: bytes, cell_folder: Path) -> None:
    """Put what ``pack`` made into the cell's folder.

    Links and paths that lead out of the folder are refused (tarfile's ``data`` filter). Raises OSError where the disk
    is full or not writable, tarfile.TarError where the bundle is broken.
    """
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as archive:
        archive.extractall(cell_folder, filter="data")
