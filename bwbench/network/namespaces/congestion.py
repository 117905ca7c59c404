"""Which congestion control TCP uses over the emulated link: cubic, as on real hosts, also where a namespace may not.

The kernel lets a network namespace choose its default only among net.ipv4.tcp_allowed_congestion_control of the host.
A route may name any that the kernel has (``ip route … congctl cubic``). It holds for the connections that take it, of
either side, and wins over what a program asks before it connects (TCP_CONGESTION). So the default is tried first.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.network.namespaces import isolation
from bwbench.network.namespaces.data_route import tell_data_route

USUAL = ("cubic", "reno")  # the first that the kernel has is used where nothing is asked, the same for all nodes
SYSCTL = "tcp_congestion_control"
HOW = "congestion_control_by"  # beside it in link.json: BY_DEFAULT or BY_ROUTE
BY_DEFAULT, BY_ROUTE = "namespace", "route"

_SETTING = Path("/proc/sys/net/ipv4") / SYSCTL


def use_congestion_control(asked: str | None, node: int) -> dict[str, str]:
    """Have a node's connections over the data network use it, from inside the node's namespace, once that is up.

    Args:
        asked: its name; None takes cubic, and reno where the kernel has no cubic.
        node: number of the node.

    Returns:
        What is in force, by its name below net.ipv4, and how (``congestion_control_by``).

    Raises:
        ConfigError: the kernel does not have what was asked.
    """
    for name in USUAL if asked is None else (asked,):
        if _as_default(name):
            return {SYSCTL: name, HOW: BY_DEFAULT}
        if tell_data_route(node, congestion_control=name):
            return {SYSCTL: name, HOW: BY_ROUTE}
    if asked is not None:
        raise ConfigError(_unknown(asked))
    return {SYSCTL: isolation.sysctl(f"net/ipv4/{SYSCTL}") or "unknown", HOW: BY_DEFAULT}


def taken_here() -> tuple[str, str]:
    """What nodes of this machine get where nothing is asked, and how; without making any."""
    allowed, known = (
        (isolation.sysctl(f"net/ipv4/tcp_{which}_congestion_control") or "").split()
        for which in ("allowed", "available")
    )
    for name in USUAL:
        if name in allowed or name in known:
            return name, BY_DEFAULT if name in allowed else BY_ROUTE
    return isolation.sysctl(f"net/ipv4/{SYSCTL}") or "unknown", BY_DEFAULT


def _as_default(name: str) -> bool:
    with contextlib.suppress(OSError):
        _SETTING.write_text(name, encoding="ascii")
        return True
    return False


def _unknown(asked: str) -> str:
    known = (isolation.sysctl("net/ipv4/tcp_available_congestion_control") or "").split()
    return (
        f"link.tcp.congestion_control: this kernel has no {asked!r}; it has {', '.join(known)}. "
        f"Take one of these, or load it on the host: sudo modprobe tcp_{asked}"
    )
