"""Our qdiscs, classes and filters as pyroute2 takes them and as the kernel tells of them.

pyroute2 is mended (``teach``) where its messages would not be what we mean: it packs the words of a u32 filter
unaligned and reads them back four bytes off; it does not know bfifo; and of tbf it sends neither bursts in bytes nor a
peak rate beyond 32 bits (linux/pkt_sched.h and pkt_cls.h).
"""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace
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
from bwbench.network.netem import netem_netlink as netem_messages
from bwbench.network.netem.netem_qdisc import NetemQdisc

PROTOCOLS = {4: 0x0800, 6: 0x86DD}  # Ethernet's numbers of the versions of IP
_SILENT = ("ingress", "clsact", "noqueue", "mq")  # kinds that have no settings

TICK_S = 64e-9  # of the kernel's scheduler clock (PSCHED_SHIFT)
_MAX_U32 = 2**32 - 1
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: rates need no table then
# struct tc_tbf_qopt: twice (cell_log, linklayer, overhead, cell_align, mpu, rate), then limit, buffer, mtu
_TBF = struct.Struct("=BBHhHI BBHhHI III")
_TBF_ATTRIBUTES = (
    ("TCA_TBF_UNSPEC", "none"),
    ("TCA_TBF_PARMS", "cdata"),
    ("TCA_TBF_RTAB", "none"),
    ("TCA_TBF_PTAB", "none"),
    ("TCA_TBF_RATE64", "none"),
    ("TCA_TBF_PRATE64", "uint64"),
    ("TCA_TBF_BURST", "uint32"),
    ("TCA_TBF_PBURST", "uint32"),
)


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


def teach() -> None:
    """Have pyroute2 speak of u32, tbf, bfifo and netem as we do. A second time does nothing."""
    from pyroute2.netlink import nla
    from pyroute2.netlink.rtnl import TC_H_ROOT
    from pyroute2.netlink.rtnl.tcmsg import cls_u32, plugins

    netem_messages.teach()
    if getattr(plugins["u32"], "get_parameters", None) is _u32_parameters:
        return

    class U32Options(cls_u32.options):  # type: ignore[misc]
        nla_map = tuple((name, "cdata" if name == "TCA_U32_SEL" else kind) for name, kind in cls_u32.options.nla_map)

    class TbfOptions(nla):  # type: ignore[misc]
        nla_map = _TBF_ATTRIBUTES

    plugins["bfifo"] = plugins["pfifo"]
    plugins["tbf"] = SimpleNamespace(parent=TC_H_ROOT, options=TbfOptions, get_parameters=_tbf_parameters)
    plugins["u32"] = SimpleNamespace(fix_msg=cls_u32.fix_msg, options=U32Options, get_parameters=_u32_parameters)


def read_tbf(parameters: bytes) -> Tbf:
    """From the kernel's TCA_TBF_PARMS, which does not tell where super-packets are cut."""
    fields = _TBF.unpack_from(parameters)
    rate, burst_ticks = fields[5], fields[13]
    return Tbf(rate, round(rate * burst_ticks * TICK_S), 0)


def _tbf_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
    """What ``tc("add", "tbf", index, setting=...)`` sends; called by pyroute2."""
    tbf: Tbf = arguments["setting"]
    rate = (0, _ETHERNET, 0, 0, 0, tbf.rate_bytes_per_s)
    peak = (0, _ETHERNET, 0, 0, 0, min(UNLIMITED_BYTES_PER_S, _MAX_U32))
    # The two bursts come in bytes below; the kernel wants them in ticks as well, without using those.
    burst_ticks = round(tbf.burst_bytes / tbf.rate_bytes_per_s / TICK_S)
    return {
        "attrs": [
            ["TCA_TBF_PARMS", _TBF.pack(*rate, *peak, tbf.burst_bytes, burst_ticks, 1)],
            ["TCA_TBF_BURST", tbf.burst_bytes],
            ["TCA_TBF_PRATE64", UNLIMITED_BYTES_PER_S],
            ["TCA_TBF_PBURST", tbf.cut_bytes],
        ]
    }


def _u32_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
    """What ``tc("add-filter", "u32", index, selector=...)`` sends, with a target or an action; called by pyroute2."""
    from pyroute2.netlink.rtnl.tcmsg.common_act import get_tca_action

    attributes = [["TCA_U32_SEL", arguments["selector"]]]
    if "target" in arguments:
        attributes.append(["TCA_U32_CLASSID", arguments["target"]])
    if "action" in arguments:
        attributes.append(["TCA_U32_ACT", get_tca_action(arguments)])
    return {"attrs": attributes}
