"""One netem qdisc through pyroute2: add it, read it back, read its statistics.

pyroute2 is held below 0.9, which cannot add netem with a rate (it also sends the rate as TCA_RATE). It knows no delay
distribution in any version: the plugin below adds the one attribute.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from bwbench.errors import LinkError
from bwbench.network.netem.shape import NetemQdisc, normal_distribution

# Our qdiscs are recognised by their handle. "bb" in hexadecimal digits, as the major number.
HANDLE = 0xBBBB_0000


@dataclass(frozen=True)
class QdiscCounts:
    """What has left a qdisc, what waits in it, and what it dropped; bytes are those of Ethernet frames."""

    sent_frames: int
    sent_bytes: int
    waiting_frames: int
    waiting_bytes: int
    drops: int


def add_netem(air: Any, index: int, qdisc: NetemQdisc) -> None:
    """Make ``qdisc`` the root qdisc of interface number ``index``.

    Args:
        air: pyroute2's IPRoute of the namespace.

    Raises LinkError where the kernel has no netem or takes other values than the ones asked for.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    _teach_distribution()
    try:
        air.tc(
            "add",
            "netem",
            index,
            handle=HANDLE,
            rate=qdisc.rate_bytes_per_s or None,
            delay=qdisc.delay_us,
            jitter=qdisc.jitter_us,
            loss=100 * qdisc.loss,
            limit=qdisc.limit_packets,
        )
    except NetlinkError as error:
        reason = "this kernel has no sch_netem" if error.code == errno.ENOENT else str(error)
        raise LinkError(f"cannot add a netem qdisc with {qdisc.to_json()}: {reason}") from error
    taken = read_netem(air, index)
    # Probabilities are fractions of 2^32 there and delays ticks of 64 ns: compared as they come back, rounded.
    if taken is None or replace(taken, loss=0.0) != replace(qdisc, loss=0.0) or abs(taken.loss - qdisc.loss) > 1e-9:
        raise LinkError(
            f"the kernel shapes otherwise than asked: {qdisc.to_json()} was asked for, and it says "
            f"{taken.to_json() if taken else 'that there is no such qdisc'}"
        )


def remove_netem(air: Any, index: int) -> None:
    """Remove our root qdisc from interface number ``index``, where it has one."""
    if read_netem(air, index) is not None:
        air.tc("del", index=index, handle=HANDLE, parent=_root())


def read_netem(air: Any, index: int) -> NetemQdisc | None:
    """Our netem qdisc on interface number ``index`` as the kernel describes it; None where there is none."""
    from pyroute2.netlink.rtnl.tcmsg.common import tick_in_usec

    for message in _ours(air):
        if message["index"] != index:
            continue
        options = message.get_attr("TCA_OPTIONS")
        rate = options.get_attr("TCA_NETEM_RATE")
        return NetemQdisc(
            limit_packets=options["limit"],
            rate_bytes_per_s=rate["rate"] if rate else 0,
            delay_us=round(options["delay"] / tick_in_usec),
            jitter_us=round(options["jitter"] / tick_in_usec),
            loss=options["loss"] / (2**32 - 1),
        )
    return None


def read_counts(air: Any) -> dict[int, QdiscCounts]:
    """The statistics of all our netem qdiscs in the namespace, by the number of the interface."""
    counts = {}
    for message in _ours(air):
        statistics = message.get_attr("TCA_STATS2")
        sent, queue = statistics.get_attr("TCA_STATS_BASIC"), statistics.get_attr("TCA_STATS_QUEUE")
        counts[message["index"]] = QdiscCounts(
            sent["packets"], sent["bytes"], queue["qlen"], queue["backlog"], queue["drops"]
        )
    return counts


def _ours(air: Any) -> list[Any]:
    return [
        message
        for message in air.get_qdiscs()
        if message["handle"] == HANDLE and message.get_attr("TCA_KIND") == "netem"
    ]


def _root() -> int:
    from pyroute2.netlink.rtnl import TC_H_ROOT

    return int(TC_H_ROOT)


def _teach_distribution() -> None:
    """Have pyroute2 send the table of the normal distribution with every netem qdisc that has jitter."""
    from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem

    if plugins["netem"] is not sched_netem:
        return

    class Options(sched_netem.options):  # type: ignore[misc]
        nla_map = tuple(
            (name, "cdata" if name == "TCA_NETEM_DELAY_DIST" else kind) for name, kind in sched_netem.options.nla_map
        )

    def get_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
        parameters: dict[str, Any] = sched_netem.get_parameters(arguments)
        if arguments.get("jitter"):
            table = normal_distribution()
            parameters["attrs"].append(["TCA_NETEM_DELAY_DIST", struct.pack(f"={len(table)}h", *table)])
        return parameters

    plugins["netem"] = SimpleNamespace(parent=sched_netem.parent, options=Options, get_parameters=get_parameters)
