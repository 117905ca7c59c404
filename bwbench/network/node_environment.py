"""What a program in a node finds in its environment about the network that it is in."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.network.addresses import NodeAddresses

TORCH_PORT = 29500  # torchrun's default; the network is one's own, so that it is always free


def node_environment(rank: int, nodes: Sequence[NodeAddresses]) -> dict[str, str]:
    """The node's number, how many there are, and its own address on the shaped network."""
    return {
        "BWBENCH_RANK": str(rank),
        "BWBENCH_NODES": str(len(nodes)),
        "BWBENCH_ADDRESS": nodes[rank].data_address,
    }


def torch_environment(rank: int, nodes: Sequence[NodeAddresses]) -> dict[str, str]:
    """What torchrun sets for one process a node, and the interface for gloo and NCCL: all on the shaped network."""
    interface = nodes[rank].data_interface
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": nodes[0].data_address,
        "MASTER_PORT": str(TORCH_PORT),
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
    }
