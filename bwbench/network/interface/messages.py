"""Our qdiscs, classes and filters as pyroute2 takes them and as the kernel tells of them."""

from __future__ import annotations

import socket
from typing import Any

from bwbench.network.interface.settings import (
    PRIORITIES,
    QUANTUM_BYTES,
    UNLIMITED_BURST_BYTES,
    UNLIMITED_BYTES_PER_S,
    Fifo,
    Htb,
    HtbClass,
    Plain,
    Setting,
    Tbf,
)
from bwbench.network.interface.teach import read_tbf
from bwbench.network.netem import messages as netem_messages
from bwbench.network.netem.parameters import NetemQdisc

PROTOCOLS = {4: 0x0800, 6: 0x86DD}  # Ethernet's numbers of the versions of IP
_SILENT = ("ingress", "clsact", "noqueue", "mq")  # kinds that have no settings


def arguments_of(setting: Setting) -> tuple[str, dict[str, Any]]:
    """Kind of a qdisc, and what pyroute2's ``tc`` takes beside it."""
    if isinstance(setting, Htb):
        return "htb", {"default": setting.default}
    if isinstance(setting, Tbf):
        return "tbf", {"setting": setting}
    if isinstance(setting, NetemQdisc):
        return "netem", {"qdisc": setting}
    if isinstance(setting, Fifo):
        return setting.kind, {"limit": setting.limit}
    return setting.kind, {}


def arguments_of_class(what: HtbClass) -> dict[str, Any]:
    """The same of a class of htb. Without its bursts pyroute2 makes up some of 1600 B."""
    return {
        "handle": what.handle,
        "parent": what.handle & 0xFFFF_0000,
        "rate": UNLIMITED_BYTES_PER_S,
        "burst": UNLIMITED_BURST_BYTES,
        "cburst": UNLIMITED_BURST_BYTES,
        "quantum": QUANTUM_BYTES,
    }


def setting_in(message: Any) -> Setting:
    """What the kernel says of a qdisc; of kinds that are never ours the kind alone."""
    kind, options = message.get_attr("TCA_KIND"), message.get_attr("TCA_OPTIONS")
    if kind == "htb":
        return Htb(options.get_attr("TCA_HTB_INIT")["defcls"])
    if kind == "tbf":
        return read_tbf(options.get_attr("TCA_TBF_PARMS"))
    if kind == "netem":
        return netem_messages.read(options)
    if kind in ("bfifo", "pfifo"):
        return Fifo(options["limit"], "bytes" if kind == "bfifo" else "packets")
    return Plain(kind)


def class_in(message: Any) -> HtbClass | None:
    """The class that a message speaks of; None where it is none that is never short of anything."""
    options = message.get_attr("TCA_OPTIONS")
    if message.get_attr("TCA_KIND") != "htb" or options.get_attr("TCA_HTB_RATE64") != UNLIMITED_BYTES_PER_S:
        return None
    return HtbClass(message["handle"])


def text_of_options(message: Any) -> str:
    """All settings of a qdisc as a text that is the same as long as they are."""
    return "" if message.get_attr("TCA_KIND") in _SILENT else str(message.get_attr("TCA_OPTIONS"))


def filter_info(version: int) -> int:
    """Priority and protocol of our filters, as the header of a message has them."""
    return PRIORITIES[version] << 16 | socket.htons(PROTOCOLS[version])


def mirrored_to(options: Any) -> int | None:
    """Number of the interface that a filter sends packets over to; None where it does not."""
    actions = options.get_attr("TCA_U32_ACT")
    first = actions.get_attr("TCA_ACT_PRIO_1") if actions else None
    if first is None or first.get_attr("TCA_ACT_KIND") != "mirred":
        return None
    return int(first.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")["ifindex"])
