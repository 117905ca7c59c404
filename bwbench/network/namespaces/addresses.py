"""Names and addresses of the nodes, and what programs in them find in their environment.

Pure functions of a node's number, so that nobody has to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.network.namespaces.backend import Port

MAX_NODES = 254  # hosts of a /24, which the data network of nodes on one machine is
PREFIX_LENGTH = 24
DATA_INTERFACE = "data0"
CONTROL_INTERFACE = "ctl0"

TORCH_PORT = 29500  # torchrun's default; the network is one's own, so that it is always free


@dataclass(frozen=True)
class NodeAddresses:
    """Where a node is reached over the shaped data network."""

    data_address: str
    data_interface: str = DATA_INTERFACE


def node_addresses(node: int) -> NodeAddresses:
    """Addresses of node number ``node`` (from 0)."""
    return NodeAddresses(f"10.77.0.{node + 1}")


def control_address(node: int) -> str:
    """Where the node is reached over the unshaped control network beside, where there is one."""
    return f"10.78.0.{node + 1}"


def data_mac(node: int) -> str:
    """Ethernet address of the node's end of the data network (locally administered; its last byte is the node)."""
    return f"02:00:00:4d:00:{node + 1:02x}"


def data_port(node: int) -> Port:
    """The node's port in the air namespace."""
    return Port(node, f"n{node}", data_mac(node), node_addresses(node).data_address)


def node_environment(rank: int, nodes: Sequence[NodeAddresses]) -> dict[str, str]:
    """Who the node is, for programs: its number, how many there are, its own address on the shaped network.

    And by which interface gloo, NCCL and TensorPipe reach the others: without a word they ask for the host's name,
    which may belong to no address of a node. Who uses none of them does not notice.
    """
    interface = nodes[rank].data_interface
    return {
        "BWBENCH_RANK": str(rank),
        "BWBENCH_NODES": str(len(nodes)),
        "BWBENCH_ADDRESS": nodes[rank].data_address,
        **{f"{library}_SOCKET_IFNAME": interface for library in ("GLOO", "NCCL", "TP")},
    }


def torch_environment(rank: int, nodes: Sequence[NodeAddresses]) -> dict[str, str]:
    """What torchrun sets for one process a node, on the shaped network."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": nodes[0].data_address,
        "MASTER_PORT": str(TORCH_PORT),
    }
