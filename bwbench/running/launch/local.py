"""Launcher ``local``: one worker a namespace, supervised until all have ended or one of them failed."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bwbench.base.registry import ALGORITHMS
from bwbench.base.start_module import module_command
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.experiment import longest_period
from bwbench.experiment.config.step_trace import longest_asked_s
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.given_cell import planned_environment
from bwbench.network.namespaces.addresses import CONTROL_INTERFACE, TORCH_PORT, control_address
from bwbench.network.namespaces.backend import WireCounters, lateness_between
from bwbench.network.network import Network, NodeProcess
from bwbench.records.schema import Carried, End, Ending, Event, JsonObject, RankError, WireTraffic, event_of
from bwbench.running.launch.attempt import LaunchOutcome, Resumption, emulator_of, emulator_unfit, with_log
from bwbench.running.launch.deaths import MemoryKills, describe_exit
from bwbench.running.launch.liveness import (
    DEAD_AFTER_S,
    STALL_AFTER_S,
    WORTH_A_WORD_S,
    DeadLinks,
    Stalls,
    is_stopped,
    unanswered,
)
from bwbench.running.launch.worker_channels import Channels

POLL_S = 0.2
LOOK_S = 1.0  # how often to ask the agent for counters and health: looking costs time that the workers need
STARTUP_LIMIT_S = 180.0  # importing torch and loading data, many workers on few cores
CHECKPOINT_LIMIT_S = 600.0  # to write one: waiting for a slow disk is neither computing nor sending
SLEPT_S = 10.0  # no look for so long: this program was stopped, and knows nothing of the meantime
END_LIMIT_S = 10.0  # from the first end event (or failure) to the exit of all
BLAME_S = 0.3  # what the peers of a dead rank need to notice and to fail in turn
SETTLE_S = 0.05  # counters that stand still for this long have drained
SETTLE_LIMIT_S = 5.0

EventHandler = Callable[[int, Event], None]


def quiet_steps(config: CellConfig) -> int:
    """So many steps, at most, in which nothing crosses the link and nobody reports anything."""
    algorithm = config.algorithm.build(ALGORITHMS)
    if algorithm.sends:
        return longest_period(algorithm)
    steps: int = math.ceil(min(config.evaluate.every_samples, config.limit.samples) / config.global_batch)
    return steps


class LocalLauncher:
    """Runs the workers of one cell in the namespaces of ``network``, which has a control path."""

    def __init__(
        self, network: Network, cell: Cell, cell_file: Path, attempt: Path, resumption: Resumption | None = None
    ) -> None:
        self._network = network
        self._cell = cell
        self._cell_file = cell_file
        self._attempt = attempt
        self._resumption = resumption or Resumption()
        self._num_ranks = cell.config.nodes
        self._processes: list[NodeProcess] = []
        self._ends: dict[int, End] = {}
        self._errors: dict[int, str] = {}
        self._waiting: dict[str, set[int]] = {}
        self._counts: dict[str, WireCounters] = {}
        self._health: dict[str, JsonObject] = {}
        self._playing_since_mono_s = 0.0
        self._writing_checkpoint = False
        self._memory_kills = MemoryKills()
        self._dilation = cell.config.dilation
        self._slow = max(1.0, self._dilation)  # what takes longer to be seen
        self._dead_links = DeadLinks([node.data_address for node in network.nodes])
        pause_s = longest_asked_s(cell.config.compute, quiet_steps(cell.config))  # one node pads, and the others wait
        self._stalls = Stalls(self._num_ranks, pause_s * self._dilation, self._slow)

    def run(self, wall_limit_s: float, on_event: EventHandler) -> LaunchOutcome:
        """Start the workers and wait until they have ended.

        Args:
            wall_limit_s: seconds after which the group is ended with status ``timeout``.
            on_event: called with (rank, event) for what workers report while they run.
        """
        channels = Channels.to_start(self._num_ranks)
        try:
            self._start(channels)
            return self._supervise(channels, wall_limit_s, on_event)
        finally:
            for process in self._processes:
                with contextlib.suppress(Exception):
                    process.kill()
            channels.close()

    def _start(self, channels: Channels) -> None:
        for rank in range(self._num_ranks):
            node = self._network.nodes[rank]
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(self._num_ranks),
                "MASTER_ADDR": control_address(0),
                "MASTER_PORT": str(TORCH_PORT),
                "OMP_NUM_THREADS": str(self._cell.config.compute.threads),
                "BWBENCH_DATA_INTERFACE": node.data_interface,
                "BWBENCH_CONTROL_INTERFACE": CONTROL_INTERFACE,
                "BWBENCH_ATTEMPT_DIR": str(self._attempt),
                "BWBENCH_CHANNEL_FD": "3",
                **planned_environment(self._cell),
                **self._resumption.environment,
                "PYTHONUNBUFFERED": "1",
            }
            with (self._attempt / f"rank{rank}.log").open("ab") as log:
                process = self._network.spawn(
                    rank,
                    [*module_command("bwbench.training.loop.worker"), str(self._cell_file)],
                    env=environment,
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                    pass_fds={3: channels.worker_ends[rank].fileno()},
                    few_rights=True,
                )
            self._processes.append(process)
        for end in channels.worker_ends:  # so that a dead worker is seen as end of file
            end.close()

    def _supervise(self, channels: Channels, wall_limit_s: float, on_event: EventHandler) -> LaunchOutcome:
        started = last_look = time.monotonic()
        self._stalls.forget(started)

        def handle(rank: int, message: JsonObject) -> None:
            event = event_of(message)
            if event is None and message.get("event") == "phase":
                self._reach(channels, rank, str(message.get("phase")))
            elif isinstance(event, End):
                self._ends[rank] = event
            elif isinstance(event, RankError):
                self._errors[rank] = event.message
            self._stalls.forget(time.monotonic())
            if event is not None:
                on_event(rank, event)

        while True:
            channels.poll(POLL_S, handle)
            if self._fallen():
                time.sleep(BLAME_S)
                channels.poll(0.0, handle)  # what the fallen said last, be it their end event
                if fallen := self._fallen():
                    return self._outcome("failed", self._blame(fallen))
            if len(self._ends) == self._num_ranks:
                return self._ended()
            now = time.monotonic()
            if now - last_look < LOOK_S:
                continue
            if now - last_look > SLEPT_S:
                self._dead_links.forget()
                self._stalls.forget(now)
            last_look = now
            if self._network.health().get("alive") is False:
                return self._outcome("failed", "the emulator of the link has ended")
            if now - started > wall_limit_s:
                reason = f"the time guard of {wall_limit_s:.0f} s ended the cell"
                return self._outcome("timeout", reason)
            if stuck := self._look(now):
                return self._outcome("failed", stuck)

    def _look(self, now: float) -> str | None:
        """Why the group will not get on, by what can be seen from outside; None where it does."""
        counters = self._network.counters()
        self._dead_links.look(now, [row for process in self._processes for row in unanswered(process.pid)], counters)
        self._stalls.look(
            now,
            [process.cpu_time_s() for process in self._processes],
            [is_stopped(process.pid) for process in self._processes],
            counters,
        )
        started = len(self._waiting.get("ready", ())) == self._num_ranks
        dead = self._dead_links.verdict(now, counters, DEAD_AFTER_S * self._slow)
        limit_s = STALL_AFTER_S * self._slow if started else STARTUP_LIMIT_S
        return dead or self._stalls.verdict(now, CHECKPOINT_LIMIT_S if self._writing_checkpoint else limit_s)

    def _reach(self, channels: Channels, rank: int, phase: str) -> None:
        """A rank has reached a phase, which is answered once every one has."""
        self._writing_checkpoint &= phase != "going on"  # said by whoever knows that all have written
        reached = self._waiting.setdefault(phase, set())
        reached.add(rank)
        if len(reached) == self._num_ranks and phase in ("training", "checkpoint", "drained"):
            answer = self._checkpoint() if phase == "checkpoint" else self._count(phase)
            for other in range(self._num_ranks):
                channels.answer(other, {"ok": True, **answer})

    def _count(self, phase: str) -> JsonObject:
        """Read the counters at the begin or the end of the training; what varies over time varies in between."""
        if phase == "drained":
            self._network.hold()
        self._counts[phase] = self._settled_counters()
        self._health[phase] = self._network.health()
        if phase == "training":
            played_s = self._resumption.carried.played_s
            self._network.play(played_s)
            self._playing_since_mono_s = time.monotonic() - played_s * self._dilation
        return {}

    def _checkpoint(self) -> JsonObject:
        """What the ranks are to keep for the launcher of a later attempt; ``unfit``: why this is not worth keeping."""
        self._waiting.pop("checkpoint")
        self._writing_checkpoint = True
        counters, health = self._settled_counters(), self._network.health()
        if unfit := emulator_unfit(
            emulator_of(health, lateness_between(self._health["training"], health)), self._dilation
        ):
            return {"unfit": unfit}
        wire = self._wire(counters)
        played_s = (time.monotonic() - self._playing_since_mono_s) / self._dilation
        return {"carried": Carried(wire=wire, played_s=played_s, wall_s=self._resumption.wall_s).to_json()}

    def _settled_counters(self) -> WireCounters:
        """Wire counters once nothing moves any more: what was sent may still be on its way through the queues."""
        latest = self._network.counters()
        link = self._cell.config.link
        longest_s = max(node.latency_s for node in link.nodes(self._num_ranks)) if link.shaped else 0.0
        quiet_s = SETTLE_S + 2 * longest_s * self._dilation
        deadline = time.monotonic() + SETTLE_LIMIT_S + 2 * quiet_s
        while time.monotonic() < deadline:
            time.sleep(quiet_s)
            previous, latest = latest, self._network.counters()
            if latest == previous:
                break
        return latest

    def _wire(self, after: WireCounters | None) -> WireTraffic | None:
        """Traffic of the training up to the moment of these counters; None where it was not counted."""
        before = self._counts.get("training")
        if before is None or after is None:
            return None
        return self._resumption.traffic(WireTraffic(**asdict(after.minus(before).total())))

    def _outcome(self, status: Ending, reason: str) -> LaunchOutcome:
        before, after = self._health.get("training"), self._health.get("drained")
        lateness = None if before is None or after is None else lateness_between(before, after)
        return LaunchOutcome(status, reason, self._ends, self._wire(self._counts.get("drained")), lateness)

    def _blame(self, fallen: dict[int, int]) -> str:
        """Why the group has failed, with the last lines of the culprit's log.

        One rank's end makes its peers fail too: the culprit is whoever was killed, else whoever reported an error
        first, else the lowest rank.
        """
        killed = [rank for rank, returncode in fallen.items() if returncode < 0]
        rank = next(iter([*killed, *(rank for rank in self._errors if rank in fallen), *fallen]))
        reason = f"rank {rank} {describe_exit(fallen[rank])}{self._memory_kills.cause(fallen[rank])}"
        if rank in self._errors:
            reason += f": {self._errors[rank]}"
        if dead := self._dead_links.verdict(time.monotonic(), self._network.counters(), WORTH_A_WORD_S):
            reason += f"; {dead}"
        return with_log(reason, self._attempt, rank)

    def _fallen(self) -> dict[int, int]:
        """Return codes of the ranks that have exited without an end event."""
        returncodes = {rank: process.poll() for rank, process in enumerate(self._processes) if rank not in self._ends}
        return {rank: returncode for rank, returncode in returncodes.items() if returncode is not None}

    def _ended(self) -> LaunchOutcome:
        """All have ended as they should; returns once they have exited, too."""
        deadline = time.monotonic() + END_LIMIT_S
        for process in self._processes:
            with contextlib.suppress(Exception):  # success is the end event; whoever lingers is killed by the caller
                process.wait(max(0.0, deadline - time.monotonic()))
        for rank, end in self._ends.items():
            if end.status == "diverged":
                reason = with_log(end.reason, self._attempt, rank)
                return self._outcome("diverged", reason)
        return self._outcome("done", self._ends[0].reason)
