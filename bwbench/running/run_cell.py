"""One cell: claim it, wait for the machine's turn, open its link, verify it, train, verify again, record."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Protocol, TypeAlias

from bwbench.base.errors import BwbenchError, LaunchError, LinkError, UnfitMachineError
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell, lacks_times
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.plugin_sources import sources_of
from bwbench.methods.native import are_compiled
from bwbench.network.network import Network, open_network
from bwbench.records import CellFolder, read_json, read_record, write_json_atomic, write_record
from bwbench.records.checkpoint import delete_unfinished, find_checkpoint
from bwbench.records.checksums import with_checksums
from bwbench.records.environment import capture_environment
from bwbench.records.files import full_disk_said, worker_met_limit
from bwbench.records.lock import Claim, claimed
from bwbench.records.schema import Environment, Event, Others, Status
from bwbench.running.launch.attempt import LaunchOutcome, LinkFile, Resumption, cell_status
from bwbench.running.launch.local import LocalLauncher
from bwbench.running.launch.virtual import LOOK_S, VirtualLauncher
from bwbench.running.machine_load import disturbed, in_company, sees_whole_machine
from bwbench.running.machine_turn import SHARE, TakeTurn, machine_turn, shares_machine

WALL_LIMIT_S = 300.0  # the parent's guard against a cell that would never end: start-up on a busy machine …
WALL_LIMIT_FACTOR = 10.0  # … and training this many times as long as predicted
# Nothing is predicted of a network that nobody has measured yet; whether training gets on is watched on the hosts.
HOSTS_WALL_LIMIT_S = 86400.0

RunCell: TypeAlias = "Callable[[PlannedCell, float, CellObserver], Status]"
CellRun: TypeAlias = Generator[None, None, Status]  # a cell that runs: an item for every look at it, then its end
BeginCell: TypeAlias = "Callable[[PlannedCell, float, CellObserver, TakeTurn, float], CellRun]"


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
    run = begin_cell(item, wall_limit_s, observer)
    while True:
        try:
            next(run)
        except StopIteration as end:
            status: Status = end.value
            return status


def begin_cell(
    item: PlannedCell,
    wall_limit_s: float,
    observer: CellObserver,
    turn: TakeTurn = machine_turn,
    look_s: float = LOOK_S,
) -> CellRun:
    """``run_cell`` bit by bit, so that several cells of virtual nodes can run at once: each item is a look at it.

    Nothing has begun before the first. Any other cell runs to its end in it. A KeyboardInterrupt thrown in ends the
    cell as Ctrl-C does.

    Args:
        turn: holds the machine while the cell runs.
        look_s: seconds that a look may take.
    """
    with full_disk_said(item.folder), claimed(item.folder) as claim:
        if (recorded := ended_since(item)) is not None:
            return recorded
        for torn in (*item.folder.glob(".*.part"), *item.folder.glob("attempt-*/.*.part")):  # of a killed process
            torn.unlink(missing_ok=True)
        keep_planned(item)
        noting = NotingObserver(item.cell, observer, claim)
        with turn(lambda who: noting.cell_phase(item.cell, f"waiting for {who} on this machine")):
            return (yield from _Attempt(item, noting).run(wall_limit_s, look_s))


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
    undone = recorded.status != "done" or recorded.composed is not None or lacks_times(item.cell, item.folder)
    return None if undone else recorded


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
        environment = capture_environment(sources_of(item.cell.config), compiled_codecs=are_compiled())
        if item.cell.config.compute.virtual:
            environment = environment.model_copy(update={"virtual": True})
        self.environment = environment
        self.resumption = Resumption(*find_checkpoint(item.folder, item.cell.config.nodes, environment))
        self.folder = CellFolder(item.folder).new_attempt()
        write_record(self.folder / "environment.json", environment)
        delete_unfinished(item.folder)
        if self.resumption.checkpoint is not None:
            self.resumption.checkpoint.begin(self.folder)
        if self.resumption.words is not None:
            self._say(self.resumption.words)
        config = item.cell.config
        self.link = LinkFile(config.link, self.folder, config.dilation, config.shrink)

    def run(self, wall_limit_s: float, look_s: float) -> CellRun:
        """Train, and record how that ended, whatever ends it."""
        cell = self.item.cell
        outcome = LaunchOutcome("interrupted", "interrupted")
        with in_company() as company:
            try:
                outcome = yield from self._train(wall_limit_s, look_s)
            except BwbenchError as error:
                outcome = LaunchOutcome("failed", str(error))
                if isinstance(error, UnfitMachineError) and not isinstance(error, LinkError):
                    outcome = LaunchOutcome("interrupted", str(error))  # to be run once the machine is fit
                    raise  # the next cell would meet the same
            finally:
                if cell.config.launcher != "ssh":
                    outcome = self._beside(company.others(), outcome)
                status = cell_status(cell, self.folder, outcome, self.link.record, self.resumption)
                status = with_checksums(status, self.item.folder)
                write_record(self.item.folder / "status.json", status)
                self.resumption.tidy(self.folder, status.status)
        return status

    def _train(self, wall_limit_s: float, look_s: float) -> Generator[None, None, LaunchOutcome]:
        """Train where the cell wants to be trained. Raises UnfitMachineError where the machine has failed it."""
        config = self.item.cell.config
        if config.launcher == "ssh":
            return self._train_on_hosts(wall_limit_s)  # of their own disks the hosts tell
        try:
            if config.compute.virtual:
                outcome = yield from self._train_virtually(wall_limit_s, look_s)
            else:
                link, factor = config.link_as_made, config.dilation
                with open_network(link, config.nodes, control_path=True, dilation=factor) as network:
                    outcome = self._train_on(network, wall_limit_s)
        except (LaunchError, LinkError) as error:
            if unfit := worker_met_limit(self.folder, str(error)):
                raise UnfitMachineError(unfit) from error
            raise
        if outcome.status == "failed" and (unfit := worker_met_limit(self.folder, outcome.reason)):
            raise UnfitMachineError(unfit)  # no fault of the cell's, and of the next one neither
        return outcome

    def _beside(self, others: Others, outcome: LaunchOutcome) -> LaunchOutcome:
        """Record what else was at work on the machine: times that it may have lengthened are no result."""
        config, path = self.item.cell.config, self.folder / "environment.json"
        if (before := self.resumption.checkpoint) is not None:
            earlier = read_record(Environment, path.parent.parent / f"attempt-{before.attempt}" / path.name)
            trained = earlier.others.trained if earlier is not None and earlier.others is not None else ()
            others = others.model_copy(update={"trained": tuple(dict.fromkeys((*trained, *others.trained)))})
        write_record(path, self.environment.model_copy(update={"others": others}))
        # Whether padded steps were late is known by itself, and a bwbench that can be met is named, not guessed at.
        judges_load = not config.compute.declared and not sees_whole_machine()
        why = disturbed(others, config.nodes * config.compute.threads, judges_load=judges_load)
        if outcome.status != "done" or shares_machine() or why is None or config.compute.virtual:
            return outcome
        reason = f"{why}; run it again, or accept that others disturb its times with {SHARE}=1 in the environment"
        return replace(outcome, status="invalid", reason=reason)

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

    def _train_virtually(self, wall_limit_s: float, look_s: float) -> Generator[None, None, LaunchOutcome]:
        """Train all nodes in one process: there is no network to verify."""
        self.link.add_virtual_nodes()
        self._say("starting virtual nodes")
        launcher = VirtualLauncher(self.item.cell, self.item.folder / "cell.json", self.folder, self.resumption)
        return (yield from launcher.run(wall_limit_s, self._on_event, look_s))

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
