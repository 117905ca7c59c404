"""What this machine can do: each check tries the thing itself instead of guessing from versions."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bwbench.base.errors import BwbenchError
from bwbench.base.units import BANDWIDTH
from bwbench.network.leftovers import find_leftovers
from bwbench.network.link import UNSHAPED
from bwbench.network.netem.backend import netem_available
from bwbench.network.network import open_network
from bwbench.network.relay_capacity import LATE_S, LIGHTEST_BPS, relay_capacity

_COMFORTABLE_CORES = 2


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ``ok``, ``limited`` (works, with what restriction) or ``unfit`` (with what to do)."""

    check: str
    verdict: Literal["ok", "limited", "unfit"]
    text: str

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def examine_machine() -> list[Finding]:
    """All findings; takes some ten seconds, because the relay is really loaded."""
    namespaces = _namespaces()
    findings = [_system(), namespaces]
    if namespaces.verdict != "unfit":
        findings += [_netem(), _relay()]
    return [*findings, _cores(), _socket_buffers(), _congestion_control(), _leftovers()]


def _system() -> Finding:
    return Finding("system", "ok", f"Linux {platform.release()}, Python {platform.python_version()} at {sys.prefix}")


def _namespaces() -> Finding:
    try:
        with open_network(UNSHAPED, 1):
            who = "as root" if os.geteuid() == 0 else "without root, in a user namespace"
            return Finding("namespaces", "ok", f"can be made {who}")
    except BwbenchError as error:
        return Finding("namespaces", "unfit", str(error))


def _netem() -> Finding:
    if netem_available():
        return Finding("netem", "ok", "the kernel has sch_netem: backend auto takes it")
    text = "the kernel has no sch_netem: the relay in user space does the shaping (the same links, measured alike)"
    return Finding("netem", "limited", text)


def _relay() -> Finding:
    try:
        capacity = relay_capacity()
    except BwbenchError as error:
        return Finding("relay", "unfit", str(error))
    singly, super_packets = (_rate(capacity[name]) for name in ("single_bps", "super_bps"))
    how = f"of all nodes together (99 % of the packets within {LATE_S * 1e3:g} ms, scheduling {capacity['priority']})"
    if not capacity["single_bps"]:
        text = f"not on time even at {_rate(LIGHTEST_BPS)} {how}: the machine is busy, or too slow for many nodes"
        return Finding("relay", "limited", text)
    most = f"{singly} packet by packet, and {super_packets} on fast links" if capacity["super_bps"] else singly
    return Finding("relay", "ok", f"carries {most} {how}")


def _rate(rate_bps: float) -> str:
    return BANDWIDTH.show(rate_bps, 2)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores >= _COMFORTABLE_CORES:
        return Finding("cores", "ok", f"{cores}; where nodes share them, declare compute.step_time")
    return Finding(
        "cores", "limited", f"{cores}: workers, relay and probe share it; declare a generous compute.step_time"
    )


def _socket_buffers() -> Finding:
    limit = int(_read("/proc/sys/net/core/rmem_max") or 0)
    if limit >= 1 << 20 or os.geteuid() == 0:
        return Finding("socket buffers", "ok", f"net.core.rmem_max {limit} B")
    advice = "fast links may drop frames in the relay; sysctl -w net.core.rmem_max=4194304 helps"
    return Finding("socket buffers", "limited", f"net.core.rmem_max {limit} B: {advice}")


def _congestion_control() -> Finding:
    allowed = (_read("/proc/sys/net/ipv4/tcp_allowed_congestion_control") or "").split()
    taken = "cubic" if "cubic" in allowed else "reno"
    verdict: Literal["ok", "limited"] = "ok" if taken == "cubic" else "limited"
    return Finding("congestion control", verdict, f"{taken} is used (allowed here: {', '.join(allowed)})")


def _leftovers() -> Finding:
    leftovers = find_leftovers()
    if not leftovers:
        return Finding("leftovers", "ok", "none")
    pids = ", ".join(str(leftover.pid) for leftover in leftovers)
    return Finding("leftovers", "limited", f"processes {pids} have lost their parent; bwbench clean ends them")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None
