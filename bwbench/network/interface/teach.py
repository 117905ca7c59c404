"""Mending pyroute2 where its messages would not be what we mean.

It packs the words of a u32 filter unaligned and reads them back four bytes off; it does not know bfifo; and of tbf it
sends neither bursts in bytes nor a peak rate beyond 32 bits (linux/pkt_sched.h and pkt_cls.h).
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from bwbench.network.interface.settings import UNLIMITED_BYTES_PER_S, Tbf
from bwbench.network.netem import messages as netem_messages

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
