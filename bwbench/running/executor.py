"""What has machines and runs cells on them: this machine (``this_machine.py``), or a Ray cluster (``cluster/``).

An executor is given cells for its machines, and reports how these ended. Who gives them, a sweep's scheduler or a
search for learning rates, does not tell executors apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Status
from bwbench.running.run_cell import CellObserver


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

    def takes(self, item: PlannedCell, running: Sequence[PlannedCell]) -> bool:
        """Whether a cell may begin while these run; else it waits, and all behind it do."""

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        """Have a machine run a cell; returns the key of its report.

        Args:
            wall_limit_s: seconds after which the training is ended as ``timeout``.
            observer: told by ``reports`` what happens to the cell, and no more once its end has been reported.
        """

    def reports(self, limit_s: float) -> list[Report]:
        """Cells that have ended since the last call; waits ``limit_s`` for something to happen."""
