"""Launcher ``ssh``: preflight, one torchrun a host, records brought back as they arise, everything ended in the end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bwbench.base.errors import LaunchError, RecordError
from bwbench.experiment.config.hosts import Host
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.given_cell import planned_environment
from bwbench.records import read_events, read_json, read_record
from bwbench.records.schema import Evaluation, Event, Json, Status
from bwbench.running.launch.attempt import LaunchOutcome, describe_exit
from bwbench.running.launch.ssh.connection import HostError, HostSession, connected
from bwbench.running.launch.ssh.keeper import KeeperOrder
from bwbench.running.launch.ssh.preflight import HostReport, examine, refuse_unfit, shaping_requests

LOOK_S = 0.5
OTHERS_LIMIT_S = 20.0  # after the first host has ended: for the others to see it
STOP_LIMIT_S = 40.0

EventHandler = Callable[[int, Event], None]


class SshLauncher:
    """Runs the workers of one cell on its hosts.

    Args:
        attempt: folder of the records, here.

    Attributes:
        shaped: once it has run: what each host's shaper said that it applied; None for a host of which nothing came.
    """

    def __init__(self, cell: Cell, attempt: Path) -> None:
        self._cell, self._attempt = cell, attempt
        self._placed = placed(cell.config.hosts, cell.config.nodes)
        self._token = secrets.token_hex(16)
        self._sessions: list[HostSession] = []
        self._shown = 0
        self.shaped: list[Json] = []

    def run(self, wall_limit_s: float, on_event: EventHandler) -> LaunchOutcome:
        """Start the workers and wait until they have ended.

        Raises:
            UnfitMachineError: a host cannot take part.
            ConfigError: asyncssh is not installed.
            KeyboardInterrupt: handed on once everything has ended everywhere.
        """
        # With the attempt, where what a killed controller had received is found and goes with it.
        with tempfile.TemporaryDirectory(dir=self._attempt, prefix="received-") as received:
            return asyncio.run(self._run(Path(received), wall_limit_s, on_event))

    async def _run(self, received: Path, wall_limit_s: float, on_event: EventHandler) -> LaunchOutcome:
        hosts = [host for host, _ in self._placed]
        async with connected(hosts) as connections:
            try:
                reports = await examine(connections, hosts, [self._cell])
                refuse_unfit(reports)
                self._sessions = [
                    # A token of its own for each host's part of the run: homes may lie on one disk.
                    HostSession(
                        host, connections[host], f"{self._token}{number:04x}", received / str(number), self._print
                    )
                    for number, host in enumerate(hosts)
                ]
                await self._start(reports)
                return await self._supervise(received, wall_limit_s, on_event)
            finally:
                await asyncio.shield(self._end())
                self._bring(received)

    async def _start(self, reports: Sequence[HostReport]) -> None:
        first, link = reports[0], self._cell.config.link
        shaping = shaping_requests(reports, link) if link.shaped else [None] * len(reports)
        for number, ((host, workers), session) in enumerate(zip(self._placed, self._sessions, strict=True)):
            command = (
                *("-m", "bwbench.training.loop.torchrun"),
                *(f"--nnodes={len(self._placed)}", f"--nproc-per-node={workers}"),
                *("--rdzv-backend=bwbench", f"--rdzv-endpoint={first.address}:{first.rendezvous_port}"),
                *(f"--rdzv-conf=rank={number}", f"--rdzv-id={self._token}", "--max-restarts=0"),
                *("-m", "bwbench.training.loop.worker"),
            )
            environment = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(self._cell.config.compute.threads)}
            environment |= planned_environment(self._cell)
            if host.interface is not None:
                environment["BWBENCH_DATA_INTERFACE"] = host.interface
            if host.data is not None:
                environment["BWBENCH_DATA"] = host.data
            order = KeeperOrder(
                token=session.token,
                cell=self._cell.to_json(),
                command=command,
                environment=environment,
                shaping=shaping[number],
            )
            try:
                await session.start(order)
            except HostError as error:
                raise LaunchError(f"{host.name}: {error}") from None

    async def _supervise(self, received: Path, wall_limit_s: float, on_event: EventHandler) -> LaunchOutcome:
        following = [asyncio.create_task(session.follow()) for session in self._sessions]
        began_s = time.monotonic()
        fallen_s: float | None = None
        reason: str | None = None
        stopped = False
        try:
            while not all(task.done() for task in following):
                await asyncio.sleep(LOOK_S)
                self._show(received, on_event)
                now_s = time.monotonic()
                if now_s - began_s > wall_limit_s and reason is None:
                    reason = f"the time guard of {wall_limit_s:.0f} s ended the cell"
                    await self._stop()
                if fallen_s is None and any(session.lost or _failed(session) for session in self._sessions):
                    fallen_s = now_s
                # Who only waits for a rank that is gone has nothing on its way, and so nothing that tells it so.
                gone = any(session.ended is None and session.out_of_reach for session in self._sessions)
                if (gone and not stopped) or (fallen_s is not None and now_s - fallen_s > OTHERS_LIMIT_S):
                    await self._stop()
                    fallen_s, stopped = now_s, True
            for task in following:
                task.result()
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        self._show(received, on_event)
        return self._outcome(received, reason)

    def _outcome(self, received: Path, reason: str | None) -> LaunchOutcome:
        """How it ended, by what rank 0's host has recorded, and by what each host's keeper has said.

        Args:
            reason: why it was ended from here; None where it was not.
        """
        if reason is not None:
            return LaunchOutcome("timeout", reason)
        try:
            recorded = read_record(Status, received / "0" / "cell" / "status.json")
            troubles: list[str] = []
        except RecordError as error:
            recorded, troubles = None, [str(error)]
        for session in self._sessions:
            if session.lost is not None:
                troubles.append(f"host {session.host.name} was lost: {session.lost}")
            elif session.ended is not None and session.ended.why:
                troubles.append(f"host {session.host.name}: {session.ended.why}")
            elif session.ended is not None and session.ended.returncode not in (0, 1):
                troubles.append(f"host {session.host.name}: torchrun {describe_exit(session.ended.returncode)}")
        said = (recorded.reason if recorded is not None else None) or ""
        if recorded is not None and recorded.status in ("done", "diverged", "invalid"):
            return LaunchOutcome(recorded.status, said)
        failed = [session.host.name for session in self._sessions if _failed(session)]
        known = [*troubles, *([said] if said else [])] or [f"torchrun failed on {', '.join(failed)}; see host0.log"]
        return LaunchOutcome("failed", "; ".join(known))

    async def _stop(self) -> None:
        await asyncio.gather(*(session.stop() for session in self._sessions))

    async def _end(self) -> None:
        """Nothing may run on when this returns, nor be left on the hosts that still answer."""
        running = [session for session in self._sessions if session.ended is None and session.lost is None]
        if running:
            await asyncio.gather(*(session.stop() for session in running))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(session.follow() for session in running)), STOP_LIMIT_S)
        await asyncio.gather(*(session.clean() for session in self._sessions), return_exceptions=True)

    def _show(self, received: Path, on_event: EventHandler) -> None:
        """What rank 0 has recorded since, for whoever watches."""
        try:
            events = read_events(received / "0" / "cell" / "attempt-1" / "rank0.jsonl")
        except RecordError:  # a line that is being received
            return
        for event in events[self._shown :]:
            if isinstance(event, Evaluation):
                on_event(0, event)
        self._shown = len(events)

    def _print(self, host: Host, line: str) -> None:
        """Keep what a host's torchrun and workers print."""
        number = next(index for index, (placed_host, _) in enumerate(self._placed) if placed_host == host)
        with (self._attempt / f"host{number}.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def _bring(self, received: Path) -> None:
        """The records of all hosts into the attempt; each rank's own host knows it best."""
        found = [read_json(received / str(number) / "cell" / "shaping.json") for number in range(len(self._placed))]
        self.shaped = [content if isinstance(content, dict) else None for content in found]
        for number in reversed(range(len(self._placed))):
            before = sum(workers for _, workers in self._placed[:number])
            own = tuple(f"rank{rank}." for rank in range(before, before + self._placed[number][1]))
            there = received / str(number) / "cell" / "attempt-1"
            for file in there.glob("*") if there.is_dir() else ():
                mine = file.name.startswith("rank") and not file.name.startswith(own)
                if file.is_file() and not mine and (number == 0 or file.name.startswith("rank")):
                    shutil.copyfile(file, self._attempt / file.name)


def placed(hosts: Sequence[Host], nodes: int) -> list[tuple[Host, int]]:
    """The hosts that a cell needs, with the number of ranks on each."""
    found: list[tuple[Host, int]] = []
    for host in hosts:
        if nodes > 0:
            found.append((host, min(nodes, host.workers)))
            nodes -= host.workers
    return found


def _failed(session: HostSession) -> bool:
    return session.ended is not None and session.ended.returncode != 0
