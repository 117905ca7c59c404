"""The interface that a host reaches its peers by, and what has crossed it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import psutil

from bwbench.base.errors import ConfigError

_ANY_PORT = 9  # nothing is sent: connecting a UDP socket only asks the kernel for a route


@dataclass(frozen=True)
class OwnInterface:
    """An interface of this host: its name and its address there."""

    name: str
    address: str


def interface_towards(host: str, port: int = _ANY_PORT) -> OwnInterface:
    """The interface by which this machine reaches ``host``: that is where gloo has to listen.

    Left alone, gloo asks what this host's own name resolves to, which on many systems is 127.0.1.1.

    Raises ConfigError where the name is unknown, or no way leads there.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"no way leads to {host!r}, where rank 0 is said to be: {error}; check MASTER_ADDR") from None
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return OwnInterface(name, own)
    raise ConfigError(
        f"the way to {host!r} begins at {own}, which no interface here has; name one with BWBENCH_DATA_INTERFACE"
    )


def named_interface(name: str) -> OwnInterface:
    """The interface of this name. Raises ConfigError where there is none, or it has no address."""
    found = psutil.net_if_addrs()
    if name not in found:
        raise ConfigError(f"this host has no interface {name!r}; it has {', '.join(sorted(found))}")
    addresses = [address.address for address in found[name] if address.family == socket.AF_INET]
    addresses += [address.address.partition("%")[0] for address in found[name] if address.family == socket.AF_INET6]
    if not addresses:
        raise ConfigError(
            f"interface {name!r} has no address; give it one, or name another with BWBENCH_DATA_INTERFACE"
        )
    return OwnInterface(name, addresses[0])


def counters_of(interface: str) -> tuple[int, int, int]:
    """Bytes and frames that have left by an interface since it came up, by all programs, and frames that it dropped;
    zeros where it is gone.
    """
    found = psutil.net_io_counters(pernic=True, nowrap=False).get(interface)
    return (found.bytes_sent, found.packets_sent, found.dropout) if found else (0, 0, 0)
