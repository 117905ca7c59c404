"""One host, reached by ssh: commands there, each an argument list that no shell takes apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bwbench.base.errors import ConfigError, LaunchError
from bwbench.experiment.config.hosts import Host

CONNECT_LIMIT_S = 15.0
COMMAND_LIMIT_S = 90.0  # Python there may have to read torch from a slow disk
KEEPALIVE_S = 5.0  # asked so often, and given up after three times without an answer


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


def load_asyncssh() -> Any:
    """The library. Raises ConfigError where it is not installed."""
    try:
        import asyncssh
    except ImportError:
        raise ConfigError("launcher: ssh needs asyncssh: pip install 'bwbench[ssh]'") from None
    asyncssh.set_log_level("CRITICAL")
    return asyncssh


def command_line(host: Host, module: str, arguments: Sequence[str]) -> str:
    """``python -m MODULE ARGUMENTS`` for the shell at the other end, which gets every word quoted."""
    return shlex.join([host.python, "-m", module, *arguments])


async def ask(connection: Any, host: Host, module: str, arguments: Sequence[str], request: Any = None) -> Any:
    """Run a module there that answers with one line of JSON, its last one.

    Raises HostError where it does not, with the last thing that it said.
    """
    line = "" if request is None else json.dumps(request) + "\n"
    asyncssh = load_asyncssh()
    try:
        done = await asyncio.wait_for(
            connection.run(command_line(host, module, arguments), input=line, check=False), COMMAND_LIMIT_S
        )
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
