"""What one machine does with one cell: runs it in the results folder if it sees that, else in a folder of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bwbench.base.errors import CellTakenError, UnfitMachineError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import Way
from bwbench.records.schema import Event, Status
from bwbench.running.cluster.bundle import pack
from bwbench.running.composed import run_item
from bwbench.running.launch.machine_turn import SHARE

LOOK_FOR_PARENT_S = 0.5
TEMPORARY = "bwbench-cell-"  # begins the names of folders of cells that are brought back
YOUNG_S = 60.0  # a folder that nobody holds may have been made just now

Post = Callable[[str, Any, Any], None]


@dataclass(frozen=True)
class Work:
    """A cell for a machine.

    Attributes:
        cell: content of cell.json.
        folder: of the cell, absolute.
        shared: whether the machine sees that folder; else what it records comes back with the outcome.
        alone: whether no other cell may run on the machine meanwhile.
        status, attempt, way: of the planned cell.
        number: of the attempt to be made, where the folder is not shared.
        wall_limit_s: seconds after which the training is ended as ``timeout``.
    """

    cell: dict[str, Any]
    folder: str
    shared: bool
    alone: bool
    status: str
    attempt: int
    way: Way
    number: int
    wall_limit_s: float


@dataclass(frozen=True)
class Outcome:
    """How it went.

    Attributes:
        kind: ``ended`` with what was recorded; ``taken``, where another process runs the cell; ``unfit``, where
            the machine cannot run it, and another one may.
        bundle: the attempt, where the folder is not shared.
    """

    kind: Literal["ended", "taken", "unfit"]
    status: Status | None
    text: str = ""
    bundle: bytes | None = None


def carry_out(work: Work, post: Post) -> Outcome:
    """Run a cell on this machine. KeyboardInterrupt ends it as Ctrl-C does.

    Args:
        post: called as post("phase", text, None) and post("event", rank, event) while it runs.
    """
    _die_with_parent()
    if not work.alone:
        os.environ[SHARE] = "1"  # this process runs cells of this sweep alone
    cell = Cell.from_json(work.cell)
    with _folder(work) as folder:
        item = PlannedCell(cell, folder, work.status, True, "", work.attempt, work.way)
        try:
            status = run_item(item, work.wall_limit_s, _Posting(post))
        except CellTakenError as error:
            return Outcome("taken", None, str(error))
        except UnfitMachineError as error:
            return Outcome("unfit", None, str(error))
        bundle = None if work.shared else pack(folder / f"attempt-{status.attempt}")
    return Outcome("ended", status, bundle=bundle)


@contextlib.contextmanager
def _folder(work: Work) -> Iterator[Path]:
    if work.shared:
        yield Path(work.folder)
        return
    with _temporary_folder() as temporary:
        folder = temporary / Path(work.folder).name
        if work.number > 1:
            (folder / f"attempt-{work.number - 1}").mkdir(parents=True)  # attempts are counted from the last one there
        yield folder


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder of our own, held by a lock; those that killed processes have left are removed before."""
    for old in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError), _held(old):
            if time.time() - old.stat().st_mtime > YOUNG_S:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name, _held(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder; raises OSError where that cannot be, or another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class _Posting:
    """An observer that hands on what it is told."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def cell_phase(self, cell: Cell, phase: str) -> None:
        self._post("phase", phase, None)

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        self._post("event", rank, event)


def _die_with_parent() -> None:
    """End this process, and with it the cell's, once its parent is gone.

    Ray's workers outlive a node manager that was killed: the cell would go on here while it runs elsewhere.
    """
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_FOR_PARENT_S)
        os.kill(os.getpid(), signal.SIGKILL)

    name = "bwbench-die-with-parent"
    if not any(thread.name == name for thread in threading.enumerate()):
        threading.Thread(target=look, name=name, daemon=True).start()
