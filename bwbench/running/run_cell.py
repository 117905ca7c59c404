"""One cell: claim it, wait for the machine's turn, open its link, verify it, train, verify again, record."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeAlias

from bwbench.base.errors import BwbenchError, LinkError, UnfitMachineError
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.network.network import Network, open_network
from bwbench.records import CellFolder, read_json, read_record, write_json_atomic, write_record
from bwbench.records.checkpoint import delete_unfinished, find_checkpoint
from bwbench.records.checksums import with_checksums
from bwbench.records.environment import capture_environment
from bwbench.records.files import full_disk_said, worker_met_full_disk
from bwbench.records.lock import Claim, claimed
from bwbench.records.schema import Event, Status
from bwbench.running.launch.attempt import LaunchOutcome, LinkFile, Resumption, cell_status
from bwbench.running.launch.local import LocalLauncher

WALL_LIMIT_S = 300.0  # the parent's guard against a cell that would never end: start-up on a busy machine …
WALL_LIMIT_FACTOR = 10.0  # … and training this many times as long as predicted
# Nothing is predicted of a network that nobody has measured yet; whether training gets on is watched on the hosts.
HOSTS_WALL_LIMIT_S = 86400.0
SHARE = "BWBENCH_SHARE_MACHINE"  # in the environment, not empty: whoever sets it accepts that times disturb each other
TURN_LIMIT_S = 48 * 3600.0  # another sweep may well take a day
_LOCK = "bwbench-machine.lock"
_NEXT = "bwbench-next.lock"  # held by who comes next: a sweep that has just ended a cell gets behind it
_LOOK_S = 0.2

RunCell: TypeAlias = "Callable[[PlannedCell, float, CellObserver], Status]"


class CellObserver(Protocol):
    """Told what happens while one cell runs."""

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """What is being done with the cell from now on, in words."""

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """A worker reported an event of its record."""


class RunObserver(CellObserver, Protocol):
    """Told what happens while several cells run; the command line shows it."""

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """A cell begins: the ``number``-th of the ``total`` that are to run, as far as that is known."""

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """A cell that began here has ended with this."""


def wall_limit_s(predicted_s: float) -> float:
    """Seconds after which a cell that should take ``predicted_s`` at most is ended as ``timeout``."""
    return WALL_LIMIT_S + WALL_LIMIT_FACTOR * predicted_s


def run_cell(item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> Status:
    """One attempt at a cell, from its link to its status.json; needs nothing but the cell and a folder to write to.

    The cell is claimed meanwhile. Where another process has ended it since ``item`` was assessed, nothing is run. Cells
    of several processes take turns on a machine.

    Args:
        wall_limit_s: seconds after which the training is ended as ``timeout``.

    Returns:
        What was recorded of it; a cell that failed raises nothing.

    Raises:
        CellTakenError: another process runs this cell.
        UnfitMachineError: the machine cannot make the network, or the disk is full; the cell is to be run again.
        KeyboardInterrupt: handed on after the cell was recorded as ``interrupted``.
    """
    with full_disk_said(item.folder), claimed(item.folder) as claim:
        if (recorded := ended_since(item)) is not None:
            return recorded
        for torn in (*item.folder.glob(".*.part"), *item.folder.glob("attempt-*/.*.part")):  # of a killed process
            torn.unlink(missing_ok=True)
        keep_planned(item)
        noting = NotingObserver(item.cell, observer, claim)
        with machine_turn(lambda: noting.cell_phase(item.cell, "waiting for another bwbench on this machine")):
            return _Attempt(item, noting).run(wall_limit_s)


def keep_planned(item: PlannedCell) -> None:
    """Have cell.json hold the cell that was planned, whatever lies there; the cell is claimed. Raises OSError."""
    planned = item.cell.to_json()
    if read_json(item.folder / "cell.json") != planned:
        write_json_atomic(item.folder / "cell.json", planned)


def ended_since(item: PlannedCell) -> Status | None:
    """What another process has recorded of a cell since it was assessed; None where it still has to run.

    Raises RecordError where that is no record of this version: it is not written over.
    """
    recorded = read_record(Status, item.folder / "status.json")
    if recorded is None or recorded.status not in ("done", *ENDED_UNDONE):
        return None
    if not item.runs or (recorded.attempt or 0) > item.attempt:
        return recorded
    return recorded if recorded.status == "done" and recorded.composed is None else None


class NotingObserver:
    """An observer that also keeps the phase in a cell's claim, for ``bwbench status`` elsewhere.

    What it is told of a part that the cell needs it tells as if the cell were running; ``doing`` says which part.
    """

    def __init__(self, cell: Cell, observer: CellObserver, claim: Claim) -> None:
        self._cell, self._observer, self._claim = cell, observer, claim
        self.doing = ""

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Kept in the claim, and handed on."""
        text = f"{self.doing} run: {phase}" if self.doing else phase
        self._claim.note(phase=text)
        self._observer.cell_phase(self._cell, text)

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """Handed on."""
        self._observer.cell_event(self._cell, rank, event)


class _Attempt:
    """One attempt, from its folder, made here with what there is to go on from, to status.json."""

    def __init__(self, item: PlannedCell, observer: CellObserver) -> None:
        self.item, self.observer = item, observer
        (item.folder / "status.json").unlink(missing_ok=True)  # a retried cell is not finished until it is
        environment = capture_environment(item.cell.config.plugins)
        self.resumption = Resumption(*find_checkpoint(item.folder, item.cell.config.nodes, environment))
        self.folder = CellFolder(item.folder).new_attempt()
        write_record(self.folder / "environment.json", environment)
        delete_unfinished(item.folder)
        if self.resumption.checkpoint is not None:
            self.resumption.checkpoint.begin(self.folder)
        if self.resumption.words is not None:
            self._say(self.resumption.words)
        self.link = LinkFile(item.cell.config.link, self.folder)

    def run(self, wall_limit_s: float) -> Status:
        """Train, and record how that ended, whatever ends it."""
        cell = self.item.cell
        outcome = LaunchOutcome("interrupted", "interrupted")
        try:
            if cell.config.launcher == "ssh":
                outcome = self._train_on_hosts(wall_limit_s)
            else:
                with open_network(cell.config.link, cell.config.nodes, control_path=True) as network:
                    outcome = self._train_on(network, wall_limit_s)
            said = "" if cell.config.launcher == "ssh" else outcome.reason  # of their own disks the hosts tell
            if outcome.status == "failed" and (full := worker_met_full_disk(self.folder, said)):
                raise UnfitMachineError(full)  # no fault of the cell's, and of the next one neither
        except BwbenchError as error:
            outcome = LaunchOutcome("failed", str(error))
            if isinstance(error, UnfitMachineError) and not isinstance(error, LinkError):
                outcome = LaunchOutcome("interrupted", str(error))  # to be run once the machine is fit
                raise  # the next cell would meet the same
        finally:
            status = cell_status(cell, self.folder, outcome, self.link.record, self.resumption)
            status = with_checksums(status, self.item.folder)
            write_record(self.item.folder / "status.json", status)
            self.resumption.tidy(self.folder, status.status)
        return status

    def _train_on(self, network: Network, wall_limit_s: float) -> LaunchOutcome:
        """Verify, train, verify: the outcome is ``invalid`` where the link was not what was asked."""
        self.link.add_network(network)
        self._say("verifying the link")
        if problem := self.link.add_measurement(network, "achieved_before"):
            return LaunchOutcome("invalid", f"the link before training: {problem}")
        self._say("starting workers")
        cell_file = self.item.folder / "cell.json"
        launcher = LocalLauncher(network, self.item.cell, cell_file, self.folder, self.resumption)
        outcome = launcher.run(wall_limit_s, self._on_event)
        problem = self.link.add_traffic(network, outcome)
        if outcome.status not in ("done", "diverged"):
            return outcome
        self._say("verifying the link again")
        problem = self.link.add_measurement(network, "achieved_after") or problem
        if problem:
            return LaunchOutcome("invalid", f"the link after training: {problem}", outcome.ends, outcome.wire)
        return outcome

    def _train_on_hosts(self, wall_limit_s: float) -> LaunchOutcome:
        """Train on real hosts, whose workers measure the network themselves."""
        from bwbench.running.launch.ssh.launcher import SshLauncher  # its imports are of no use to any other launcher

        self._say("starting workers on the hosts")
        launcher = SshLauncher(self.item.cell, self.folder)
        try:
            return launcher.run(max(wall_limit_s, HOSTS_WALL_LIMIT_S), self._on_event)
        finally:
            self.link.read_back(launcher.shaped)

    def _say(self, phase: str) -> None:
        self.observer.cell_phase(self.item.cell, phase)

    def _on_event(self, rank: int, event: Event) -> None:
        self.observer.cell_event(self.item.cell, rank, event)


@contextlib.contextmanager
def machine_turn(waits: Callable[[], None], limit_s: float = TURN_LIMIT_S) -> Iterator[None]:
    """Hold the machine: of all who ask on it, whichever their user, one at a time gets on. Dies with its holder.

    Two cells at a time would take each other's processors, and both their times be wrong.

    Args:
        waits: called once where another process has to be waited for.

    Raises UnfitMachineError after ``limit_s``.
    """
    folder = Path(tempfile.gettempdir())
    deadline, told = time.monotonic() + limit_s, False

    def take(descriptor: int) -> None:
        """Return once the lock is ours; the limit is one for both locks."""
        nonlocal told
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            if not told:
                waits()
                told = True
            if time.monotonic() > deadline:
                text = f"another bwbench has been running cells on this machine for {limit_s / 3600:.0f} h"
                hint = f"is it stopped? End it, or run beside it with {SHARE}=1 in the environment"
                raise UnfitMachineError(f"{text}; {hint}")
            time.sleep(_LOOK_S)

    with contextlib.ExitStack() as held:
        machine = None if os.environ.get(SHARE) else _open(folder / _LOCK, held)
        if machine is not None:
            with contextlib.ExitStack() as queue:
                if (in_front := _open(folder / _NEXT, queue)) is not None:
                    take(in_front)
                take(machine)
        yield


def _open(path: Path, held: contextlib.ExitStack) -> int | None:
    """A descriptor to lock, of a file that any user may have made; None where there can be none."""
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        try:  # not created where it is there: the kernel forbids that in /tmp to all but the file's owner
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError:
            continue
        held.callback(os.close, descriptor)
        return descriptor
    return None
