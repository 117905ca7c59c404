"""Names and addresses of the nodes: pure functions of a node's number, so that nobody has to be asked."""

from __future__ import annotations

from dataclasses import dataclass

from bwbench.network.backend import Port

MAX_NODES = 254  # hosts of a /24
PREFIX_LENGTH = 24
DATA_INTERFACE = "data0"
CONTROL_INTERFACE = "ctl0"
CONTROL_BRIDGE = "ctl"


@dataclass(frozen=True)
class NodeAddresses:
    """Where a node is reached: over the shaped data network and over the unshaped control network beside it."""

    data_address: str
    control_address: str
    data_interface: str = DATA_INTERFACE
    control_interface: str = CONTROL_INTERFACE


def node_addresses(node: int) -> NodeAddresses:
    """Addresses of node number ``node`` (from 0)."""
    return NodeAddresses(f"10.77.0.{node + 1}", f"10.78.0.{node + 1}")


def data_mac(node: int) -> str:
    """Ethernet address of the node's end of the data network (locally administered; its last byte is the node)."""
    return f"02:00:00:4d:00:{node + 1:02x}"


def control_mac(node: int) -> str:
    """Ethernet address of the node's end of the control network."""
    return f"02:00:00:4e:00:{node + 1:02x}"


def data_port(node: int) -> Port:
    """The node's port in the air namespace."""
    return Port(node, f"n{node}", data_mac(node), node_addresses(node).data_address)


def control_port_name(node: int) -> str:
    """Interface in the air namespace that leads to the node's control end."""
    return f"c{node}"
