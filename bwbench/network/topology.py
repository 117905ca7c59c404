"""Nodes and wires: a namespace a node, a veth pair each to the air for data, another to a plain bridge for control.

Runs in the agent, inside the air namespace. Everything here vanishes with the namespaces.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

from bwbench.base.errors import LinkError
from bwbench.network import namespaces
from bwbench.network.addresses import (
    CONTROL_BRIDGE,
    CONTROL_INTERFACE,
    DATA_INTERFACE,
    PREFIX_LENGTH,
    control_mac,
    control_port_name,
    data_mac,
    data_port,
    node_addresses,
)
from bwbench.network.backend import Port
from bwbench.network.link import Link
from bwbench.network.node_tcp import configure_tcp
from bwbench.network.offloads import set_offloads
from bwbench.network.super_packets import super_packet_bytes


class Topology:
    """The namespaces and interfaces of ``num_nodes`` nodes around the present network namespace (the air).

    Attributes:
        air_fd: file descriptor of the air namespace.
        node_fds: file descriptors of the nodes' namespaces.
        ports: the nodes' data ports in the air namespace: up, and connected to nothing yet.
        settings: what was set, JSON-able.
    """

    def __init__(self, link: Link, num_nodes: int, backend: str) -> None:
        self.air_fd = namespaces.open_network_namespace()
        self.node_fds: list[int] = []
        self.ports: tuple[Port, ...] = tuple(data_port(node) for node in range(num_nodes))
        largest_bytes = super_packet_bytes(link, num_nodes, backend)
        self.settings: dict[str, Any] = {
            "offloads": largest_bytes is not None, "super_packet_bytes": largest_bytes, "mtu": 1500, "tcp": {},
        }  # fmt: skip
        try:
            self._build(link, num_nodes, largest_bytes)
        except OSError as error:
            raise LinkError(_kernel_lacks(error)) from error
        except Exception as error:
            code = getattr(error, "code", None)  # pyroute2's NetlinkError
            if not isinstance(code, int):
                raise
            raise LinkError(_kernel_lacks(OSError(code, os.strerror(code)))) from error

    def close(self) -> None:
        """Let go of the namespaces; they end with the last process in them. Safe to call twice."""
        for fd in [*self.node_fds, self.air_fd]:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.node_fds, self.air_fd = [], -1

    def _build(self, link: Link, num_nodes: int, largest_bytes: int | None) -> None:
        from pyroute2 import IPRoute

        _quiet_ipv6()
        with IPRoute() as air:
            air.link("set", index=air.link_lookup(ifname="lo")[0], state="up")
            air.link("add", ifname=CONTROL_BRIDGE, kind="bridge")
            bridge = air.link_lookup(ifname=CONTROL_BRIDGE)[0]
            air.link("set", index=bridge, state="up")
            for node in range(num_nodes):
                fd = namespaces.new_network_namespace(self.air_fd)
                self.node_fds.append(fd)
                with namespaces.inside(fd, self.air_fd):
                    _quiet_ipv6()
                _add_veth(air, data_port(node).interface, DATA_INTERFACE, data_mac(node), fd)
                _add_veth(air, control_port_name(node), CONTROL_INTERFACE, control_mac(node), fd, master=bridge)
                set_offloads(data_port(node).interface, largest_bytes is not None)
                with namespaces.inside(fd, self.air_fd):
                    _configure_node(node, num_nodes, largest_bytes)
                    self.settings["tcp"] = configure_tcp(link.tcp)


def _add_veth(air: Any, name: str, peer: str, peer_mac: str, peer_fd: int, master: int | None = None) -> None:
    air.link("add", ifname=name, kind="veth", peer={"ifname": peer, "address": peer_mac, "net_ns_fd": peer_fd})
    index = air.link_lookup(ifname=name)[0]
    if master is not None:
        air.link("set", index=index, master=master)
    air.link("set", index=index, state="up")


def _configure_node(node: int, num_nodes: int, largest_bytes: int | None) -> None:
    """Addresses, neighbours and offloads of one node, from inside its namespace."""
    from pyroute2 import IPRoute

    addresses = node_addresses(node)
    with IPRoute() as here:
        here.link("set", index=here.link_lookup(ifname="lo")[0], state="up")
        data = here.link_lookup(ifname=DATA_INTERFACE)[0]
        control = here.link_lookup(ifname=CONTROL_INTERFACE)[0]
        set_offloads(DATA_INTERFACE, largest_bytes is not None)
        # Switching gso off leaves super-packets of UDP alone; a limit of one segment does not.
        here.link("set", index=data, **({"gso_max_size": largest_bytes} if largest_bytes else {"gso_max_segs": 1}))
        for index, address in ((data, addresses.data_address), (control, addresses.control_address)):
            here.addr("add", index=index, address=address, prefixlen=PREFIX_LENGTH)
            here.link("set", index=index, state="up")
        for peer in range(num_nodes):
            if peer != node:  # no ARP on the shaped link: it would be delayed, lost and counted
                peer_address = node_addresses(peer).data_address
                here.neigh("add", dst=peer_address, lladdr=data_mac(peer), ifindex=data, state="permanent")


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
