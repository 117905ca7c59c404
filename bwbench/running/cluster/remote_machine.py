"""What a machine of a cluster does: it says what it is, and runs cells.

A cell runs in the results folder where the machine sees that, else in a folder of its own, and what it recorded goes
back as one block of bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from bwbench.base.errors import BwbenchError, CellTakenError, UnfitMachineError
from bwbench.base.registry import DATASETS
from bwbench.base.step_time import StepTimeTrace
from bwbench.experiment.config.step_trace import freeze_compute
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell, plugins_named
from bwbench.experiment.plan.composing import Way
from bwbench.network.link.trace_file import freeze_link
from bwbench.records import CellFolder
from bwbench.records.schema import Event, JsonObject
from bwbench.running.composed import run_item
from bwbench.running.executor import Finished, Machine, TakenElsewhere, Unfit
from bwbench.running.machine_turn import SHARE
from bwbench.running.sweep.scheduler import pack
from bwbench.training.datasets.dataset import data_folder

LOOK_FOR_PARENT_S = 0.5
TEMPORARY = "bwbench-cell-"  # begins the names of folders of cells that are brought back
YOUNG_S = 60.0  # a folder that nobody holds may have been made just now

Post = Callable[[str, Any, Any], None]


class MachineAnswer(TypedDict, total=False):
    """What a machine says of itself, as a plain dictionary: one that lacks bwbench has to be able to answer.

    Attributes:
        host: of this boot; missing where the machine cannot be used.
        shared: whether it sees the results folder.
        problem: why it cannot be used; None where it can.
    """

    host: str
    shared: bool
    problem: str | None


def describe_here(marker: str, token: str, cells: Sequence[JsonObject]) -> MachineAnswer:
    """What this machine says of itself: called on every machine before it gets a cell.

    Args:
        marker: absolute path of a file in the results folder that holds ``token``.
        cells: contents of cell.json, one for every set of files (data, plugins, traces, shapes) that cells need.
    """
    try:
        shared = Path(marker).read_text(encoding="utf-8") == token
    except OSError:
        shared = False
    problems: list[str] = []
    for content in cells:
        try:
            cell = Cell.from_json(content, _plugins_of(content))
            freeze_link(cell.config.link, Path("/"))
            freeze_compute(cell.config.compute, Path("/"))
            _ = cell.config.shapes  # of which a file may be missing here
            unfit = cell.config.dataset.source.build(DATASETS).unfit(data_folder())
            problems += [] if unfit is None else [str(unfit)]
        except (BwbenchError, OSError) as error:
            problems.append(str(error))
    return {"host": _host(), "shared": shared, "problem": "; ".join(dict.fromkeys(problems)) or None}


def representatives(cells: Iterable[Cell]) -> list[JsonObject]:
    """Of cells that need the same files on a machine one each, as cell.json holds them."""
    found: dict[Any, Cell] = {}
    for cell in cells:
        config = cell.config
        traces = (config.link.trace, *(override.trace for override in config.link.overrides.values()))
        link = config.link.model_dump_json() if any(trace is not None for trace in traces) else ""
        played = tuple(one for one in config.compute.declared if isinstance(one, StepTimeTrace))
        model = config.model if config.learns_nothing else None
        found.setdefault((config.dataset.source.name, config.plugins, link, played, str(model)), cell)
    return [cell.to_json() for cell in found.values()]


def _plugins_of(content: JsonObject) -> list[str]:
    """Those of the plan: whoever has started this process has planned the cell, and sent it."""
    return [str(plugin) for plugin in plugins_named(content)]


def _host() -> str:
    """Of this boot of this kernel: containers on one machine have names of their own, but share its cores."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


@dataclass(frozen=True, kw_only=True)
class Work:
    """A cell for a machine, as it travels there.

    Attributes:
        cell: content of cell.json.
        virtual: whether its nodes are virtual, which that does not say.
        folder: of the cell, absolute.
        shared: whether the machine sees that folder; else what it records comes back with the outcome.
        alone: whether no other cell may run on the machine meanwhile.
        status, attempt, way: of the planned cell.
        number: of the attempt to be made, where the folder is not shared.
        wall_limit_s: seconds after which the training is ended as ``timeout``.
    """

    cell: JsonObject
    virtual: bool
    folder: str
    shared: bool
    alone: bool
    status: str
    attempt: int
    way: Way
    number: int
    wall_limit_s: float

    @classmethod
    def of(cls, item: PlannedCell, machine: Machine, wall_limit_s: float, *, alone: bool) -> Work:
        """That ``machine`` is to run this cell."""
        last = CellFolder(item.folder).last_attempt if item.folder.is_dir() else None
        return cls(
            cell=item.cell.to_json(),
            virtual=item.cell.config.compute.virtual,
            folder=str(item.folder.absolute()),
            shared=machine.shared,
            alone=alone,
            status=item.status,
            attempt=item.attempt,
            way=item.way,
            number=int(last.name.rpartition("-")[2]) + 1 if last is not None else 1,
            wall_limit_s=wall_limit_s,
        )


def carry_out(work: Work, post: Post) -> Finished | TakenElsewhere | Unfit:
    """Run a cell on this machine. KeyboardInterrupt ends it as Ctrl-C does.

    Args:
        post: called as post("phase", text, None) and post("event", rank, event) while it runs.
    """
    _die_with_parent()
    if not work.alone:
        os.environ[SHARE] = "1"  # this process runs cells of this sweep alone
    cell = Cell.from_json(work.cell, _plugins_of(work.cell))
    compute = cell.config.compute.model_copy(update={"virtual": work.virtual})
    cell = replace(cell, config=cell.config.model_copy(update={"compute": compute}))
    with _folder(work) as folder:
        item = PlannedCell(cell, folder, work.status, runs=True, why="", attempt=work.attempt, way=work.way)
        try:
            status = run_item(item, work.wall_limit_s, _Posting(post))
        except CellTakenError:
            return TakenElsewhere()
        except UnfitMachineError as error:
            return Unfit(str(error))
        return Finished(status, None if work.shared else pack(folder / f"attempt-{status.attempt}"))


@contextlib.contextmanager
def _folder(work: Work) -> Iterator[Path]:
    """The cell's, or one of our own, held by a lock; those that killed processes have left are removed before."""
    if work.shared:
        yield Path(work.folder)
        return
    for old in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError), _held(old):
            if time.time() - old.stat().st_mtime > YOUNG_S:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name, _held(Path(name)):
        folder = Path(name) / Path(work.folder).name
        if work.number > 1:
            (folder / f"attempt-{work.number - 1}").mkdir(parents=True)  # attempts are counted from the last one there
        yield folder


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
