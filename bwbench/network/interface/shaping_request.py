"""What is to be shaped: which interface, whose traffic, as which link. Pure; wrong input is refused here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.listening import MAX_PORT
from bwbench.base.units import BANDWIDTH
from bwbench.network.link import Link
from bwbench.network.link.frame_sizes import DEFAULT_MTU
from bwbench.network.link.node_link import TcpSettings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Part = TypeVar("_Part")

MAX_RATE_BPS = 8 * (2**32 - 1)  # tbf counts bytes per second in 32 bits
_PORTS = re.compile(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?")


@dataclass(frozen=True)
class PortRange:
    """TCP and UDP ports from ``first`` to ``last``, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """``5001`` or ``5001-5010``; raises ValueError that shows the right form."""
        match = _PORTS.fullmatch(text)
        if match is None:
            raise ValueError("write a port or a range of them: '5001' or '5001-5010'")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= MAX_PORT:
            raise ValueError(f"ports go from 1 to {MAX_PORT}, the lower one first")
        return cls(first, last)

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class PeerTraffic:
    """Whose packets are meant: those from and to ``peers``; with ``ports`` only TCP and UDP with one of them at either
    end; never TCP and UDP with one of ``spared`` at either end.
    """

    peers: tuple[Network, ...]
    ports: tuple[PortRange, ...] = ()
    spared: tuple[PortRange, ...] = ()

    @classmethod
    def parse(cls, peers: Sequence[str], ports: Sequence[str], spared: Sequence[str] = ()) -> PeerTraffic:
        """The traffic of these texts; raises ConfigError with everything that is wrong."""
        problems: list[Problem] = []
        networks = _parsed("--peer", peers, _parse_peer, problems)
        ranges = _parsed("--port", ports, PortRange.parse, problems)
        spared_ranges = _parsed("--except-port", spared, PortRange.parse, problems)
        if not peers:
            problems.append(Problem("which traffic? Name the other machines: --peer 192.168.1.7 (repeatable)"))
        if problems:
            raise ConfigError(problems)
        return cls(networks, ranges, spared_ranges)

    def has(self, remote: Address, remote_port: int, local_port: int) -> bool:
        """Whether a TCP connection belongs to it."""
        if not any(remote.version == peer.version and remote in peer for peer in self.peers):
            return False
        if any(remote_port in ports or local_port in ports for ports in self.spared):
            return False
        return not self.ports or any(remote_port in ports or local_port in ports for ports in self.ports)

    def __str__(self) -> str:
        hosts = ", ".join(show_network(peer) for peer in self.peers)
        meant = f"TCP and UDP, {_show_ports(self.ports)}" if self.ports else "everything"
        return f"{hosts} ({meant}{f' but {_show_ports(self.spared)}' if self.spared else ''})"


def _show_ports(ports: Sequence[PortRange]) -> str:
    word = "port" if len(ports) == 1 and ports[0].first == ports[0].last else "ports"
    return f"{word} {', '.join(map(str, ports))}"


def _parsed(
    option: str, texts: Sequence[str], parse: Callable[[str], _Part], problems: list[Problem]
) -> tuple[_Part, ...]:
    found = []
    for text in texts:
        try:
            found.append(parse(text))
        except ValueError as error:
            problems.append(Problem(f"{option} {text!r}: {error}"))
    return tuple(dict.fromkeys(found))


def show_network(network: Network) -> str:
    """``10.0.0.2`` or ``10.0.0.0/24``."""
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def check_link(link: Link, *, netem: bool) -> None:
    """Raise ConfigError with everything of ``link`` that no qdisc on one interface can do.

    Args:
        netem: whether this kernel has it.
    """
    if not link.shaped:
        raise ConfigError("an unshaped link changes nothing; give --bandwidth '10 Mbit/s'")
    found = _beyond_an_interface(link)
    if not netem:
        why = "this kernel has no sch_netem, and without it an interface gets a rate and a queue alone"
        advice = "leave it out, or try 'sudo modprobe sch_netem' (in kernel-modules-extra or linux-modules-extra)"
        asked = {"--latency": link.latency_s, "--jitter": link.jitter_s, "--loss": link.loss}
        beyond_tbf = [f"{name}: {why}; {advice}" for name, value in asked.items() if value]
        if link.backend == "netem" and not beyond_tbf:
            beyond_tbf = [f"--backend: {why}; leave it at auto"]
        found += beyond_tbf
    if found:
        raise ConfigError([Problem(text) for text in found])


def _beyond_an_interface(link: Link) -> list[str]:
    instead = "emulated nodes can do it: bwbench link run"
    found = []
    if link.medium == "shared":
        found.append(f"--medium: one interface has no air to share; {instead}")
    if link.varies:
        found.append(
            "--trace, --outage, and a link's cross_traffic, handover and demand: what is applied to an interface stays "
            f"as it is; {instead}"
        )
    if link.is_managed:
        found.append(f"--queue: the queue that is applied to an interface is drop-tail; {instead}")
    if link.wanders:
        found.append(
            "--jitter: netem draws the delay of every frame anew, and cannot let it wander; add --jitter-kind "
            f"independent (jitter_kind: independent). {instead[0].upper()}{instead[1:]}"
        )
    if link.sites:
        found.append(f"sites: one interface has no sites behind it; {instead}")
    if link.overrides:
        found.append(
            "--override: one interface has no other nodes; run 'bwbench link apply' on the machine that differs"
        )
    if link.tcp != TcpSettings():
        found.append("--congestion-control: the TCP settings of this machine are left alone; set them with sysctl")
    if link.mtu != DEFAULT_MTU:
        found.append(f"--mtu: that of this interface is left alone; 'ip link set' changes it, and {instead}")
    if link.backend == "relay":
        found.append("--backend: a real interface is shaped by the kernel and not by the relay; leave it at auto")
    fastest_bps = max(link.base.up_bps, link.base.down_bps)
    if fastest_bps > MAX_RATE_BPS:
        limit = BANDWIDTH.show(MAX_RATE_BPS, 3)
        found.append(f"--bandwidth: {BANDWIDTH.format(fastest_bps)} is more than the kernel's tbf can do ({limit})")
    return found


def _parse_peer(text: str) -> Network:
    address, slash, prefix = text.strip().partition("/")
    try:
        network = ipaddress.ip_network(address.partition("%")[0] + slash + prefix)
    except ValueError as error:
        if "host bits" in str(error):
            near = ipaddress.ip_network(text.strip(), strict=False)
            raise ValueError(f"an address or a whole network; write {near} or {address}") from None
        advice = "write an IPv4 or IPv6 address or network ('getent ahosts NAME' shows a name's)"
        raise ValueError(f"no IP address; {advice}") from None
    if network.prefixlen == 0:
        raise ValueError("that is everybody; name the machines of the experiment")
    if network.is_loopback or network.is_multicast or network.is_unspecified:
        raise ValueError("not the address of another machine")
    return network
