"""Taking steps, reading back and removing, by netlink through pyroute2; and whether this process may."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Any

from bwbench.base.errors import ConfigError, LinkError, UnfitMachineError
from bwbench.network.interface import tc_messages as messages
from bwbench.network.interface.match import Match
from bwbench.network.interface.settings import PRIORITIES, Filter, HtbClass, Plain, Qdisc
from bwbench.network.interface.steps import MakeIfb, Step
from bwbench.network.namespaces.isolation import CAP_NET_ADMIN, has_capability

_GONE = (errno.ENOENT, errno.ENODEV, errno.EINVAL)  # nothing there (any more) to delete
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8


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
        from pyroute2 import IPRoute

        messages.teach()
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
        from pyroute2.netlink.exceptions import NetlinkError

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return self.name_of(self._netlink.route("get", dst=address, family=family)[0].get_attr("RTA_OIF"))
        except NetlinkError:
            return None

    def take(self, step: Step) -> None:
        """Do one step; raises LinkError with what the kernel refused and why."""
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            self._take(step)
        except NetlinkError as error:
            raise LinkError(_refusal(step, error)) from error

    def qdiscs(self, index: int) -> list[Qdisc]:
        """All qdiscs of an interface."""
        return [Qdisc(found["handle"], found["parent"], messages.setting_in(found)) for found in self._qdiscs(index)]

    def described(self, index: int) -> list[tuple[str, int, int, str]]:
        """Kind, handle, parent and settings of all qdiscs of an interface, sorted: to be compared."""
        return sorted(
            (found.get_attr("TCA_KIND"), found["handle"], found["parent"], messages.text_of_options(found))
            for found in self._qdiscs(index)
        )

    def classes(self, index: int) -> list[HtbClass]:
        """The classes of an interface that are like ours."""
        return [found for message in self._netlink.get_classes(index=index) if (found := messages.class_in(message))]

    def filters(self, index: int, parent: int) -> list[Filter]:
        """Our filters below ``parent``."""
        found = []
        for message in self._netlink.get_filters(index=index, parent=parent):
            versions = [version for version in PRIORITIES if messages.filter_info(version) == message["info"]]
            options = message.get_attr("TCA_OPTIONS")
            selector = options.get_attr("TCA_U32_SEL") if versions and options is not None else None
            if selector is not None:
                ifb = messages.mirrored_to(options)
                target = options.get_attr("TCA_U32_CLASSID") if ifb is None else self.name_of(ifb) or ""
                found.append(Filter(parent, Match.read(versions[0], selector), target))
        return found

    def has_foreign_filters(self, index: int, parent: int) -> bool:
        """Whether there are filters below ``parent`` that are not ours."""
        ours = {messages.filter_info(version) for version in PRIORITIES}
        return any(found["info"] not in ours for found in self._netlink.get_filters(index=index, parent=parent))

    def delete_qdisc(self, index: int, handle: int, parent: int) -> bool:
        """Whether it was there, with this handle, and could be deleted with everything below it."""
        return self._deleted("del", index, handle=handle, parent=parent)

    def delete_filters(self, index: int, parent: int) -> bool:
        """Whether there were filters of ours below ``parent``; there are none then."""
        infos = [messages.filter_info(version) for version in PRIORITIES]
        deleted = [self._deleted("del-filter", index, parent=parent, info=info) for info in infos]
        return any(deleted)

    def delete_interface(self, name: str) -> bool:
        """Whether there was such an interface; there is none then."""
        from pyroute2.netlink.exceptions import NetlinkError

        index = self.index_of(name)
        try:
            return index is not None and bool(self._netlink.link("del", index=index))
        except NetlinkError as error:
            if error.code not in _GONE:
                raise
            return False

    def _qdiscs(self, index: int) -> list[Any]:
        return [found for found in self._netlink.get_qdiscs() if found["index"] == index]

    def _deleted(self, command: str, index: int, **arguments: Any) -> bool:
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            self._netlink.tc(command, None, index, **arguments)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise
            return False
        return True

    def _take(self, step: Step) -> None:
        if isinstance(step, MakeIfb):
            self._netlink.link("add", ifname=step.name, kind="ifb")
            self._netlink.link("set", index=self.index_of(step.name), state="up")
            return
        index, what = self.index_of(step.dev), step.what
        if index is None:
            raise LinkError(f"interface {step.dev} is gone")
        if isinstance(what, Qdisc):
            kind, arguments = messages.arguments_of(what.setting)
            if isinstance(what.setting, Plain):  # without a word about settings: the kernel's own
                self._netlink.tc("add", kind, index, handle=what.handle, parent=what.parent)
            else:
                self._netlink.tc("add", kind, index, handle=what.handle, parent=what.parent, **arguments)
        elif isinstance(what, HtbClass):
            self._netlink.tc("add-class", "htb", index, **messages.arguments_of_class(what))
        else:
            version = what.match.version
            target: dict[str, Any] = {"target": what.target}
            if isinstance(what.target, str):
                redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
                target = {"action": {**redirect, "ifindex": self.index_of(what.target)}}
            self._netlink.tc(
                "add-filter",
                "u32",
                index,
                parent=what.parent,
                prio=PRIORITIES[version],
                protocol=messages.PROTOCOLS[version],
                selector=what.match.selector(),
                **target,
            )


def _refusal(step: Step, error: Any) -> str:
    command = step.commands()[0]
    if isinstance(step, MakeIfb) and error.code == errno.EOPNOTSUPP:
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


def may_change_interfaces() -> bool:
    """Whether it has the capability."""
    return has_capability(CAP_NET_ADMIN)


def require_rights(command: str) -> None:
    """Raise UnfitMachineError with the line to type where it may not; ``command`` is what was typed."""
    if not may_change_interfaces():
        raise UnfitMachineError(
            f"changing a real interface needs root (CAP_NET_ADMIN), and nothing was changed; run: sudo {command}"
        )
