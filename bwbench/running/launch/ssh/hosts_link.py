"""A link among hosts without a training: applied and held from here, shown, cleared."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from bwbench.base.errors import LinkError
from bwbench.experiment.config.hosts import Host
from bwbench.network.link import Link
from bwbench.running.launch.ssh.connection import HostError, ask, command_line, connected, load_asyncssh, run_to_its_end
from bwbench.running.launch.ssh.host_shaping import BEGIN_LIMIT_S, END_LIMIT_S, SHAPER, ShaperAnswer, ShapingRequest
from bwbench.running.launch.ssh.preflight import examine, refuse_unfit, shaping_requests

Told: TypeAlias = Callable[[dict[Host, ShaperAnswer]], None]


def ask_all(hosts: Sequence[Host], operation: str) -> dict[Host, ShaperAnswer]:
    """What each host's shaper answers to ``show`` or ``clear``; of a host that cannot be asked, why, as ``problem``."""

    async def one(host: Host, connection: Any) -> ShaperAnswer:
        try:
            if isinstance(connection, HostError):
                raise connection
            return cast(ShaperAnswer, await ask(connection, host, SHAPER, [operation], {}))
        except HostError as error:
            return {"problem": str(error)}

    async def everywhere() -> dict[Host, ShaperAnswer]:
        async with connected(hosts) as connections:
            answers = await asyncio.gather(*(one(host, connections[host]) for host in hosts))
        return dict(zip(hosts, answers, strict=True))

    return run_to_its_end(everywhere())


def hold_link(hosts: Sequence[Host], link: Link, duration_s: float, on_applied: Told) -> dict[Host, ShaperAnswer]:
    """Shape the hosts' interfaces towards one another, until ``duration_s`` are over or Ctrl-C comes.

    Args:
        on_applied: called once with what each host's shaper says that it applied.

    Returns what each host that was told to shape says at the end: ``restored`` where everything is as before; nothing
    where it did not answer.

    Raises:
        UnfitMachineError: a host cannot take part; nothing was changed.
        LinkError: a host could not be shaped, or no longer is; everything is taken back.
    """
    held = _HeldLink(hosts, link, duration_s, on_applied)
    with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it; on its way here it has released the hosts
        run_to_its_end(held.run())
    return held.ends


class _HeldLink:
    """Attributes: ``ends``, of each host that was told to shape, what it said after it was told to stop."""

    def __init__(self, hosts: Sequence[Host], link: Link, duration_s: float, on_applied: Told) -> None:
        self._hosts, self._link, self._duration_s, self._on_applied = hosts, link, duration_s, on_applied
        self._shapers: dict[Host, Any] = {}
        self._said: dict[Host, asyncio.Queue[ShaperAnswer]] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._broken = (OSError, load_asyncssh().Error)  # what a connection that breaks is told by
        self.ends: dict[Host, ShaperAnswer] = {}

    async def run(self) -> None:
        async with connected(self._hosts) as connections:
            try:
                reports = await examine(connections, self._hosts, [])
                refuse_unfit(reports)
                starting = zip(self._hosts, shaping_requests(reports, self._link), strict=True)
                await asyncio.gather(*(self._start(host, connections[host], request) for host, request in starting))
                self._on_applied(await self._applied())
                await self._until_one_ends()
            finally:
                # Every shaper is told to take everything back, and heard whether it has; no longer than END_LIMIT_S.
                await asyncio.shield(asyncio.gather(*map(self._released, self._shapers)))

    async def _until_one_ends(self) -> None:
        """Until ``duration_s`` are over. Raises LinkError where a shaper ends before that."""
        # The next thing that a shaper says is that it has ended.
        waiting = [asyncio.create_task(self._answer(host)) for host in self._hosts]
        try:
            done, _ = await asyncio.wait(waiting, timeout=self._duration_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        for host, task in zip(self._hosts, waiting, strict=True):
            if task in done:
                self.ends[host] = task.result()
                why = self.ends[host].get("problem") or "its shaper has ended"
                raise LinkError(f"{host.name} is no longer shaped: {why}")

    async def _start(self, host: Host, connection: Any, request: ShapingRequest) -> None:
        try:
            shaper = await connection.create_process(command_line(host, SHAPER, ["hold"]))
            self._shapers[host], self._said[host], self.ends[host] = shaper, asyncio.Queue(), {}
            self._listening.append(asyncio.create_task(self._listen(host)))
            shaper.stdin.write(json.dumps(request.to_json()) + "\n")
        except self._broken as error:
            raise LinkError(f"{host.name} was not shaped: {_broke(error)}") from None

    async def _applied(self) -> dict[Host, ShaperAnswer]:
        """What each shaper says that it applied. Raises LinkError where one did not, or not in time."""
        try:
            of_all = asyncio.gather(*(self._answer(host) for host in self._hosts))
            answers = dict(zip(self._hosts, await asyncio.wait_for(of_all, BEGIN_LIMIT_S), strict=True))
        except (asyncio.TimeoutError, TimeoutError):
            raise LinkError(f"the hosts were not all shaped within {BEGIN_LIMIT_S:.0f} s") from None
        for host, answer in answers.items():
            if answer.get("problem") or not answer:
                raise LinkError(f"{host.name} was not shaped: {answer.get('problem') or 'its shaper has ended'}")
        return answers

    async def _released(self, host: Host) -> None:
        with contextlib.suppress(*self._broken):
            self._shapers[host].stdin.write_eof()

        async def last() -> ShaperAnswer:
            # What it said of its beginning may not have been read yet.
            while (answer := await self._answer(host)) and "restored" not in answer and "problem" not in answer:
                pass
            return answer

        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            self.ends[host] = await asyncio.wait_for(last(), END_LIMIT_S) or self.ends[host]

    async def _answer(self, host: Host) -> ShaperAnswer:
        """What a shaper says next: nothing where it has ended, a ``problem`` where the connection broke."""
        return await self._said[host].get()

    async def _listen(self, host: Host) -> None:
        """Take in what a shaper says, to its end; by itself, because whoever waits for it may be interrupted."""
        said = self._said[host]
        try:
            while line := await self._shapers[host].stdout.readline():
                said.put_nowait(json.loads(line))
        except self._broken as error:
            said.put_nowait({"problem": _broke(error)})
        said.put_nowait({})


def _broke(error: Exception) -> str:
    return f"the connection broke: {error or type(error).__name__}"
