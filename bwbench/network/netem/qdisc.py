"""netem qdiscs through pyroute2: add them, read them back, read their statistics."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bwbench.base.errors import LinkError
from bwbench.network.netem import messages
from bwbench.network.netem.parameters import NetemQdisc

# Our qdiscs are recognised by their handle. "bbbb" in hexadecimal digits, as the major number.
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
    """Make ``qdisc`` the root qdisc of interface number ``index``; what the kernel made of it, ``check_netem`` says.

    Args:
        air: pyroute2's IPRoute of the namespace.

    Raises LinkError where the kernel refuses, or has no netem.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    messages.teach()
    try:
        air.tc("add", "netem", index, handle=HANDLE, qdisc=qdisc)
    except NetlinkError as error:
        reason = "this kernel has no sch_netem" if error.code == errno.ENOENT else str(error)
        raise LinkError(f"cannot add a netem qdisc with {qdisc.to_json()}: {reason}") from error


def check_netem(air: Any, asked: Mapping[int, NetemQdisc]) -> dict[int, NetemQdisc]:
    """What the kernel says that our qdiscs are, by the number of the interface.

    That is as ``asked`` but for the distribution, which it tells nobody, and for the seed, which it does not take
    before Linux 6.6. Raises LinkError where anything else differs.
    """
    taken = read_netem(air)
    for index, qdisc in asked.items():
        found = taken.get(index)
        if found is None or found.words() != qdisc.words():
            raise LinkError(
                f"the kernel shapes otherwise than asked: {qdisc.to_json()} was asked for, and it says "
                f"{found.to_json() if found else 'that there is no such qdisc'}"
            )
    return taken


def remove_netem(air: Any, indices: Iterable[int]) -> None:
    """Remove our root qdiscs from the interfaces with these numbers, where they have one."""
    for index in read_netem(air).keys() & set(indices):
        air.tc("del", index=index, handle=HANDLE, parent=_root())


def read_netem(air: Any) -> dict[int, NetemQdisc]:
    """Our netem qdiscs in the namespace as the kernel describes them, by the number of the interface."""
    messages.teach()
    return {message["index"]: messages.read(message.get_attr("TCA_OPTIONS")) for message in _ours(air)}


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
