"""One cell: claim it, open its link, verify it, train, verify again, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from bwbench.base.errors import BwbenchError, LinkError, UnfitMachineError
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.network.network import Network, open_network
from bwbench.records import CellFolder, read_json, read_record, write_json_atomic, write_record
from bwbench.records.checksums import with_checksums
from bwbench.records.disk import full_disk_said, worker_met_full_disk
from bwbench.records.environment import capture_environment
from bwbench.records.lock import Claim, claimed
from bwbench.records.schema import Event, Status
from bwbench.running.launch.attempt import LaunchOutcome, Resumption, cell_status
from bwbench.running.launch.link_record import LinkFile
from bwbench.running.launch.local import LocalLauncher
from bwbench.running.launch.machine_turn import machine_turn

WALL_LIMIT_S = 300.0  # the parent's guard against a cell that would never end: start-up on a busy machine …
WALL_LIMIT_FACTOR = 10.0  # … and training this many times as long as predicted
# Nothing is predicted of a network that nobody has measured yet; whether training gets on is watched on the hosts.
HOSTS_WALL_LIMIT_S = 86400.0


RunCell: TypeAlias = "Callable[[PlannedCell, float, CellObserver], Status]"


class CellObserver(Protocol):
    """Told what happens while one cell runs."""

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """What is being done with the cell from now on, in words."""

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """A worker reported an event of its record."""


def wall_limit_s(predicted_s: float) -> float:
    """Seconds after which a cell that should take ``predicted_s`` at most is ended as ``timeout``."""
    return WALL_LIMIT_S + WALL_LIMIT_FACTOR * predicted_s


def run_cell(item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> Status:
    """One attempt at a cell, from its link to its status.json; needs nothing but the cell and a folder to write to.

    The cell is claimed meanwhile. Where another process has ended it since ``item`` was assessed, nothing is run. Cells
    of several processes take turns on a machine (see ``launch/machine_turn.py``).

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
        noting = _Noting(observer, claim)
        with machine_turn(lambda: noting.cell_phase(item.cell, "waiting for another bwbench on this machine")):
            return _Attempt.begin(item, noting).run(wall_limit_s)


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


class _Noting:
    """An observer that also keeps the phase in the cell's claim, for ``bwbench status`` elsewhere."""

    def __init__(self, observer: CellObserver, claim: Claim) -> None:
        self._observer, self._claim = observer, claim

    def cell_phase(self, cell: Cell, phase: str) -> None:
        self._claim.note(phase=phase)
        self._observer.cell_phase(cell, phase)

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        self._observer.cell_event(cell, rank, event)


@dataclass(frozen=True)
class _Attempt:
    """One attempt, from its folder to status.json.

    Attributes:
        folder: of its records.
        link: what is known of its link, written as it becomes known.
    """

    item: PlannedCell
    folder: Path
    resumption: Resumption
    link: LinkFile
    observer: CellObserver

    @classmethod
    def begin(cls, item: PlannedCell, observer: CellObserver) -> _Attempt:
        """Make the folder, with what there is to go on from."""
        (item.folder / "status.json").unlink(missing_ok=True)  # a retried cell is not finished until it is
        environment = capture_environment(item.cell.config.plugins)
        resumption = Resumption.look_for(item.folder, item.cell.config.nodes, environment)
        folder = CellFolder(item.folder).new_attempt()
        write_record(folder / "environment.json", environment)
        resumption.begin(folder)
        if resumption.words is not None:
            observer.cell_phase(item.cell, resumption.words)
        return cls(item, folder, resumption, LinkFile(item.cell.config.link, folder), observer)

    def run(self, wall_limit_s: float) -> Status:
        """Train, and record how that ended, whatever ends it."""
        cell = self.item.cell
        outcome = LaunchOutcome("interrupted", "interrupted")
        try:
            if cell.config.launcher == "ssh":
                outcome = self._train_on_hosts(wall_limit_s)
            else:
                with open_network(cell.config.link, cell.config.nodes) as network:
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
            write_record(self.item.folder / "status.json", with_checksums(status, self.item.folder))
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
            self.link.read_back()
            if any(launcher.shaped):
                self.link.add_applied(launcher.shaped)

    def _say(self, phase: str) -> None:
        self.observer.cell_phase(self.item.cell, phase)

    def _on_event(self, rank: int, event: Event) -> None:
        self.observer.cell_event(self.item.cell, rank, event)
