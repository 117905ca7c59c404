"""Nodes and wires: a namespace a node, and a veth pair each to the air; for experiments another one to a plain bridge.

Runs in the agent, inside the air namespace. Everything here vanishes with the namespaces. What is set on the way is
recorded: segmentation offloads, by the ethtool ioctl (which works in a user namespace too), and each node's TCP.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from bwbench.base.errors import ConfigError, LinkError, UnfitMachineError
from bwbench.base.plain_data import JsonObject
from bwbench.network.backend_choice import super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.dilation import cannot_dilate
from bwbench.network.link.frame_sizes import DEFAULT_MTU
from bwbench.network.namespaces import addresses as named
from bwbench.network.namespaces import congestion, isolation
from bwbench.network.namespaces.backend import Port
from bwbench.network.namespaces.congestion import use_congestion_control
from bwbench.network.namespaces.retransmission import RTO_MAX_KEY, dilate_retransmission, rto_max_ms

_CONTROL_BRIDGE = "ctl"
# Numbers of the air's ends, which none has in its node: the kernel would take as much as a second to say of a pair with
# equal numbers that it is up, and programs that ask for running interfaces would find none.
_DATA_INDEX, _CONTROL_INDEX = 1_000, 2_000
_MULTICAST, _BROADCAST = "224.0.0.0/4", "255.255.255.255/32"
_SIOCETHTOOL = 0x8946
_ETHTOOL_STSO = 0x0000001F
_ETHTOOL_SGSO = 0x00000024
_ETHTOOL_SGRO = 0x0000002C

_IP_STATISTICS = Path("/proc/self/net/snmp")
_SETTINGS = Path("/proc/sys/net/ipv4")
_ECN = "tcp_ecn"  # 1: asked for and taken; 2, the kernel's own: taken where somebody asks
_RECORDED = ("tcp_rmem", "tcp_wmem", "tcp_slow_start_after_idle", "tcp_no_metrics_save", _ECN, RTO_MAX_KEY)
_KEYS = {
    "tcp_slow_start_after_idle": "slow_start_after_idle",
    "tcp_rmem": "receive_buffer",
    "tcp_wmem": "send_buffer",
    RTO_MAX_KEY: "rto_max",
}


class Wiring:
    """The namespaces and interfaces of ``num_nodes`` nodes around the present network namespace (the air).

    Attributes:
        air_fd: file descriptor of the air namespace.
        node_fds: file descriptors of the nodes' namespaces.
        ports: the nodes' data ports in the air namespace: up, and connected to nothing yet.
        settings: what was set on the nodes' own ends: ``offloads`` (whether packets go as super-packets, of at most
            ``super_packet_bytes``), ``mtu``, ``tcp`` (what holds in the nodes, by the names below net.ipv4); in slow
            motion ``undilated``, in words what of TCP it does not reach.
    """

    def __init__(self, link: Link, num_nodes: int, backend: str, *, control_path: bool) -> None:
        self.air_fd = isolation.open_network_namespace()
        self.node_fds: list[int] = []
        self.ports: tuple[Port, ...] = tuple(named.data_port(node) for node in range(num_nodes))
        largest_bytes = super_packet_bytes(link, num_nodes, backend)
        self.settings: JsonObject = {
            "offloads": largest_bytes is not None,
            "super_packet_bytes": largest_bytes,
            "mtu": link.mtu,
            "tcp": {},
        }
        try:
            self._build(link, num_nodes, largest_bytes)
            if control_path:
                self._add_control_path()
        except OSError as error:
            raise LinkError(_kernel_lacks(error)) from error
        except NetlinkError as error:
            raise LinkError(_kernel_lacks(OSError(error.code, os.strerror(error.code)))) from error

    def _build(self, link: Link, num_nodes: int, largest_bytes: int | None) -> None:
        _quiet_ipv6()
        with IPRoute() as air:
            air.link("set", index=air.link_lookup(ifname="lo")[0], state="up")
            for node in range(num_nodes):
                with isolation.new_network_namespace(self.air_fd) as fd:
                    _quiet_ipv6()
                self.node_fds.append(fd)
                data = named.data_port(node).interface
                _add_veth(air, (data, _DATA_INDEX + node), named.DATA_INTERFACE, named.data_mac(node), fd, link.mtu)
                set_offloads(data, enabled=largest_bytes is not None)
                with isolation.inside(fd, self.air_fd):
                    _configure_node(node, num_nodes, largest_bytes)
                    self._configure_tcp(link, node)

    def _configure_tcp(self, link: Link, node: int) -> None:
        control = use_congestion_control(link.tcp.congestion_control, node)
        waits: dict[str, str] = {}
        if link.dilation != 1:
            if why := cannot_dilate(control[congestion.SYSCTL]):
                raise ConfigError(f"link.tcp.congestion_control: {why}")
            waits, words = dilate_retransmission(link, control, node)
            self.settings["undilated"] = [*words]
        self.settings["tcp"] = {**control, **waits, **configure_tcp(link)}

    def unroutable(self) -> list[int]:
        """How often each node's kernel was asked for an address to which no way leads, as to the outside."""
        found = []
        for fd in self.node_fds:
            with isolation.inside(fd, self.air_fd):
                names, values = (line.split() for line in _IP_STATISTICS.read_text(encoding="ascii").splitlines()[:2])
            found.append(int(dict(zip(names, values, strict=True))["OutNoRoutes"]))
        return found

    def _add_control_path(self) -> None:
        """A second network, which nothing shapes, for what an experiment says beside its training."""
        with IPRoute() as air:
            air.link("add", ifname=_CONTROL_BRIDGE, kind="bridge")
            bridge = air.link_lookup(ifname=_CONTROL_BRIDGE)[0]
            air.link("set", index=bridge, state="up")
            for node, fd in enumerate(self.node_fds):
                end = (f"c{node}", _CONTROL_INDEX + node)
                _add_veth(air, end, named.CONTROL_INTERFACE, _control_mac(node), fd, DEFAULT_MTU, bridge)
                with isolation.inside(fd, self.air_fd), IPRoute() as here:
                    index = here.link_lookup(ifname=named.CONTROL_INTERFACE)[0]
                    _bring_up(here, index, named.control_address(node))
                    # What is looked up fills a table that all namespaces share; 33 nodes that know all others fill it.
                    for peer in (peer for peer in range(len(self.node_fds)) if peer != node):
                        _know(here, index, named.control_address(peer), _control_mac(peer))


def _add_veth(
    air: IPRoute, end: tuple[str, int], peer: str, peer_mac: str, peer_fd: int, mtu: int, master: int | None = None
) -> None:
    """A pair: our ``end`` (name and number) here, its ``peer`` in the node."""
    name, index = end
    there = {"ifname": peer, "address": peer_mac, "net_ns_fd": peer_fd, "mtu": mtu}
    air.link("add", ifname=name, index=index, kind="veth", mtu=mtu, peer=there)
    if master is not None:
        air.link("set", index=index, master=master)
    air.link("set", index=index, state="up")


def _configure_node(node: int, num_nodes: int, largest_bytes: int | None) -> None:
    """Addresses, neighbours and offloads of one node, from inside its namespace."""
    addresses = named.node_addresses(node)
    with IPRoute() as here:
        here.link("set", index=here.link_lookup(ifname="lo")[0], state="up")
        data = here.link_lookup(ifname=named.DATA_INTERFACE)[0]
        set_offloads(named.DATA_INTERFACE, enabled=largest_bytes is not None)
        # Switching gso off leaves super-packets of UDP alone; a limit of one segment does not.
        here.link("set", index=data, **({"gso_max_size": largest_bytes} if largest_bytes else {"gso_max_segs": 1}))
        _bring_up(here, data, addresses.data_address)
        for group in (_MULTICAST, _BROADCAST):  # which no address of the interface leads to
            here.route("add", dst=group, oif=data, scope="link")
        for peer in range(num_nodes):
            if peer != node:  # no ARP on the shaped link: it would be delayed, lost and counted
                _know(here, data, named.node_addresses(peer).data_address, named.data_mac(peer))


def _know(here: IPRoute, index: int, address: str, mac: str) -> None:
    """Have an interface know a neighbour's MAC for good."""
    here.neigh("add", dst=address, lladdr=mac, ifindex=index, state="permanent")


def _control_mac(node: int) -> str:
    return f"02:00:00:4e:00:{node + 1:02x}"


def _bring_up(here: IPRoute, index: int, address: str) -> None:
    here.addr("add", index=index, address=address, prefixlen=named.PREFIX_LENGTH)
    here.link("set", index=index, state="up")


def _quiet_ipv6() -> None:
    """No IPv6 on interfaces made from now on: no router solicitations and multicast reports on the shaped link."""
    for scope in ("all", "default"):
        with contextlib.suppress(OSError):  # no IPv6 in this kernel, or a read-only /proc: the relay drops it anyway
            Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")


def _kernel_lacks(error: OSError) -> str:
    if error.errno in (errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV, errno.EPROTONOSUPPORT):
        advice = "this kernel seems to lack veth or bridge; try 'sudo modprobe veth bridge'"
    elif error.errno in (errno.EPERM, errno.EACCES):
        advice = "try the same command with sudo"
    elif error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOSPC):
        advice = "ask for fewer nodes, or raise 'ulimit -n' and user.max_net_namespaces"
    else:
        advice = "'bwbench doctor' says what this machine can do"
    return f"cannot build the nodes' network: {error.strerror or error}; {advice}"


def set_offloads(interface: str, *, enabled: bool) -> None:
    """Switch TSO, GSO and GRO of ``interface`` in the present namespace. Raises OSError.

    With all off every packet on the wire is a frame of its own, which can be shaped, counted and lost by itself.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        for command in (_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO):
            value = array.array("B", struct.pack("=II", command, int(enabled)))
            pointer, _ = value.buffer_info()
            fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), pointer))


def configure_tcp(link: Link) -> dict[str, str]:
    """Set what ``link`` asks of TCP in the present network namespace, but for congestion control.

    Returns what holds now, by the names below net.ipv4; a setting that this kernel does not know is missing in the
    answer. Raises ConfigError for what the kernel does not take, UnfitMachineError for what it is too old for.
    """
    _write("tcp_no_metrics_save", "1")  # connections must not learn from those of an earlier cell or arm
    if link.marks and not _write(_ECN, "1"):
        raise UnfitMachineError(f"link.queue.ecn: this kernel does not take net.ipv4.{_ECN} = 1; leave 'ecn' out")
    longest_ms = str(rto_max_ms(link))
    if link.tcp.rto_max_s is None:
        _write(RTO_MAX_KEY, longest_ms)  # unknown before Linux 6.15
    asked = link.tcp.sysctls()
    for name, value in (asked | {RTO_MAX_KEY: longest_ms} if RTO_MAX_KEY in asked else asked).items():
        if not (_SETTINGS / name).exists():
            since = " (Linux 6.15 and later have it)" if name == RTO_MAX_KEY else ""
            raise UnfitMachineError(
                f"link.tcp.{_KEYS[name]}: this kernel has no net.ipv4.{name}{since}; leave it out, or use a newer one"
            )
        if not _write(name, value):
            limits = ": 1 s to 120 s" if name == RTO_MAX_KEY else ""
            raise ConfigError(f"link.tcp.{_KEYS[name]}: the kernel refuses net.ipv4.{name} = {value}{limits}")
    found = {name: isolation.sysctl(f"net/ipv4/{name}") for name in _RECORDED}
    return {name: value for name, value in found.items() if value is not None}


def _write(name: str, value: str) -> bool:
    with contextlib.suppress(OSError):
        (_SETTINGS / name).write_text(value, encoding="ascii")
        return True
    return False
