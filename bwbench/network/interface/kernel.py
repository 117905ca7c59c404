"""Taking steps, reading back and removing, by netlink through pyroute2.

pyroute2 is mended (``teach``) where its messages would not be what we mean: it packs the words of a u32 filter
unaligned and reads them back four bytes off; it does not know bfifo; and of tbf it sends neither bursts in bytes nor a
peak rate beyond 32 bits (linux/pkt_sched.h and pkt_cls.h).
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import cls_u32, plugins
from pyroute2.netlink.rtnl.tcmsg.common_act import get_tca_action

from bwbench.base.errors import ConfigError, LinkError
from bwbench.network.interface import steps
from bwbench.network.netem import netem_netlink
from bwbench.network.netem.shape import NetemQdisc

_GONE = (errno.ENOENT, errno.ENODEV, errno.EINVAL)  # nothing there (any more) to delete
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_PROTOCOLS = {4: 0x0800, 6: 0x86DD}  # Ethernet's numbers of the versions of IP
_SILENT = ("ingress", "clsact", "noqueue", "mq")  # kinds that have no settings

_TICK_S = 64e-9  # of the kernel's scheduler clock (PSCHED_SHIFT)
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


@dataclass(frozen=True)
class Device:
    """An interface as it is now."""

    name: str
    index: int
    up: bool
    loopback: bool
    mtu: int
    addresses: tuple[str, ...]


class Kernel:
    """A netlink socket in this process's network namespace; for one thread; a context manager."""

    def __init__(self) -> None:
        teach()
        self._netlink: Any = IPRoute()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def device(self, name: str) -> Device:
        """The interface called ``name``; raises ConfigError that names those that there are."""
        links = {link.get_attr("IFLA_IFNAME"): link for link in self._netlink.get_links()}
        if name not in links:
            raise ConfigError(f"--dev {name!r}: there is no such interface. There are: {', '.join(sorted(links))}")
        index, flags = links[name]["index"], links[name]["flags"]
        return Device(
            name=name,
            index=index,
            up=bool(flags & _IFF_UP),
            loopback=bool(flags & _IFF_LOOPBACK),
            mtu=links[name].get_attr("IFLA_MTU"),
            addresses=tuple(
                found.get_attr("IFA_LOCAL") or found.get_attr("IFA_ADDRESS")
                for found in self._netlink.get_addr()
                if found["index"] == index
            ),
        )

    def index_of(self, name: str) -> int | None:
        """The number of the interface called ``name``; None where there is none."""
        found = self._netlink.link_lookup(ifname=name)
        return int(found[0]) if found else None

    def name_of(self, index: int) -> str | None:
        """The name of interface number ``index``; None where there is none."""
        found = [link for link in self._netlink.get_links() if link["index"] == index]
        return str(found[0].get_attr("IFLA_IFNAME")) if found else None

    def route_to(self, address: str) -> str | None:
        """The interface through which packets to ``address`` leave; None where there is no way."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return self.name_of(self._netlink.route("get", dst=address, family=family)[0].get_attr("RTA_OIF"))
        except NetlinkError:
            return None

    def qdiscs(self, index: int) -> list[steps.Qdisc]:
        """All qdiscs of an interface."""
        return [steps.Qdisc(found["handle"], found["parent"], _setting_in(found)) for found in self._qdiscs(index)]

    def described(self, index: int) -> list[tuple[str, int, int, str]]:
        """Kind, handle, parent and settings of all qdiscs of an interface, sorted: to be compared."""
        rows = []
        for found in self._qdiscs(index):
            kind = found.get_attr("TCA_KIND")
            text = "" if kind in _SILENT else str(found.get_attr("TCA_OPTIONS"))  # the same as long as they are
            rows.append((kind, found["handle"], found["parent"], text))
        return sorted(rows)

    def classes(self, index: int) -> list[steps.HtbClass]:
        """The classes of an interface that are like ours: never short of anything."""
        return [
            steps.HtbClass(found["handle"])
            for found in self._netlink.get_classes(index=index)
            if found.get_attr("TCA_KIND") == "htb"
            and found.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_RATE64") == steps.UNLIMITED_BYTES_PER_S
        ]

    def filters(self, index: int, parent: int) -> list[steps.Filter]:
        """Our filters below ``parent``."""
        found = []
        for message in self._netlink.get_filters(index=index, parent=parent):
            versions = [version for version in steps.PRIORITIES if _filter_info(version) == message["info"]]
            options = message.get_attr("TCA_OPTIONS")
            selector = options.get_attr("TCA_U32_SEL") if versions and options is not None else None
            if selector is not None:
                ifb = _mirrored_to(options)
                target = options.get_attr("TCA_U32_CLASSID") if ifb is None else self.name_of(ifb) or ""
                found.append(steps.Filter(parent, steps.Match.read(versions[0], selector), target))
        return found

    def has_foreign_filters(self, index: int, parent: int) -> bool:
        """Whether there are filters below ``parent`` that are not ours."""
        ours = {_filter_info(version) for version in steps.PRIORITIES}
        return any(found["info"] not in ours for found in self._netlink.get_filters(index=index, parent=parent))

    def delete_qdisc(self, index: int, handle: int, parent: int) -> bool:
        """Whether it was there, with this handle, and could be deleted with everything below it."""
        return _deleted(self._netlink.tc, "del", None, index, handle=handle, parent=parent)

    def delete_filters(self, index: int, parent: int) -> bool:
        """Whether there were filters of ours below ``parent``; there are none then."""
        infos = [_filter_info(version) for version in steps.PRIORITIES]
        deleted = [_deleted(self._netlink.tc, "del-filter", None, index, parent=parent, info=info) for info in infos]
        return any(deleted)

    def delete_interface(self, name: str) -> bool:
        """Whether there was such an interface; there is none then."""
        index = self.index_of(name)
        return index is not None and _deleted(self._netlink.link, "del", index=index)

    def _qdiscs(self, index: int) -> list[Any]:
        return [found for found in self._netlink.get_qdiscs() if found["index"] == index]

    def take(self, step: steps.Step) -> None:
        """Do one step; raises LinkError with what the kernel refused and why."""
        try:
            if isinstance(step, steps.MakeIfb):
                self._netlink.link("add", ifname=step.name, kind="ifb")
                self._netlink.link("set", index=self.index_of(step.name), state="up")
                return
            index, what = self.index_of(step.dev), step.what
            if index is None:
                raise LinkError(f"interface {step.dev} is gone")
            if isinstance(what, steps.Qdisc):
                kind, arguments = _arguments_of(what.setting)
                self._netlink.tc("add", kind, index, handle=what.handle, parent=what.parent, **arguments)
            elif isinstance(what, steps.HtbClass):
                self._netlink.tc(
                    "add-class",
                    "htb",
                    index,
                    handle=what.handle,
                    parent=what.handle & 0xFFFF_0000,
                    rate=steps.UNLIMITED_BYTES_PER_S,
                    burst=steps.UNLIMITED_BURST_BYTES,  # without its bursts pyroute2 makes up some of 1600 B
                    cburst=steps.UNLIMITED_BURST_BYTES,
                    quantum=steps.QUANTUM_BYTES,
                )
            else:
                version, target = what.match.version, dict[str, object](target=what.target)
                if isinstance(what.target, str):
                    redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
                    target = {"action": {**redirect, "ifindex": self.index_of(what.target)}}
                self._netlink.tc(
                    "add-filter",
                    "u32",
                    index,
                    parent=what.parent,
                    info=_filter_info(version),
                    selector=what.match.selector(),
                    **target,
                )
        except NetlinkError as error:
            raise LinkError(_refusal(step, error)) from error


def _deleted(delete: Callable[..., object], *what: object, **more: object) -> bool:
    try:
        delete(*what, **more)
    except NetlinkError as error:
        if error.code not in _GONE:
            raise
        return False
    return True


def _refusal(step: steps.Step, error: Any) -> str:
    command = step.commands()[0]
    if isinstance(step, steps.MakeIfb) and error.code == errno.EOPNOTSUPP:
        return (
            "this kernel has no ifb ('sudo modprobe ifb' may bring it), and without it what comes in cannot be shaped; "
            "--only-up shapes what goes out alone"
        )
    if error.code == errno.ENOENT:  # "Specified qdisc kind is unknown", and the same of filters and actions
        return f"the kernel does not know what this needs: {command}; 'sudo modprobe' of sch_…, cls_… or act_… may help"
    if error.code == errno.EEXIST:
        return f"something of that name is there already: {command}; somebody else changes this interface"
    reason = error.args[1] if len(error.args) > 1 else error
    return f"the kernel refused '{command}': {reason}"


def _arguments_of(setting: steps.Setting) -> tuple[str, dict[str, object]]:
    """Kind of a qdisc, and what pyroute2's ``tc`` takes beside it; nothing makes it the kernel's own."""
    if isinstance(setting, steps.Htb):
        return "htb", {"default": setting.default}
    if isinstance(setting, steps.Tbf):
        return "tbf", {"setting": setting}
    if isinstance(setting, NetemQdisc):
        return "netem", {"qdisc": setting}
    if isinstance(setting, steps.Fifo):
        return setting.kind, {"limit": setting.limit}
    return setting.kind, {}


def _setting_in(message: Any) -> steps.Setting:
    """What the kernel says of a qdisc; of kinds that are never ours the kind alone."""
    kind, options = message.get_attr("TCA_KIND"), message.get_attr("TCA_OPTIONS")
    if kind == "htb":
        return steps.Htb(options.get_attr("TCA_HTB_INIT")["defcls"])
    if kind == "tbf":
        fields = _TBF.unpack_from(options.get_attr("TCA_TBF_PARMS"))
        rate, burst_ticks = fields[5], fields[13]
        return steps.Tbf(rate, round(rate * burst_ticks * _TICK_S), 0)  # where it cuts super-packets is not told
    if kind == "netem":
        return netem_netlink.read(options)
    if kind in ("bfifo", "pfifo"):
        return steps.Fifo(options["limit"], kind)
    return steps.Plain(kind)


def _filter_info(version: int) -> int:
    """Priority and protocol of our filters, as the header of a message has them."""
    return steps.PRIORITIES[version] << 16 | socket.htons(_PROTOCOLS[version])


def _mirrored_to(options: Any) -> int | None:
    """Number of the interface that a filter sends packets over to; None where it does not."""
    actions = options.get_attr("TCA_U32_ACT")
    first = actions.get_attr("TCA_ACT_PRIO_1") if actions else None
    if first is None or first.get_attr("TCA_ACT_KIND") != "mirred":
        return None
    return int(first.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")["ifindex"])


class _U32Options(cls_u32.options):  # type: ignore[misc]
    nla_map = tuple((name, "cdata" if name == "TCA_U32_SEL" else kind) for name, kind in cls_u32.options.nla_map)


class _TbfOptions(nla):  # type: ignore[misc]
    nla_map = _TBF_ATTRIBUTES


def teach() -> None:
    """Have pyroute2 speak of u32, tbf, bfifo and netem as we do."""
    netem_netlink.teach()
    plugins["bfifo"] = plugins["pfifo"]
    plugins["tbf"] = SimpleNamespace(parent=TC_H_ROOT, options=_TbfOptions, get_parameters=_tbf_parameters)
    plugins["u32"] = SimpleNamespace(options=_U32Options, get_parameters=_u32_parameters)


def _tbf_parameters(arguments: Mapping[str, steps.Tbf]) -> dict[str, object]:
    """What ``tc("add", "tbf", index, setting=...)`` sends; called by pyroute2."""
    tbf = arguments["setting"]
    rate = (0, _ETHERNET, 0, 0, 0, tbf.rate_bytes_per_s)
    peak = (0, _ETHERNET, 0, 0, 0, min(steps.UNLIMITED_BYTES_PER_S, _MAX_U32))
    # The two bursts come in bytes below; the kernel wants them in ticks as well, without using those.
    burst_ticks = round(tbf.burst_bytes / tbf.rate_bytes_per_s / _TICK_S)
    return {
        "attrs": [
            ["TCA_TBF_PARMS", _TBF.pack(*rate, *peak, tbf.burst_bytes, burst_ticks, 1)],
            ["TCA_TBF_BURST", tbf.burst_bytes],
            ["TCA_TBF_PRATE64", steps.UNLIMITED_BYTES_PER_S],
            ["TCA_TBF_PBURST", tbf.cut_bytes],
        ]
    }


def _u32_parameters(arguments: Mapping[str, object]) -> dict[str, object]:
    """What ``tc("add-filter", "u32", index, selector=...)`` sends, with a target or an action; called by pyroute2."""

    attributes = [["TCA_U32_SEL", arguments["selector"]]]
    if "target" in arguments:
        attributes.append(["TCA_U32_CLASSID", arguments["target"]])
    if "action" in arguments:
        attributes.append(["TCA_U32_ACT", get_tca_action(arguments)])
    return {"attrs": attributes}
