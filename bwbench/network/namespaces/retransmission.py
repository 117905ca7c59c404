"""How long a node's TCP waits before it repeats what nobody has acknowledged: at least and at most, in slow motion too.

Both follow a dilation as far as the kernel lets them. What does not is named, and stands in ``link.json``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bwbench.network.link import Link
from bwbench.network.namespaces import congestion, isolation
from bwbench.network.namespaces.data_route import tell_data_route

# Longest wait between two repetitions where nothing is asked, so that training goes on soon after an outage: an outage
# of 10 s is noticed as over within 5 s, not 15. No shorter, since it is also the longest that an acknowledgement may
# take, which waits in queues, and since TCP gives up after 15 repetitions.
RTO_MAX_S = 5.0
RTO_MAX_LIMITS_S = (1.0, 120.0)  # of net.ipv4.tcp_rto_max_ms
RTO_MIN_S = 0.2  # TCP_RTO_MIN of the kernel
RTO_MIN_KEY = "tcp_rto_min_us"
RTO_MAX_KEY = "tcp_rto_max_ms"
RTO_MIN_BY = "rto_min_by"  # beside it in link.json: by the namespace's setting or by the route

_SETTINGS = Path("/proc/sys/net/ipv4")


def dilate_retransmission(link: Link, control: dict[str, str], node: int) -> tuple[dict[str, str], list[str]]:
    """Have a node's TCP wait as much longer as ``link`` is slowed down, from inside its namespace, once that is up.

    Args:
        link: in the machine's time.
        control: the congestion control in force, as ``use_congestion_control`` returns it.
        node: number of the node.

    Returns:
        The shortest wait by its name below net.ipv4 and how it was set (nothing where it could not be), and in words
        what of TCP goes on in the machine's own time.
    """
    words = [
        "first wait of a connection for an answer: 1 s of the machine's time, as without dilation",
        "delayed acknowledgements: 40 ms of the machine's time at least, as without dilation",
    ]
    if control.get(congestion.SYSCTL) == "cubic":
        words.append("cubic: growth after a loss, and the delays that end its slow start (4 to 16 ms)")
    wanted_s = RTO_MIN_S * link.dilation
    found = _set_rto_min(wanted_s, control, node)
    if not found:
        words.append(f"shortest wait before a repetition: 200 ms, not {wanted_s * 1e3:.3g} ms; the kernel refuses it")
    asked_s, set_s = _rto_max(link)
    if isolation.sysctl(f"net/ipv4/{RTO_MAX_KEY}") is None:
        words.append("longest wait between repetitions: 120 s; kernels before Linux 6.15 know no other")
    elif asked_s != set_s:
        words.append(f"longest wait between repetitions: {set_s:.3g} s, not {asked_s:.3g} s; the kernel has 1 to 120 s")
    return found, words


def rto_max_ms(link: Link) -> int:
    """The longest wait of ``link``, which is in the machine's time; in slow motion within the kernel's limits."""
    return round(_rto_max(link)[1] * 1e3)


def _rto_max(link: Link) -> tuple[float, float]:
    """As wanted, and as the kernel may take it."""
    wanted_s = RTO_MAX_S * link.dilation if link.tcp.rto_max_s is None else link.tcp.rto_max_s
    if link.dilation == 1:
        return wanted_s, wanted_s  # a slip of the user is for the kernel to refuse
    shortest_s, longest_s = RTO_MAX_LIMITS_S
    return wanted_s, min(max(wanted_s, shortest_s), longest_s)


def _set_rto_min(wanted_s: float, control: dict[str, str], node: int) -> dict[str, str]:
    microseconds = str(round(wanted_s * 1e6))
    with contextlib.suppress(OSError):  # unknown before Linux 6.11
        (_SETTINGS / RTO_MIN_KEY).write_text(microseconds, encoding="ascii")
        return {RTO_MIN_KEY: microseconds, RTO_MIN_BY: congestion.BY_DEFAULT}
    by_route = control[congestion.SYSCTL] if control[congestion.HOW] == congestion.BY_ROUTE else None
    if wanted_s >= 1e-3 and tell_data_route(node, by_route, wanted_s):
        return {RTO_MIN_KEY: microseconds, RTO_MIN_BY: congestion.BY_ROUTE}
    return {}
