"""What our qdiscs, classes and filters look like in netlink messages, for pyroute2 and back.

pyroute2 packs the words of a u32 filter unaligned, reads them back four bytes off, and does not know bfifo: ``teach``
mends both.
"""

from __future__ import annotations

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
from bwbench.network.netem import messages as netem_messages
from bwbench.network.netem.parameters import NetemQdisc

PROTOCOLS = {4: 0x0800, 6: 0x86DD}  # Ethernet's numbers of the versions of IP
_SILENT = ("ingress", "clsact", "noqueue", "mq")  # kinds that have no settings


def teach() -> None:
    """Have pyroute2 speak of u32, bfifo and netem as we do. A second time does nothing."""
    from pyroute2.netlink.rtnl.tcmsg import cls_u32, plugins
    from pyroute2.netlink.rtnl.tcmsg.common_act import get_tca_action

    netem_messages.teach()
    plugins["bfifo"] = plugins["pfifo"]
    if plugins["u32"] is not cls_u32:
        return

    class Options(cls_u32.options):  # type: ignore[misc]
        nla_map = tuple((name, "cdata" if name == "TCA_U32_SEL" else kind) for name, kind in cls_u32.options.nla_map)

    def get_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
        attributes = [["TCA_U32_CLASSID", arguments["target"]], ["TCA_U32_SEL", arguments["selector"]]]
        if "action" in arguments:
            attributes.append(["TCA_U32_ACT", get_tca_action(arguments)])
        return {"attrs": attributes}

    plugins["u32"] = SimpleNamespace(fix_msg=cls_u32.fix_msg, get_parameters=get_parameters, options=Options)


def arguments_of(setting: Setting) -> tuple[str, dict[str, Any]]:
    """Kind of a qdisc, and what pyroute2's ``tc`` takes beside it."""
    if isinstance(setting, Htb):
        return "htb", {"default": setting.default}
    if isinstance(setting, Tbf):
        return "tbf", {
            "rate": setting.rate_bytes_per_s,
            "burst": setting.burst_bytes,
            "limit": setting.limit_bytes,
        }
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
    from pyroute2.netlink.rtnl.tcmsg.common import tick_in_usec

    kind, options = message.get_attr("TCA_KIND"), message.get_attr("TCA_OPTIONS")
    if kind == "htb":
        return Htb(options.get_attr("TCA_HTB_INIT")["defcls"])
    if kind == "tbf":
        parameters = options.get_attr("TCA_TBF_PARMS")
        burst_s = parameters["buffer"] / tick_in_usec / 1e6
        return Tbf(parameters["rate"], round(parameters["rate"] * burst_s))
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
    swapped = int.from_bytes(PROTOCOLS[version].to_bytes(2, "big"), "little")
    return PRIORITIES[version] << 16 | swapped


def mirrored_to(options: Any) -> int | None:
    """Number of the interface that a filter sends packets over to; None where it does not."""
    actions = options.get_attr("TCA_U32_ACT")
    first = actions.get_attr("TCA_ACT_PRIO_1") if actions else None
    if first is None or first.get_attr("TCA_ACT_KIND") != "mirred":
        return None
    return int(first.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")["ifindex"])
