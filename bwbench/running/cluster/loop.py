"""The loop over cells, on many machines at once: it does what ``sweep.loop`` does, and a lost cell runs again."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import CellTakenError, UnfitMachineError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.composing import WHOLE
from bwbench.records import CellFolder, write_record
from bwbench.records.disk import full_disk_said
from bwbench.records.lock import claim_of, claimed
from bwbench.records.schema import Status
from bwbench.running.cell import wall_limit_s
from bwbench.running.cluster.bundle import unpack
from bwbench.running.cluster.machines import Machine, free_machines
from bwbench.running.cluster.pool import Ended, Lost, Pool, Report, Told
from bwbench.running.cluster.work import Work
from bwbench.running.sweep.loop import Account

POLL_S = 0.5
MOST_LOSSES = 3  # a cell that takes its machine along would take them all
NO_MACHINE_LIMIT_S = 120.0  # a machine that restarts, or a second one that is being started


@dataclass
class _Running:
    item: PlannedCell
    machine: Machine
    claim: contextlib.ExitStack  # held here where the machine does not see the folder
    has_begun: bool = False


class ClusterLoop:
    """Keeps every machine of a pool busy until all cells are settled.

    Args:
        account: says what is worth running, counts and tells.
        cells_per_machine: that may run at the same time on one physical machine.
        no_machine_limit_s: how long to wait for a machine where there is none.
    """

    def __init__(
        self,
        pool: Pool,
        account: Account,
        predicted_s: Mapping[str, float],
        cells_per_machine: int = 1,
        no_machine_limit_s: float = NO_MACHINE_LIMIT_S,
    ) -> None:
        self._pool, self._account, self._predicted_s = pool, account, predicted_s
        self._cells_per_machine, self._no_machine_limit_s = cells_per_machine, no_machine_limit_s
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
        """
        self._waiting.extend(todo)
        try:
            while self._waiting or self._taken or self._running:
                self._fill()
                for report in self._pool.reports(POLL_S):
                    self._note(report)
                self._look_at_taken()
        finally:
            for running in self._running.values():
                running.claim.close()

    def _fill(self) -> None:
        """Give cells to machines that are free, in order; one that none of them can take lets others pass."""
        machines = [machine for machine in self._usable() if machine.node not in self._unfit]
        passed: list[PlannedCell] = []
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if self._account.settled(item):
                continue
            if claim_of(item.folder) is not None:
                self._taken.append(item)
                continue
            busy = [running.machine for running in self._running.values()]
            free = free_machines(machines, busy, self._cells_per_machine)
            fitting = [machine for machine in free if _fits(machine, item)]
            if fitting:
                self._start(item, fitting[0])
                continue
            passed.append(item)
            if not free:
                break
        self._waiting.extendleft(reversed(passed))
        stuck = next((item for item in passed if not any(_fits(machine, item) for machine in machines)), None)
        if stuck is not None:
            self._give_up_without(machines, stuck)

    def _usable(self) -> list[Machine]:
        for machine in self._pool.machines():
            if machine.problem is not None and machine.node not in self._said:
                self._said.add(machine.node)
                self._account.observer.note(f"{machine.name} is left out: {machine.problem}")
        return [machine for machine in self._pool.machines() if machine.problem is None]

    def _give_up_without(self, machines: Sequence[Machine], item: PlannedCell) -> None:
        """Raise UnfitMachineError once there is no hope for a machine that fits."""
        if self._running or self._pool.is_asking:
            self._had_machine_s = time.monotonic()
            return
        there = {machine.node: machine for machine in self._pool.machines()}
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
        claim = contextlib.ExitStack()
        try:
            if not machine.shared:
                with full_disk_said(item.folder):
                    claim.enter_context(claimed(item.folder))
        except CellTakenError:
            self._taken.append(item)
            return
        folder = CellFolder(item.folder)
        last = folder.last_attempt.name.rpartition("-")[2] if item.folder.is_dir() and folder.last_attempt else 0
        work = Work(
            cell=item.cell.to_json(),
            folder=str(item.folder.absolute()),
            shared=machine.shared,
            alone=self._cells_per_machine == 1,
            status=item.status,
            attempt=item.attempt,
            way=item.way,
            number=int(last) + 1,
            wall_limit_s=wall_limit_s(self._predicted_s.get(item.cell.id, 0.0)),
        )
        key = self._pool.start(machine, work, self._cells_per_machine)
        self._running[key] = _Running(item, machine, claim)
        self._account.begin(item)
        self._account.observer.cell_phase(item.cell, f"on {machine.name}")

    def _note(self, report: Report) -> None:
        running = self._running.get(report.key)
        if running is None:  # of work that was given up
            return
        if isinstance(report, Told):
            running.has_begun = True
            if report.kind == "phase":
                self._account.observer.cell_phase(running.item.cell, f"{report.first}, on {running.machine.name}")
            else:
                self._account.observer.cell_event(running.item.cell, report.first, report.second)
            return
        del self._running[report.key]
        with running.claim:
            if isinstance(report, Lost):
                self._lost(running, report.why)
            else:
                self._ended(running, report)

    def _ended(self, running: _Running, report: Ended) -> None:
        outcome, item, machine = report.outcome, running.item, running.machine
        if outcome.kind == "taken":
            self._taken.append(item)
        elif outcome.kind == "unfit":
            self._unfit[machine.node] = outcome.text
            self._account.observer.note(f"{machine.name} is left out: {outcome.text}")
            self._waiting.appendleft(item)
        elif outcome.status is not None:
            if outcome.bundle is not None:
                with full_disk_said(item.folder):
                    (item.folder / "status.json").unlink(missing_ok=True)
                    unpack(outcome.bundle, item.folder)
                    write_record(item.folder / "status.json", outcome.status)
            self._account.ended(item, outcome.status)

    def _lost(self, running: _Running, why: str) -> None:
        item = running.item
        self._losses[item.folder] += running.has_begun  # a machine that was gone before is no fault of the cell's
        told = f"{item.cell.slug} was lost on {running.machine.name} ({why})"
        if self._losses[item.folder] < MOST_LOSSES:
            self._account.observer.note(f"{told}; it runs again")
            self._waiting.appendleft(item)
            return
        reason = f"{told}, as {MOST_LOSSES - 1} times before; does it need more memory than the machines have?"
        self._account.ended(item, Status(id=item.cell.id, slug=item.cell.slug, status="interrupted", reason=reason))

    def _look_at_taken(self) -> None:
        """Back to the queue with cells whose process elsewhere has ended."""
        if not self._taken:
            return
        if not self._waiting and not self._running:
            self._say_waiting()
        freed = [item for item in self._taken if claim_of(item.folder) is None]
        self._taken = [item for item in self._taken if item not in freed]
        self._waiting.extend(freed)

    def _say_waiting(self) -> None:
        if self._taken != self._said_waiting:
            self._said_waiting = list(self._taken)
            self._account.observer.waiting(self._taken)


def _fits(machine: Machine, item: PlannedCell) -> bool:
    """Whether a machine can do it: composed cells share runs through the results folder."""
    return machine.shared or item.way == WHOLE
