"""Through which connections is this machine being controlled? Those must never be shaped."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil

from bwbench.base.errors import ConfigError
from bwbench.network.interface.request import Address, Traffic

_SERVERS = ("sshd", "dropbear")  # sshd-session of newer OpenSSH begins alike
# Where the peer's address, its port and ours are. sudo drops these variables; the ancestors still have them.
_VARIABLES = {"SSH_CONNECTION": (0, 1, 3), "SSH_CLIENT": (0, 1, 2)}


@dataclass(frozen=True)
class Session:
    """A connection from ``remote``, and how we know."""

    remote: Address
    remote_port: int
    local_port: int
    known_from: str


def refuse_control_sessions(traffic: Traffic) -> None:
    """Raise ConfigError where a control session of this machine belongs to ``traffic``."""
    for session in control_sessions():
        if not traffic.has(session.remote, session.remote_port, session.local_port):
            continue
        advice = (
            f"leave it out with --except-port {session.local_port}, or name the experiment's: --port 5001-5010"
            if not traffic.ports
            else f"choose --port so that neither {session.local_port} nor {session.remote_port} is among them"
        )
        raise ConfigError(
            f"--peer {session.remote}: this machine is controlled from there by ssh (port {session.remote_port} there, "
            f"{session.local_port} here; {session.known_from}), and that session would be shaped too. Nothing was "
            f"changed; {advice}"
        )


def control_sessions() -> set[Session]:
    """What the environment of this process and its ancestors tells, and what ssh servers are connected to."""
    return {*_from_environments(), *_from_servers()}


def _from_environments() -> Iterator[Session]:
    yield from _from_environment(os.environ, "of this shell")
    for process in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, OSError):
            yield from _from_environment(process.environ(), f"of process {process.pid}")


def _from_environment(environment: Mapping[str, str], known_from: str) -> Iterator[Session]:
    for name, positions in _VARIABLES.items():
        with contextlib.suppress(KeyError, ValueError, IndexError):
            words = environment[name].split()
            remote, remote_port, local_port = (words[position] for position in positions)
            yield Session(_address(remote), int(remote_port), int(local_port), f"{name} {known_from}")


def _from_servers() -> Iterator[Session]:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return
    for connection in connections:
        local, remote = connection.laddr, connection.raddr
        if connection.status != psutil.CONN_ESTABLISHED or connection.pid is None or not (local and remote):
            continue
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            name = psutil.Process(connection.pid).name()
            if name.startswith(_SERVERS):
                yield Session(_address(remote.ip), remote.port, local.port, f"process {connection.pid}, {name}")


def _address(text: str) -> Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
