"""The scheduler of a sweep: which cell runs next and where, what is lost and runs again, when there is no hope.

An executor has machines, is given cells for them, and reports how these ended. There are two, which the scheduler does
not tell apart: this machine (``this_machine.py``) and a Ray cluster (``cluster/ray_executor.py``).
Slurm is no third. Its jobs begin hours after they were submitted and have limits of their own, so that a scheduler here
would have to live on a login node for as long as the queue is, which sites forbid. Each task of an array job is a sweep
of its own on a machine of its own instead (``cluster/job_scripts.py``), by this same scheduler, and claims in the
results folder keep the tasks apart. What is worth running, and what has come of it, is in ``account.py``.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import CellTakenError, UnfitMachineError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import WHOLE
from bwbench.records import write_record
from bwbench.records.checksums import with_checksums
from bwbench.records.files import full_disk_said
from bwbench.records.lock import claim_of, claimed
from bwbench.records.schema import Event, Status
from bwbench.running.executor import Executor, Finished, Lost, Machine, Report, TakenElsewhere, Unfit
from bwbench.running.run_cell import CellObserver, keep_planned, wall_limit_s
from bwbench.running.sweep.account import Account

POLL_S = 0.5  # also how often to look whether another process still holds a cell
MOST_LOSSES = 3  # a cell that takes its machine along would take them all
NO_MACHINE_LIMIT_S = 120.0  # a machine that restarts, or a second one that is being started
COMPRESSION = 1  # records are text that shrinks eightfold at the lowest level; the machine has other work to do


def free_machines(machines: Iterable[Machine], busy: Iterable[Machine], cells_per_machine: int) -> list[Machine]:
    """The usable machines that may take one more cell, those with the fewest first.

    Nodes on one physical machine share its cores, and so its ``cells_per_machine``.
    """
    busy = list(busy)
    on_host, on_node = Counter(m.host for m in busy), Counter(m.node for m in busy)
    free = [m for m in machines if m.problem is None and on_host[m.host] < cells_per_machine]
    return sorted(free, key=lambda m: (on_host[m.host], on_node[m.node]))


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


class Scheduler:
    """Keeps the machines of an executor busy until all cells are settled. A failed cell does not stop the others.

    Cells that another process runs meanwhile come last: by then they are done, or their process is dead.

    Args:
        account: says what is worth running, counts and tells.
        predicted_s: for each cell's id, how long it should take at most; far beyond that it is ended as ``timeout``.
        no_machine_limit_s: how long to wait for a machine where there is none.
    """

    def __init__(
        self,
        executor: Executor,
        account: Account,
        predicted_s: Mapping[str, float],
        no_machine_limit_s: float = NO_MACHINE_LIMIT_S,
    ) -> None:
        self._executor, self._account, self._predicted_s = executor, account, predicted_s
        self._no_machine_limit_s = no_machine_limit_s
        self._waiting: deque[PlannedCell] = deque()
        self._taken: list[PlannedCell] = []
        self._running: dict[int, _Running] = {}
        self._losses: Counter[Path] = Counter()
        self._unfit: dict[str, str] = {}
        self._said: set[str] = set()
        self._said_waiting: list[PlannedCell] = []
        self._had_machine_s = time.monotonic()

    def work_through(self, todo: Sequence[PlannedCell]) -> None:
        """Run all of them; those that other processes are at, as soon as they are free.

        Raises:
            UnfitMachineError: no machine can run what is left, or the disk of the results is full.
            KeyboardInterrupt: handed on after the cell that ran here was recorded as ``interrupted``. Cells on other
                machines end when their executor is closed.
        """
        self._waiting.extend(todo)
        try:
            while self._waiting or self._taken or self._running:
                self._fill()
                if self._running or self._waiting or self._taken:
                    for report in self._executor.reports(POLL_S):
                        self._note(report)
                self._look_at_taken()
        finally:
            for running in self._running.values():
                running.claim.close()

    def _fill(self) -> None:
        """Give cells to machines that are free, in order; one that none of them can take lets others pass."""
        machines = []
        for machine in self._executor.machines():
            if machine.problem is None and machine.node not in self._unfit:
                machines.append(machine)
            elif machine.problem is not None and machine.node not in self._said:
                self._said.add(machine.node)
                self._account.observer.note(f"{machine.name} is left out: {machine.problem}")
        passed: list[PlannedCell] = []
        for _ in range(len(self._waiting)):
            busy = [running.machine for running in self._running.values()]
            free = free_machines(machines, busy, self._executor.cells_per_machine)
            if not free and (machines or passed):
                break
            if not self._executor.takes(self._waiting[0], [one.item for one in self._running.values()]):
                break
            item = self._waiting.popleft()
            if self._account.settled(item):
                continue
            if claim_of(item.folder) is not None:
                self._taken.append(item)
                continue
            fitting = [machine for machine in free if _fits(machine, item)]
            if fitting:
                self._start(item, fitting[0])
            else:
                passed.append(item)
        self._waiting.extendleft(reversed(passed))
        stuck = next((item for item in passed if not any(_fits(machine, item) for machine in machines)), None)
        if stuck is not None:
            self._give_up_without(machines, stuck)

    def _give_up_without(self, machines: Sequence[Machine], item: PlannedCell) -> None:
        """Raise UnfitMachineError once there is no hope for a machine that fits."""
        if self._running or self._executor.is_asking:
            self._had_machine_s = time.monotonic()
            return
        there = {machine.node: machine for machine in self._executor.machines()}
        reasons = [f"{m.name}: {m.problem or self._unfit.get(m.node)}" for m in there.values() if m not in machines]
        if machines:
            reasons = [
                f"{m.name} does not see {item.folder.parent.parent}, which composed cells need" for m in machines
            ]
        if not reasons and time.monotonic() - self._had_machine_s < self._no_machine_limit_s:
            return
        why = "\n".join(reasons) or f"none has been there for {self._no_machine_limit_s:.0f} s"
        raise UnfitMachineError(f"no machine of the cluster can run what is left; run the same command again\n{why}")

    def _start(self, item: PlannedCell, machine: Machine) -> None:
        self._had_machine_s = time.monotonic()
        running = _Running(item, machine, contextlib.ExitStack(), self._account.observer)
        try:
            if not machine.shared:
                with full_disk_said(item.folder):
                    running.claim.enter_context(claimed(item.folder))
        except CellTakenError:
            self._taken.append(item)
            return
        limit_s = wall_limit_s(self._predicted_s.get(item.cell.id, 0.0))
        key = self._executor.start(machine, item, limit_s, running)
        self._running[key] = running
        self._account.begin(item)
        if machine.name:
            self._account.observer.cell_phase(item.cell, f"on {machine.name}")

    def _note(self, report: Report) -> None:
        running = self._running.pop(report.key)
        item, machine, end = running.item, running.machine, report.end
        with running.claim:
            if isinstance(end, Finished):
                if end.bundle is not None:  # what the machine has recorded and could not write here itself
                    with full_disk_said(item.folder):
                        (item.folder / "status.json").unlink(missing_ok=True)
                        unpack(end.bundle, item.folder)
                        keep_planned(item)
                        write_record(item.folder / "status.json", with_checksums(end.status, item.folder))
                self._account.ended(item, end.status)
            elif isinstance(end, TakenElsewhere):
                self._taken.append(item)
            elif isinstance(end, Unfit):
                self._unfit[machine.node] = end.why
                self._account.observer.note(f"{machine.name} is left out: {end.why}")
                self._waiting.appendleft(item)
            else:
                self._lost(running, end)

    def _lost(self, running: _Running, end: Lost) -> None:
        item = running.item
        self._losses[item.folder] += running.has_begun  # a machine that was gone before is no fault of the cell's
        told = f"{item.cell.slug} was lost on {running.machine.name} ({end.why})"
        if self._losses[item.folder] < MOST_LOSSES:
            self._account.observer.note(f"{told}; it runs again")
            self._waiting.appendleft(item)
            return
        reason = f"{told}, as {MOST_LOSSES - 1} times before; does it need more memory than the machines have?"
        self._account.ended(item, Status(id=item.cell.id, slug=item.cell.slug, status="interrupted", reason=reason))

    def _look_at_taken(self) -> None:
        """Back to the queue with cells whose process elsewhere has ended. Each has a limit where it runs."""
        if not self._taken:
            return
        if not self._waiting and not self._running and self._taken != self._said_waiting:
            self._said_waiting = list(self._taken)
            self._account.observer.waiting(self._taken)
        freed = [item for item in self._taken if claim_of(item.folder) is None]
        self._taken = [item for item in self._taken if item not in freed]
        self._waiting.extend(freed)


@dataclass
class _Running:
    """A cell on a machine; told by the executor what happens to it, and says to whoever watches where that is.

    Attributes:
        claim: of the cell, held here where the machine does not see the folder.
    """

    item: PlannedCell
    machine: Machine
    claim: contextlib.ExitStack
    observer: CellObserver
    has_begun: bool = False

    def cell_phase(self, cell: Cell, phase: str) -> None:
        self.has_begun = True
        self.observer.cell_phase(cell, f"{phase}, on {self.machine.name}" if self.machine.name else phase)

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        self.has_begun = True
        self.observer.cell_event(cell, rank, event)


def _fits(machine: Machine, item: PlannedCell) -> bool:
    """Whether a machine can do it: composed cells share runs through the results folder."""
    return machine.shared or (item.way == WHOLE and not item.part)
