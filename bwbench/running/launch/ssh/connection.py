"""One host, reached by ssh: commands there, each an argument list that no shell takes apart; the line to its keeper."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import shlex
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from bwbench.base.errors import ConfigError, LaunchError
from bwbench.base.interruption import ENDING, Interruption, handle
from bwbench.base.messages import LineBuffer
from bwbench.base.start_module import REMOTELY
from bwbench.experiment.config.hosts import Host
from bwbench.running.launch.ssh.keeper import HEARTBEAT_LIMIT_S, KEEPER, KeeperOrder, RunEnd

CONNECT_LIMIT_S = 15.0
COMMAND_LIMIT_S = 90.0  # Python there may have to read torch from a slow disk
KEEPALIVE_S = 5.0  # asked so often, and given up after three times without an answer
BEAT_S = 3.0
RECONNECT_S = 2.0
CONTACT_S = 10.0  # a connection that holds for so long leads to a host that lives, however little it has to say
LOST_AFTER_S = HEARTBEAT_LIMIT_S + 15.0  # by then the keeper has ended everything on its host

T = TypeVar("T")


class HostError(LaunchError):
    """A host cannot be reached, or does not do what it is told."""


async def connect(host: Host) -> Any:
    """An ``asyncssh.SSHClientConnection``, opened with keys, agent, known hosts and configuration of OpenSSH.

    Raises:
        HostError: it cannot be had; the message says why and what to do.
        ConfigError: asyncssh is not installed.
    """
    asyncssh = load_asyncssh()
    options = {name: said for name, said in (("username", host.user), ("port", host.port)) if said is not None}
    try:
        return await asyncio.wait_for(
            asyncssh.connect(
                host.address,
                preferred_auth="publickey",
                keepalive_interval=KEEPALIVE_S,
                keepalive_count_max=3,
                agent_forwarding=False,
                **options,
            ),
            CONNECT_LIMIT_S,
        )
    except asyncssh.HostKeyNotVerifiable as error:
        text = f"its key is not the one in known_hosts, or is not there at all ({error})"
        raise HostError(f"{text}: run 'ssh {host.name}' once, and compare the fingerprint") from None
    except asyncssh.PermissionDenied:
        text = f"no key of yours opens it: 'ssh-copy-id {host.name}' puts one there, or start ssh-agent"
        raise HostError(text) from None
    except (asyncio.TimeoutError, TimeoutError):
        raise HostError(f"no answer within {CONNECT_LIMIT_S:.0f} s; is it on, and is the address right?") from None
    except (OSError, asyncssh.Error) as error:
        raise HostError(f"ssh does not get through: {error}") from None
    except ValueError as error:  # of ~/.ssh/config
        raise HostError(f"ssh's configuration does not work for it: {error}") from None


@contextlib.asynccontextmanager
async def connected(hosts: Sequence[Host]) -> AsyncIterator[dict[Host, Any]]:
    """A connection, or the HostError, for each host, until the context ends."""
    found = await asyncio.gather(*(connect(host) for host in hosts), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException) and not isinstance(result, HostError):
            raise result
    try:
        yield dict(zip(hosts, found, strict=True))
    finally:
        for connection in found:
            if not isinstance(connection, BaseException):
                connection.close()


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, in which a signal that ends a command cancels ``main`` alone. Called in the main thread.

    A KeyboardInterrupt in the event loop would end its other tasks too: the sessions through which ``main`` tells the
    hosts to end. Raises KeyboardInterrupt once ``main`` has ended so.
    """
    came: list[tuple[int, FrameType | None]] = []

    async def interruptible() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine of asyncio.run is a task"
        interruption = Interruption(lambda: loop.call_soon_threadsafe(task.cancel))

        def end(number: int, frame: FrameType | None) -> None:
            came.append((number, frame))
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                interruption(number, frame)

        handle(ENDING, end)
        return await main

    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came and callable(handler := before[signal.Signals(came[0][0])]):
            handler(*came[0])  # so that it takes what comes next for the same wish


def load_asyncssh() -> Any:
    """The library. Raises ConfigError where it is not installed."""
    try:
        import asyncssh
    except ImportError:
        raise ConfigError("launcher: ssh needs asyncssh: pip install 'bwbench[ssh]'") from None
    asyncssh.set_log_level("CRITICAL")
    return asyncssh


def command_line(host: Host, module: str, arguments: Sequence[str]) -> str:
    """Python as a module, for the shell at the other end, which gets every word quoted."""
    return shlex.join([host.python, "-c", REMOTELY, module, *arguments])


async def ask(connection: Any, host: Host, module: str, arguments: Sequence[str], request: Any = None) -> Any:
    """Run a module there that answers with one line of JSON, its last one.

    Raises HostError where it does not, with the last thing that it said.
    """
    line = "" if request is None else json.dumps(request) + "\n"
    asyncssh = load_asyncssh()
    try:
        done = await asyncio.wait_for(_run(connection, command_line(host, module, arguments), line), COMMAND_LIMIT_S)
    except (asyncio.TimeoutError, TimeoutError):
        raise HostError(f"{host.python} -m {module} has not answered for {COMMAND_LIMIT_S:.0f} s") from None
    except (OSError, asyncssh.Error) as error:
        raise HostError(f"the connection broke: {error or type(error).__name__}") from None
    answer = str(done.stdout).strip().splitlines()
    if done.exit_status == 0 and answer:
        try:
            return json.loads(answer[-1])
        except ValueError:
            pass
    raise HostError(explain_exit(host, done.exit_status, str(done.stderr)))


async def _run(connection: Any, command: str, line: str) -> Any:
    """What a command that is told one line (or none) says, and how it ends, an ``asyncssh.SSHCompletedProcess``."""
    process = await connection.create_process(command)
    with contextlib.suppress(BrokenPipeError):  # it has ended without reading: how, says its exit status
        if line:
            process.stdin.write(line)
            process.stdin.write_eof()
    return await process.wait()


def explain_exit(host: Host, status: int | None, said: str) -> str:
    """Why a Python there may have ended like this."""
    lines = said.strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    if status == 127:
        return f"there is no {host.python!r} ({last}); name the interpreter with python:"
    if "No module named" in last:
        return (
            f"{host.python} there lacks a package ({last}); install the same bwbench as here, or name another python:"
        )
    return f"{host.python} ended with status {status}: {last}"


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
                    await ask(self._connection, self.host, KEEPER, ["remove"], {"token": self.token})
            self._connection.close()

    async def _attached(self) -> None:
        """One connection's time; one that held for a while, or on which something was heard, was contact to its end."""
        asyncssh, heard, opened_s = load_asyncssh(), False, math.inf
        if self._connection is None:
            self._connection = await connect(self.host)
        beating: asyncio.Task[None] | None = None
        try:
            self._process = await self._connection.create_process(command_line(self.host, KEEPER, ["attach"]))
            opened_s = time.monotonic()
            await self._tell({"token": self.token, "offsets": self._offsets})
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
