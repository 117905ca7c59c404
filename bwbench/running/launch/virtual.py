"""Virtual nodes: one process for all ranks of a cell, and no network; looked at now and then until it has ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import psutil

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.ownership import owned
from bwbench.base.start_module import module_command
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.given_cell import planned_environment
from bwbench.records.schema import Carried, End, Event, JsonObject, RankError, event_of
from bwbench.running.launch.attempt import LaunchOutcome, Resumption, with_log
from bwbench.running.launch.deaths import MemoryKills, describe_exit
from bwbench.running.launch.liveness import STALL_AFTER_S, Stalls, is_stopped
from bwbench.running.launch.worker_channels import Channels

LOOK_S = 0.2
JUDGE_S = 1.0  # how often to look whether it gets on
SLEPT_S = 10.0  # no look for so long: this program was stopped, and knows nothing of the meantime
END_LIMIT_S = 10.0  # from the last end event to the exit
QUIET_LIMIT_S = 180.0  # importing torch, loading data and writing checkpoints wait for a disk
# Of glibc: threads that take turns share one arena, and what one has given back the next one takes, in the cache still.
# What is kept and not given back to the kernel saves a tenth of all processor time.
_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
_LAST_LOOKS = 50  # at what the ranks have said before the process ended: some 64 kB each


class VirtualLauncher:
    """Runs all ranks of one cell in one process, which ends with this one."""

    def __init__(self, cell: Cell, cell_file: Path, attempt: Path, resumption: Resumption | None = None) -> None:
        self._cell, self._cell_file, self._attempt = cell, cell_file, attempt
        self._resumption = resumption or Resumption()
        self._num_ranks = cell.config.nodes
        self._ends: dict[int, End] = {}
        self._errors: dict[int, str] = {}
        self._reached: dict[str, set[int]] = {}
        self._memory_kills = MemoryKills()
        self._stalls = Stalls(1)
        self._trains = False

    def run(
        self, wall_limit_s: float, on_event: Callable[[int, Event], None], look_s: float = LOOK_S
    ) -> Generator[None, None, LaunchOutcome]:
        """Start the process, and look at it whenever asked for the next item, until it has ended.

        Whatever is raised where it stands, or closing it, ends the process.

        Args:
            wall_limit_s: seconds after which it is ended with status ``timeout``.
            on_event: called with (rank, event) for what ranks report while they run.
            look_s: that a look waits for them to report something.
        """
        channels = Channels.to_start(1)
        process = None
        try:
            process = self._start(channels)
            return (yield from self._supervise(process, channels, wall_limit_s, on_event, look_s))
        finally:
            if process is not None:
                process.kill()
                process.wait(END_LIMIT_S)
            channels.close()

    def _start(self, channels: Channels) -> subprocess.Popen[bytes]:
        (theirs,) = channels.worker_ends
        environment = {
            **owned(),
            **_MEMORY,
            "OMP_NUM_THREADS": str(self._cell.config.compute.threads),
            "BWBENCH_ATTEMPT_DIR": str(self._attempt),
            "BWBENCH_CHANNEL_FD": str(theirs.fileno()),
            **planned_environment(self._cell),
            **self._resumption.environment,
            "PYTHONUNBUFFERED": "1",
        }
        for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):  # of a job that this program runs in
            environment.pop(name, None)
        for rank in range(self._num_ranks):
            (self._attempt / f"rank{rank}.log").touch()
        with (self._attempt / "rank0.log").open("ab") as log:
            process = subprocess.Popen(
                [*module_command("bwbench.training.loop.virtual_worker"), str(self._cell_file)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is this program's, which ends it
                preexec_fn=die_with_parent,
            )
        theirs.close()  # so that a dead process is seen as end of file
        return process

    def _supervise(
        self,
        process: subprocess.Popen[bytes],
        channels: Channels,
        wall_limit_s: float,
        on_event: Callable[[int, Event], None],
        look_s: float,
    ) -> Generator[None, None, LaunchOutcome]:
        started = last_look = time.monotonic()
        self._stalls.forget(started)

        def handle(_: int, envelope: JsonObject) -> None:
            rank, message = envelope.get("rank"), envelope.get("said")
            if not isinstance(rank, int) or not isinstance(message, dict):
                return
            event = event_of(message)
            if event is None and message.get("event") == "phase":
                self._reach(channels, rank, str(message.get("phase")))
            elif isinstance(event, End):
                self._ends[rank] = event
            elif isinstance(event, RankError):
                self._errors.setdefault(rank, event.message)
            self._stalls.forget(time.monotonic())
            if event is not None:
                on_event(rank, event)

        while True:
            yield
            channels.poll(look_s, handle)
            if process.poll() is not None:
                for _ in range(_LAST_LOOKS):
                    channels.poll(0.0, handle)
            if len(self._ends) == self._num_ranks:
                return self._ended(process)
            if (returncode := process.poll()) is not None:
                return LaunchOutcome("failed", self._blame(returncode), self._ends)
            now = time.monotonic()
            if now - last_look < JUDGE_S:
                continue
            if now - last_look > SLEPT_S:
                self._stalls.forget(now)
            last_look = now
            if now - started > wall_limit_s:
                return LaunchOutcome("timeout", f"the time guard of {wall_limit_s:.0f} s ended the cell", self._ends)
            self._stalls.look(now, [_cpu_time_s(process.pid)], [is_stopped(process.pid)], None)
            if stuck := self._stalls.verdict(now, STALL_AFTER_S if self._trains else QUIET_LIMIT_S):
                return LaunchOutcome("failed", stuck, self._ends)

    def _reach(self, channels: Channels, rank: int, phase: str) -> None:
        """A rank has reached a phase, which is answered once all have, to all at once."""
        reached = self._reached.setdefault(phase, set())
        reached.add(rank)
        if len(reached) < self._num_ranks:
            return
        del self._reached[phase]
        self._trains = phase in ("training", "going on")
        if phase == "checkpoint":
            carried = Carried(wire=None, played_s=0.0, wall_s=self._resumption.wall_s)
            channels.answer(0, {"ok": True, "carried": carried.to_json()})
        elif phase in ("training", "drained"):
            channels.answer(0, {"ok": True})

    def _ended(self, process: subprocess.Popen[bytes]) -> LaunchOutcome:
        """All have ended as they should; returns once the process has exited, too."""
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:  # success is the end event; what lingers is killed by the caller
            pass
        for rank, end in self._ends.items():
            if end.status == "diverged":
                return LaunchOutcome("diverged", with_log(end.reason, self._attempt, rank), self._ends)
        return LaunchOutcome("done", self._ends[0].reason or "", self._ends)

    def _blame(self, returncode: int) -> str:
        """Why the group has failed, with the last lines of the log of whoever reported an error first."""
        if self._errors:
            rank, said = next(iter(self._errors.items()))
            return with_log(f"rank {rank} has failed: {said}", self._attempt, rank)
        why = f"the process of all ranks {describe_exit(returncode)}{self._memory_kills.cause(returncode)}"
        return with_log(why, self._attempt, 0)


def _cpu_time_s(pid: int) -> float:
    """User and system time of a process; 0 of one that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
