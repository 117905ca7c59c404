"""TCP of a node: set in its network namespace, read back, recorded."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.network.link.tcp import TcpSettings

# The first one that the kernel allows in a namespace of its own is used where nothing is asked, the same for all nodes.
CONGESTION_CONTROLS = ("cubic", "reno")

# Longest wait between two repetitions where nothing is asked, so that training goes on soon after an outage: an outage
# of 10 s is noticed as over within 5 s, not 15. No shorter, since it is also the longest that an acknowledgement may
# take, which waits in queues, and since TCP gives up after 15 repetitions.
RTO_MAX_MS = 5_000

_SETTINGS = Path("/proc/sys/net/ipv4")
_CONTROL = "tcp_congestion_control"
_RECORDED = (
    _CONTROL,
    "tcp_rmem",
    "tcp_wmem",
    "tcp_slow_start_after_idle",
    "tcp_no_metrics_save",
    "tcp_rto_max_ms",
)
_KEYS = {
    "tcp_slow_start_after_idle": "slow_start_after_idle",
    "tcp_rmem": "receive_buffer",
    "tcp_wmem": "send_buffer",
    "tcp_rto_max_ms": "rto_max",
}


def configure_tcp(tcp: TcpSettings) -> dict[str, Any]:
    """Set what ``tcp`` asks in the present network namespace; returns what holds now, by the names below net.ipv4.

    A setting that this kernel does not know is missing in the answer. Raises ConfigError for what the host does not
    allow or the kernel does not take, UnfitMachineError for what this kernel is too old for.
    """
    if tcp.congestion_control is None:
        any(_write(_CONTROL, name) for name in CONGESTION_CONTROLS)
    elif not _write(_CONTROL, tcp.congestion_control):
        raise ConfigError(_not_allowed(tcp.congestion_control))
    _write("tcp_no_metrics_save", "1")  # connections must not learn from those of an earlier cell or arm
    _write("tcp_rto_max_ms", str(RTO_MAX_MS))  # unknown before Linux 6.15
    for name, value in tcp.sysctls().items():
        if not (_SETTINGS / name).exists():
            since = " (Linux 6.15 and later have it)" if name == "tcp_rto_max_ms" else ""
            raise UnfitMachineError(
                f"link.tcp.{_KEYS[name]}: this kernel has no net.ipv4.{name}{since}; leave it out, or use a newer one"
            )
        if not _write(name, value):
            limits = ": 1 s to 120 s" if name == "tcp_rto_max_ms" else ""
            raise ConfigError(f"link.tcp.{_KEYS[name]}: the kernel refuses net.ipv4.{name} = {value}{limits}")
    found = {name: _read(name) for name in _RECORDED}
    return {name: value for name, value in found.items() if value is not None}


def _not_allowed(asked: str) -> str:
    """Tried one by one, as a namespace may not see the host's list."""
    known = (_read("tcp_available_congestion_control") or "").split()
    allowed = [name for name in known if _write(_CONTROL, name)]
    if asked in known:
        next_step = (
            "or allow it on the host: sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="
            f"'{' '.join([*allowed, asked])}'"
        )
    else:
        next_step = f"or load it on the host: sudo modprobe tcp_{asked}"
    return (
        f"link.tcp.congestion_control: this host does not let nodes use {asked!r}; allowed: {', '.join(allowed)}. "
        f"Take one of these, {next_step}"
    )


def _write(name: str, value: str) -> bool:
    with contextlib.suppress(OSError):
        (_SETTINGS / name).write_text(value)
        return True
    return False


def _read(name: str) -> str | None:
    try:
        return " ".join((_SETTINGS / name).read_text().split())
    except OSError:
        return None
