"""``link`` of ``distribute``: ranks send no faster than the way between their hosts takes."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.base.explain import nearest
from bwbench.base.units import BANDWIDTH
from bwbench.methods.collectives import AbstractCollective
from bwbench.methods.collectives.pacing import SHARE_OF_DATA, Ends, own_connections, pace_connections
from bwbench.network.link.frame_sizes import FullFrame
from bwbench.training.library.agreement import told_by_all
from bwbench.training.library.groups import ScriptGroups
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.network_probe import rate_bps

UNPACED, MEASURED = "unpaced", "measured"
# Of what TCP was found to carry: it gets somewhat less than a link takes, and a pace below that would be felt.
ABOVE_MEASURED = 1.03
_BOOT, _NETWORK = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/net"


@dataclass(frozen=True)
class AskedLink:
    """What a script says of its network.

    Attributes:
        word: as it was written.
        bandwidth_bps: of each direction of each host's way to the others, in bit/s of frames; None where nothing is
            paced, or where it is measured first.
    """

    word: str
    bandwidth_bps: float | None = None


def read_link(link: object) -> AskedLink:
    """``unpaced``, ``measured``, or a rate such as ``200 Mbit/s``; raises ConfigError where it is none of these."""
    if isinstance(link, str) and link in (UNPACED, MEASURED):
        return AskedLink(link)
    try:
        rate = BANDWIDTH.parse(link)
    except ValueError as error:
        guess = nearest(link, (UNPACED, MEASURED)) if isinstance(link, str) else ""
        known = f"write a rate such as '200 Mbit/s', {MEASURED!r} or {UNPACED!r}"
        raise ConfigError(f"link {link!r} is no rate.{guess} {error}; {known}") from error
    if not 1e3 <= rate <= 1e12:
        raise ConfigError(f"link {link!r} is out of range: 1 kbit/s to 1 Tbit/s")
    return AskedLink(str(link), rate)


def pace_hosts(
    asked: AskedLink, groups: ScriptGroups, collective: AbstractCollective
) -> tuple[str, Callable[[], None]]:
    """Have the kernel space out what goes from this host to others; ranks of one host share its rate. Collective.

    Limited are connections from process to process of those that train together, of whatever group; none that stays
    on a host. A connection is found by both of its ends having told of it.

    Returns:
        What was done, in words, empty where nothing was asked for; and what undoes it.
    """
    if asked.word == UNPACED or groups.data.size() == 1:
        return "", _nothing
    own_host, own_ends = _this_host(), own_connections()
    told = told_by_all([own_host, own_ends], groups.control)
    hosts: list[str] = [host for host, _ in told]
    if len(set(hosts)) == 1:
        return "link: all ranks are on one host, so that nothing is paced", _nothing
    flows = dict.fromkeys(hosts, 0)
    for place, host in enumerate(hosts):
        flows[host] += collective.flows_across(place, hosts)
    if not any(flows.values()):
        text = f"link {asked.word!r} changes nothing here: {type(collective).__name__} sends as fast as TCP makes it"
        warnings.warn(text, stacklevel=3)
        return "", _nothing
    elsewhere = {Ends(*ends).seen_from_peer for host, of_rank in told for ends in of_rank if host != own_host}
    crossing = elsewhere.intersection(own_ends)
    if asked.bandwidth_bps is None:
        payload_bps, how = ABOVE_MEASURED * _measured_bps(groups, hosts), "measured"
    else:
        payload_bps, how = SHARE_OF_DATA * asked.bandwidth_bps / FullFrame().wire_per_payload, "asked for"
    each_bps = payload_bps / max(1, flows[own_host])
    num_paced = pace_connections(crossing, each_bps)
    note = f"link: {num_paced} connections to other hosts send at most {BANDWIDTH.show(each_bps, 3)} each ({how})"
    return note, lambda: _lift(crossing)


def _measured_bps(groups: ScriptGroups, hosts: list[str]) -> float:
    """Payload that TCP carries from this host to the next ones, each rank sending to the one after it. Collective."""
    size, rank = groups.data.size(), groups.data.rank()
    crosses = [hosts[place] != hosts[place - 1] for place in range(size)]  # from the rank before
    control = ControlPath(groups.control)
    found = rate_bps(groups.data, control, size / sum(crosses) if crosses[rank] else 0.0)
    told = told_by_all(found, groups.control)
    leaving = [told[place] for place in range(size) if crosses[place] and hosts[place - 1] == hosts[rank]]
    return float(sum(leaving))


def _this_host() -> str:
    """The same for processes that share a network stack: a host, or a network namespace of one."""
    parts = [platform.node()]
    with suppress(OSError):  # no Linux
        with open(_BOOT, encoding="ascii") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink(_NETWORK))
    return " ".join(parts)


def _lift(crossing: set[Ends]) -> None:
    pace_connections(crossing, None)


def _nothing() -> None:
    pass
