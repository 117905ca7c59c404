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
from pathlib import Path
from typing import Any

import psutil

from bwbench.base.errors import EXIT_UNFIT_MACHINE, CellTakenError
from bwbench.experiment.plan.cell import Cell
from bwbench.records import CellFolder, read_json, read_last_events, write_json_atomic
from bwbench.records.lock import Claim, claimed
from bwbench.running.launch.cell_status import cell_status
from bwbench.running.launch.channel import Channels
from bwbench.running.launch.companion_watch import CompanionWatch
from bwbench.running.launch.link_record import LinkRecord
from bwbench.running.launch.outcome import LaunchOutcome, WireTraffic
from bwbench.running.launch.own_proc import PROBLEM, proc_is_own
from bwbench.running.launch.resumption import Resumption

POLL_S = 0.2
LOOK_S = 1.0
SAY_EVERY_S = 2.0
_WHEN = {
    "achieved_before": "the link before training",
    "achieved_during": "the link during training",
    "achieved_after": "the link after training",
}
LAST_LOOKS = 10  # at what a worker has said before it ended: some 64 kB each


class Companion:
    """Beside one worker, from its start to its end."""

    def __init__(self, connection: socket.socket, cell_file: Path, rank: int, worker: psutil.Process) -> None:
        self._channels = Channels([connection])
        self._folder, self._rank, self._worker = cell_file.parent, rank, worker
        self._cell = Cell.from_json(dict(read_json(cell_file) or {}))
        self._resources = contextlib.ExitStack()
        self._claim: Claim | None = None
        self._attempt: Path | None = None
        self._record: LinkRecord | None = None
        self._hosts: list[dict[str, Any]] = []
        self._watch: CompanionWatch | None = None
        self._resumption = Resumption()
        self._unlike: str | None = None  # what the link is not as it was asked to be
        self._error: str | None = None
        self._signal: str | None = None
        self._verdict: str | None = None
        self._wire: WireTraffic | None = None
        self._is_recorded = False
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

    def _note(self, _: int, event: dict[str, Any]) -> None:
        """Take in one event of the worker's."""
        kind = event.get("event")
        if self._watch is not None:
            self._watch.heard(time.monotonic())
        if kind == "phase" and event.get("phase") == "claim":
            self._channels.answer(0, self._begin(event))
        elif kind == "phase":
            self._is_recorded |= event.get("phase") == "recorded"
            if self._claim is not None:
                self._claim.note(phase=str(event.get("phase")))
            answer = {"unfit": "no checkpoints under launcher 'external'"} if event["phase"] == "checkpoint" else {}
            if event["phase"] in ("training", "checkpoint", "drained", "recorded"):
                self._channels.answer(0, {"ok": True, **answer})
        elif kind == "measured" and self._record is not None:
            when, measurement = str(event["when"]), dict(event["measurement"])
            self._record.add_found(when, measurement, event.get("clock_s"))
            reasons = "; ".join(measurement["reasons"])
            self._unlike = f"{_WHEN[when]}: {reasons}" if reasons else None
        elif kind == "traffic":
            self._wire = WireTraffic(event["bytes"], None, event["frames"], None, event["drops"])
        elif kind == "error":
            self._error = str(event.get("message", ""))
        elif kind == "signal":
            self._signal = str(event.get("signal"))
        elif kind == "eval":
            self._say(event)

    def _begin(self, event: dict[str, Any]) -> dict[str, Any]:
        """Claim the cell and make the attempt (rank 0), or join it; what the worker is told."""
        self._hosts = list(event["hosts"])
        addresses = [str(host["address"]) for host in self._hosts]
        self._watch = CompanionWatch(self._worker.pid, addresses, self._hosts[self._rank]["interface"] or None)
        if self._rank != 0:
            self._attempt = self._folder / str(event["attempt"])
            self._attempt.mkdir(parents=True, exist_ok=True)
            return {"ok": True}
        try:
            self._claim = self._resources.enter_context(claimed(self._folder))
        except CellTakenError as error:
            return {"refused": str(error)}
        status = read_json(self._folder / "status.json")
        if isinstance(status, dict) and status.get("status") == "done":
            print(f"bwbench: {self._cell.slug}: done already", file=sys.stderr, flush=True)
            return {}
        (self._folder / "status.json").unlink(missing_ok=True)
        self._attempt = CellFolder(self._folder).new_attempt()
        write_json_atomic(self._attempt / "environment.json", {**self._hosts[0], "hosts": self._hosts})
        self._record = LinkRecord(self._cell.config.link, self._attempt)
        self._record.add_real_network([str(host["interface"]) for host in self._hosts])
        return {"attempt": self._attempt.name}

    def _say(self, event: dict[str, Any]) -> None:
        """How far the training is, now and then."""
        now_s = time.monotonic()
        if self._rank != 0 or event.get("split") != "validation" or now_s - self._said_s < SAY_EVERY_S:
            return
        self._said_s = now_s
        target = self._cell.config.target
        name = target.metric if target else "accuracy"
        value = (event.get("mean") or {}).get(name)
        shown = "" if value is None else f"{name} {value:.3f} "
        clock_s, samples = float(event.get("clock_s") or 0.0), event.get("samples")
        text = f"bwbench: {self._cell.slug}: {shown}after {samples} samples, {clock_s:.1f} s of training"
        print(text, file=sys.stderr, flush=True)

    def _conclude(self) -> None:
        """Write the cell's result, where this is rank 0 and there was an attempt."""
        if self._rank != 0 or self._attempt is None or self._record is None:
            return
        ends = self._ends()
        outcome = self._outcome(ends)
        self._record.add_wire(outcome)
        status = cell_status(self._cell, self._attempt, outcome, self._record.content, self._resumption)
        text = f"bwbench: {self._cell.slug}: {outcome.status}: {outcome.reason}"
        try:
            write_json_atomic(self._folder / "status.json", status)
        except OSError as error:
            text += f" (and the result cannot be written: {self._folder}: {error.strerror})"
        print(text, file=sys.stderr, flush=True)

    def _ends(self) -> dict[int, dict[str, Any]]:
        """The end events of all ranks, as recorded."""
        assert self._attempt is not None
        found = {}
        for rank in range(self._cell.config.nodes):
            for event in read_last_events(self._attempt / f"rank{rank}.jsonl"):
                if event.get("event") == "end":
                    found[rank] = event
        return found

    def _outcome(self, ends: dict[int, dict[str, Any]]) -> LaunchOutcome:
        own = f"rank 0 on {self._hosts[0].get('host')}"
        if self._unlike is not None and self._verdict is None:
            return LaunchOutcome("invalid", self._unlike, ends, self._wire)
        if self._is_recorded and len(ends) == self._cell.config.nodes:
            diverged = [end for end in ends.values() if end.get("status") == "diverged"]
            end = diverged[0] if diverged else ends[0]
            return LaunchOutcome("diverged" if diverged else "done", str(end.get("reason", "")), ends, self._wire)
        if self._verdict is not None:
            return LaunchOutcome("failed", f"{own}: {self._verdict}", ends)
        if self._error is not None:
            return LaunchOutcome("failed", self._error, ends)
        if self._signal is not None:
            reason = f"{own} was ended by {self._signal}; torchrun and Slurm send it where another rank has failed"
            return LaunchOutcome("interrupted", reason, ends)
        return LaunchOutcome("failed", f"{own} ended without a word, as a process does that is killed", ends)


def main(arguments: list[str]) -> int:
    """Run beside the process that has started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker's end is this one's
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, cell_file, rank = int(arguments[0]), Path(arguments[1]), int(arguments[2])
    if not proc_is_own():
        print(f"error: {PROBLEM}", file=sys.stderr)
        return EXIT_UNFIT_MACHINE
    Companion(socket.socket(fileno=descriptor), cell_file, rank, psutil.Process(os.getppid())).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
