"""A link among hosts without a training: applied and held from here, shown, cleared."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bwbench.config.hosts import Host
from bwbench.errors import LinkError
from bwbench.launch.ssh.connection import HostError, ask, close, command_line, connected
from bwbench.launch.ssh.held_shaping import BEGIN_LIMIT_S, END_LIMIT_S, SHAPER
from bwbench.launch.ssh.preflight import examine, refuse_unfit
from bwbench.launch.ssh.request import requests
from bwbench.network.link import Link

Answer = dict[str, Any]


def ask_all(hosts: Sequence[Host], operation: str) -> dict[Host, Answer]:
    """What each host's shaper answers to ``show`` or ``clear``; of a host that cannot be asked, why, as ``problem``."""

    async def one(host: Host, connection: Any) -> Answer:
        try:
            if isinstance(connection, HostError):
                raise connection
            return dict(await ask(connection, host, SHAPER, [operation], {}))
        except HostError as error:
            return {"problem": str(error)}

    async def everywhere() -> dict[Host, Answer]:
        connections = await connected(hosts)
        try:
            answers = await asyncio.gather(*(one(host, connections[host]) for host in hosts))
        finally:
            close(connections)
        return dict(zip(hosts, answers, strict=True))

    return asyncio.run(everywhere())


def hold_link(
    hosts: Sequence[Host], link: Link, duration_s: float, on_applied: Callable[[dict[Host, Answer]], None]
) -> dict[Host, Answer]:
    """Shape the hosts' interfaces towards one another, until ``duration_s`` are over or Ctrl-C comes.

    Args:
        on_applied: called once with what each host's shaper says that it applied.

    Returns what each says at the end: whether everything is as before.

    Raises:
        UnfitMachineError: a host cannot take part; nothing was changed.
        LinkError: a host could not be shaped, or no longer is; everything is taken back.
    """
    held = _HeldLink(hosts, link, duration_s, on_applied)
    return asyncio.run(held.run())


class _HeldLink:
    def __init__(
        self, hosts: Sequence[Host], link: Link, duration_s: float, on_applied: Callable[[dict[Host, Answer]], None]
    ) -> None:
        self._hosts, self._link, self._duration_s, self._on_applied = hosts, link, duration_s, on_applied
        self._shapers: dict[Host, Any] = {}
        self.ends: dict[Host, Answer] = {}

    async def run(self) -> dict[Host, Answer]:
        connections = await connected(self._hosts)
        try:
            reports = await examine(connections, self._hosts, [])
            refuse_unfit(reports)
            for host, request in zip(self._hosts, requests(reports, self._link), strict=True):
                shaper = await connections[host].create_process(command_line(host, SHAPER, ["hold"]))
                self._shapers[host] = shaper
                shaper.stdin.write(json.dumps(request.to_json()) + "\n")
            self._on_applied(await self._each(self._first, BEGIN_LIMIT_S))
            # The next thing that a shaper says is that it has ended.
            waiting = [asyncio.create_task(self._last(host)) for host in self._hosts]
            done, _ = await asyncio.wait(waiting, timeout=self._duration_s, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            for task in done:
                host, answer = task.result()
                raise LinkError(f"{host.name} is no longer shaped: {answer.get('problem') or 'its shaper has ended'}")
        finally:
            await asyncio.shield(self._release())
            close(connections)
        return self.ends

    async def _release(self) -> None:
        for shaper in self._shapers.values():
            with contextlib.suppress(OSError):
                shaper.stdin.write_eof()
        for host in self._shapers:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError, LinkError):
                _, self.ends[host] = await asyncio.wait_for(self._last(host), END_LIMIT_S)

    async def _each(self, of: Callable[[Host], Awaitable[Answer]], limit_s: float) -> dict[Host, Answer]:
        try:
            answers = await asyncio.wait_for(asyncio.gather(*(of(host) for host in self._hosts)), limit_s)
        except (asyncio.TimeoutError, TimeoutError):
            raise LinkError(f"the hosts were not all shaped within {limit_s:.0f} s") from None
        return dict(zip(self._hosts, answers, strict=True))

    async def _first(self, host: Host) -> Answer:
        line = await self._shapers[host].stdout.readline()
        answer: Answer = json.loads(line) if line else {"problem": "its shaper has ended"}
        if answer.get("problem"):
            raise LinkError(f"{host.name} was not shaped: {answer['problem']}")
        return answer

    async def _last(self, host: Host) -> tuple[Host, Answer]:
        line = await self._shapers[host].stdout.readline()
        return host, (json.loads(line) if line else {})
