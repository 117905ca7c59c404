"""The controller's line to one host's keeper, opened again where it breaks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bwbench.base.messages import LineBuffer
from bwbench.experiment.config.hosts import Host
from bwbench.running.launch.ssh.connection import HostError, ask, command_line, connect, load_asyncssh
from bwbench.running.launch.ssh.keeper import HEARTBEAT_LIMIT_S, KeeperOrder, RunEnd

KEEPER = "bwbench.running.launch.ssh.keeper"
BEAT_S = 3.0
RECONNECT_S = 2.0
CONTACT_S = 10.0  # a connection that holds for so long leads to a host that lives, however little it has to say
LOST_AFTER_S = HEARTBEAT_LIMIT_S + 15.0  # by then the keeper has ended everything on its host


class HostSession:
    """One host during one attempt.

    Args:
        folder: where what the host records is to be written.
        on_line: called with each line that torchrun and its workers print.

    Attributes:
        ended: how torchrun ended there; None while it runs, or where the host is lost.
        lost: why nothing more will be heard of the host; None while there is hope.
    """

    def __init__(
        self, host: Host, connection: Any, token: str, folder: Path, on_line: Callable[[Host, str], None]
    ) -> None:
        self.host, self.token = host, token
        self.ended: RunEnd | None = None
        self.lost: str | None = None
        self._connection, self._folder, self._on_line = connection, folder, on_line
        self._process: Any = None
        self._offsets: dict[str, int] = {}
        self._printed = LineBuffer(most_bytes=None)
        self._started = self._stopping = False
        self._contact_s = time.monotonic()

    async def start(self, order: KeeperOrder) -> None:
        """Have a keeper start. Raises HostError."""
        await ask(self._connection, self.host, KEEPER, ["start"], order.to_json())
        self._started = True

    async def follow(self) -> None:
        """Take in what the host says, until torchrun has ended there or the host is lost."""
        self._contact_s, reason = time.monotonic(), "the connection breaks again and again"
        while self.ended is None and self.lost is None:
            try:
                await self._attached()
            except (HostError, OSError) as error:
                reason = str(error)
            if self.ended is None and time.monotonic() - self._contact_s > LOST_AFTER_S:
                self.lost = reason
            elif self.ended is None:
                await asyncio.sleep(RECONNECT_S)

    @property
    def out_of_reach(self) -> bool:
        """Whether its keeper has ended everything by now, because it has heard nothing for so long."""
        return self._process is None and time.monotonic() - self._contact_s > HEARTBEAT_LIMIT_S

    async def stop(self) -> None:
        """Have everything on the host end; ``follow`` returns once it has."""
        self._stopping = True
        await self._tell({"stop": True})

    async def clean(self) -> None:
        """Remove what the run has left on the host, and close the connection."""
        if self._connection is not None:
            with contextlib.suppress(HostError):
                if self._started and self.ended is not None:
                    await ask(self._connection, self.host, KEEPER, ["remove", self.token])
            self._connection.close()

    async def _attached(self) -> None:
        """One connection's time; one that held for a while, or on which something was heard, was contact to its end."""
        asyncssh, heard, opened_s = load_asyncssh(), False, math.inf
        if self._connection is None:
            self._connection = await connect(self.host)
        beating: asyncio.Task[None] | None = None
        try:
            self._process = await self._connection.create_process(
                command_line(self.host, KEEPER, ["attach", self.token])
            )
            opened_s = time.monotonic()
            await self._tell({"offsets": self._offsets})
            beating = asyncio.create_task(self._beat())
            if self._stopping:
                await self._tell({"stop": True})
            async for line in self._process.stdout:
                heard = True
                self._take(json.loads(line))
                if self.ended is not None:
                    return
        except (OSError, EOFError, ValueError, asyncssh.Error) as error:
            raise HostError(str(error) or type(error).__name__) from None
        finally:
            if heard or time.monotonic() - opened_s > CONTACT_S:
                self._contact_s = time.monotonic()
            if beating is not None:
                beating.cancel()
            self._process = None
            if self.ended is None and self._connection is not None:
                self._connection.abort()
                self._connection = None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._tell({})

    async def _tell(self, content: Mapping[str, object]) -> None:
        if self._process is not None:
            with contextlib.suppress(Exception):  # a connection that is gone is noticed where it is read
                self._process.stdin.write(json.dumps(content) + "\n")
                await self._process.stdin.drain()

    def _take(self, said: Mapping[str, Any]) -> None:
        if "exit" in said:
            self.ended = RunEnd.model_validate(said["exit"])
            return
        name, data = str(said["file"]), base64.b64decode(said["data"])
        if name == "output.log":
            self._offsets[name] = said["offset"] + len(data)
            for line in self._printed.feed(data):
                self._on_line(self.host, line.decode(errors="replace"))
            return
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder.resolve()):  # the host's word alone leads nowhere else
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if "stamp" in said:
            self._offsets[name] = said["stamp"]
            path.write_bytes(data)
            return
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(said["offset"])
            file.write(data)
        self._offsets[name] = said["offset"] + len(data)
