"""The companion of a worker that torchrun or Slurm started.

``python -m bwbench.running.launch.companion FD CELL_JSON RANK``.

It claims the cell, ends the worker where the network is dead or nothing comes any more, and writes status.json once the
worker has ended, however that was (rank 0 does; others keep their records for it to fetch). It ends with its worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

from bwbench.base.errors import EXIT_UNFIT_MACHINE, CellTakenError, RecordError
from bwbench.experiment.plan.given_cell import given_cell
from bwbench.records import CellFolder, read_last_events, read_record, write_record
from bwbench.records.checksums import with_checksums
from bwbench.records.files import EventWriter, worker_met_limit
from bwbench.records.lock import Claim, claimed
from bwbench.records.schema import (
    End,
    Environment,
    Evaluation,
    JsonObject,
    Measurement,
    RankError,
    Record,
    Status,
    WireTraffic,
    event_of,
)
from bwbench.running.launch.attempt import LaunchOutcome, LinkFile, Moment, Resumption, cell_status
from bwbench.running.launch.deaths import MemoryKills, describe_exit, foreign_returncode
from bwbench.running.launch.liveness import FOREIGN_PROC, CompanionWatch, proc_is_own
from bwbench.running.launch.worker_channels import Channels

POLL_S = 0.2
LOOK_S = 1.0
SAY_EVERY_S = 2.0
_WHEN: dict[Moment, str] = {
    "achieved_before": "the link before training",
    "achieved_during": "the link during training",
    "achieved_after": "the link after training",
}
DEATH = "death"  # type of the error that a companion records of a worker that could not do so itself
LAST_LOOKS = 10  # at what a worker has said before it ended: some 64 kB each


class _Claimed(Record):
    """What the worker says when it asks for its cell: the hosts of all ranks; the attempt that rank 0 has made."""

    hosts: tuple[Environment, ...]
    attempt: str | None = None


class _Measured(Record):
    """What the ranks have found of the network; ``clock_s`` is None off the training clock."""

    when: Moment
    clock_s: float | None = None
    measurement: Measurement


class Companion:
    """Beside one worker, from its start to its end."""

    def __init__(self, connection: socket.socket, cell_file: Path, rank: int, worker: psutil.Process) -> None:
        self._channels = Channels([connection])
        self._folder, self._rank, self._worker = cell_file.parent, rank, worker
        self._cell = given_cell(cell_file, os.environ)
        self._resources = contextlib.ExitStack()
        self._claim: Claim | None = None
        self._attempt: Path | None = None
        self._record: LinkFile | None = None
        self._hosts: list[Environment] = []
        self._watch: CompanionWatch | None = None
        self._resumption = Resumption()
        self._unlike: str | None = None  # what the link is not as it was asked to be
        self._error: str | None = None
        self._signal: str | None = None
        self._verdict: str | None = None
        self._wire: WireTraffic | None = None
        self._is_recorded = False
        self._memory_kills = MemoryKills()
        self._said_s = 0.0

    def run(self) -> None:
        """Until the worker has ended; then write the result."""
        last_look_s = time.monotonic()
        try:
            while self._channels.is_open and self._is_running():
                self._channels.poll(POLL_S, self._note)
                if (now_s := time.monotonic()) - last_look_s > LOOK_S:
                    last_look_s = now_s
                    self._look(now_s)
            for _ in range(LAST_LOOKS):
                self._channels.poll(0.0, self._note)
            self._conclude()
        finally:
            self._resources.close()
            self._channels.close()

    def _is_running(self) -> bool:
        """Whether the worker lives: a process that it has forked may hold its end of the channel open."""
        try:
            return self._worker.is_running() and self._worker.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def _look(self, now_s: float) -> None:
        if self._watch is None or self._verdict is not None:
            return
        self._verdict = self._watch.look(now_s)
        if self._verdict is not None:
            print(f"bwbench: {self._cell.slug}: {self._verdict}", file=sys.stderr, flush=True)
            with contextlib.suppress(psutil.Error):
                self._worker.send_signal(signal.SIGKILL)

    def _note(self, _: int, message: JsonObject) -> None:
        """Take in what the worker says."""
        if self._watch is not None:
            self._watch.heard(time.monotonic())
        event = event_of(message)
        if isinstance(event, RankError):
            self._error = event.message
        elif isinstance(event, Evaluation):
            self._say(event)
        if event is not None:
            return
        kind = message.get("event")
        if kind == "phase" and message.get("phase") == "claim":
            self._channels.answer(0, self._begin(_Claimed.model_validate(message)))
        elif kind == "phase":
            self._reach(str(message.get("phase")))
        elif kind == "measured":
            found = _Measured.model_validate(message)
            if self._record is not None:
                self._record.add_found(found.when, found.measurement, found.clock_s)
                reasons = "; ".join(found.measurement.reasons)
                self._unlike = f"{_WHEN[found.when]}: {reasons}" if reasons else None
        elif kind == "traffic":
            self._wire = WireTraffic.model_validate(message)
        elif kind == "signal":
            self._signal = str(message.get("signal"))

    def _reach(self, phase: str) -> None:
        # Who was told to end has not trained undisturbed, even if it has come to its end meanwhile.
        self._is_recorded |= phase == "recorded" and self._signal is None
        if self._claim is not None:
            self._claim.note(phase=phase)
        answer = {"unfit": "no checkpoints under launcher 'external'"} if phase == "checkpoint" else {}
        if phase in ("training", "checkpoint", "drained", "recorded"):
            self._channels.answer(0, {"ok": True, **answer})

    def _begin(self, claim: _Claimed) -> JsonObject:
        """Claim the cell and make the attempt (rank 0), or join it; what the worker is told."""
        self._hosts = list(claim.hosts)
        addresses = [host.address or "" for host in self._hosts]
        self._watch = CompanionWatch(self._worker.pid, addresses, self._hosts[self._rank].interface or None)
        if self._rank != 0:
            self._attempt = self._folder / str(claim.attempt)
            self._attempt.mkdir(parents=True, exist_ok=True)
            return {"ok": True}
        try:
            self._claim = self._resources.enter_context(claimed(self._folder))
        except CellTakenError as error:
            return {"refused": str(error)}
        try:
            status = read_record(Status, self._folder / "status.json")
        except RecordError as error:  # it is not written over
            return {"refused": str(error)}
        if status is not None and status.status == "done":
            print(f"bwbench: {self._cell.slug}: done already", file=sys.stderr, flush=True)
            return {}
        (self._folder / "status.json").unlink(missing_ok=True)
        self._attempt = CellFolder(self._folder).new_attempt()
        environment = self._hosts[0].model_copy(update={"hosts": claim.hosts})
        write_record(self._attempt / "environment.json", environment)
        self._record = LinkFile(self._cell.config.link, self._attempt)
        self._record.add_real_network([host.interface or "" for host in self._hosts])
        return {"attempt": self._attempt.name}

    def _say(self, found: Evaluation) -> None:
        """How far the training is, now and then."""
        now_s = time.monotonic()
        if self._rank != 0 or found.split != "validation" or now_s - self._said_s < SAY_EVERY_S:
            return
        self._said_s = now_s
        target = self._cell.config.target
        name = target.metric if target else "accuracy"
        value = found.mean.get(name)
        shown = "" if value is None else f"{name} {value:.3f} "
        far = f"after {found.samples} samples, {found.clock_s:.1f} s of training"
        text = f"bwbench: {self._cell.slug}: {shown}{far}"
        print(text, file=sys.stderr, flush=True)

    def _conclude(self) -> None:
        """Write the cell's result, where this is rank 0; say of another rank what it could not say itself."""
        if self._attempt is None:
            return
        if self._rank != 0 or self._record is None:
            self._tell_death(self._attempt)
            return
        events = {
            rank: read_last_events(self._attempt / f"rank{rank}.jsonl") for rank in range(self._cell.config.nodes)
        }
        ends = {rank: event for rank, own in events.items() for event in own if isinstance(event, End)}
        said = (event for own in events.values() for event in own if isinstance(event, RankError))
        outcome = self._outcome(ends, [event.message for event in said if event.type == DEATH])
        if outcome.status == "failed" and (unfit := worker_met_limit(self._folder, outcome.reason)):
            outcome = replace(outcome, status="interrupted", reason=unfit)
        self._record.add_wire(outcome)
        status = cell_status(self._cell, self._attempt, outcome, self._record.record, self._resumption)
        text = f"bwbench: {self._cell.slug}: {outcome.status}: {outcome.reason}"
        try:
            write_record(self._folder / "status.json", with_checksums(status, self._folder))
        except OSError as error:
            text += f" (and the result cannot be written: {self._folder}: {error.strerror})"
        print(text, file=sys.stderr, flush=True)

    def _tell_death(self, attempt: Path) -> None:
        """In the rank's records, which rank 0's companion sees on a shared disk, and where the job's messages go."""
        if self._is_recorded or self._verdict or self._error or self._signal:
            return
        text = self._death()
        print(f"bwbench: {self._cell.slug}: {text}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError), contextlib.closing(EventWriter(attempt / f"rank{self._rank}.jsonl")) as file:
            file.write(RankError(type=DEATH, message=text))

    @property
    def _own(self) -> str:
        return f"rank {self._rank} on {self._hosts[self._rank].host}"

    def _death(self) -> str:
        """What has ended a worker that has said nothing of it."""
        returncode = foreign_returncode(self._worker.pid)
        if returncode is None:
            return f"{self._own} ended without a word, as a process does that is killed"
        return f"{self._own} {describe_exit(returncode)}{self._memory_kills.cause(returncode)}"

    def _outcome(self, ends: dict[int, End], deaths: list[str]) -> LaunchOutcome:
        """How the cell has ended.

        Args:
            deaths: what other companions have found of their workers.
        """
        own = self._own
        if self._unlike is not None and self._verdict is None:
            return LaunchOutcome("invalid", self._unlike, ends, self._wire)
        if self._is_recorded and len(ends) == self._cell.config.nodes:
            diverged = [end for end in ends.values() if end.status == "diverged"]
            end = diverged[0] if diverged else ends[0]
            return LaunchOutcome("diverged" if diverged else "done", end.reason, ends, self._wire)
        if self._verdict is not None:
            return LaunchOutcome("failed", f"{own}: {self._verdict}", ends)
        if self._signal == "SIGINT":  # torchrun has got it too, and hands it on
            return LaunchOutcome("interrupted", f"{own} was ended by SIGINT, as Ctrl-C sends it", ends)
        if deaths or self._error is not None:
            return LaunchOutcome("failed", "; ".join([*deaths, *([self._error] if self._error else [])]), ends)
        if self._signal is not None:
            reason = f"{own} was ended by {self._signal}; torchrun and Slurm send it where another rank has failed"
            return LaunchOutcome("interrupted", reason, ends)
        return LaunchOutcome("failed", self._death(), ends)


def main(arguments: list[str]) -> int:
    """Run beside the process that has started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker's end is this one's
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, cell_file, rank = int(arguments[0]), Path(arguments[1]), int(arguments[2])
    if not proc_is_own():
        print(f"error: {FOREIGN_PROC}", file=sys.stderr)
        return EXIT_UNFIT_MACHINE
    Companion(socket.socket(fileno=descriptor), cell_file, rank, psutil.Process(os.getppid())).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
