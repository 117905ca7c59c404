"""The commands of iproute2 that make a link as the netem back end does. Pure: a dry run, to read or to paste.

Nothing here runs them: the back end speaks to the kernel itself, and its namespaces have no names.
"""

from __future__ import annotations

from bwbench.base.errors import ConfigError
from bwbench.network.link import Link
from bwbench.network.link.frame_sizes import DEFAULT_MTU
from bwbench.network.namespaces.addresses import DATA_INTERFACE, PREFIX_LENGTH, data_port
from bwbench.network.namespaces.backend import Port
from bwbench.network.netem.shape import CORE, NodeLayout, beyond_netem, layout, netem_arguments, shape

AIR = "air"
_BRIDGE = "type bridge mcast_snooping 0 stp_state 0"
_NO_OFFLOADS = "tso off gso off gro off"
_PURPOSE = {
    "up": "out of the sender: rate and queue",
    "out": "the sender's own part of latency, jitter and loss",
    "line": "latency, jitter and loss",
    "down": "into the receiver: rate and queue",
}


def tc_commands(link: Link, num_nodes: int) -> list[str]:
    """``ip``, ``bridge``, ``ethtool`` and ``tc`` lines, to be run by root in a shell, and comments (``#``) among them.

    Raises ConfigError for a link that netem cannot make, or that shapes nothing.
    """
    if not link.shaped:
        raise ConfigError("an unshaped link has no qdiscs; there are no tc commands for it")
    if reason := beyond_netem(link):
        raise ConfigError(f"there are no tc commands for this link: netem cannot do {reason}")
    shapes = shape(link, num_nodes)
    nodes = [layout(data_port(node), of_node) for node, of_node in enumerate(shapes)]
    qdiscs = [qdisc for node in shapes for qdisc in node.qdiscs().values()]
    lines = [f"# {link.describe()}; {num_nodes} nodes on netem"]
    if any(qdisc.jitter_us for qdisc in qdiscs):
        lines.append(f"# bwbench sends a table of its own for the {link.jitter_distribution} distribution")
        if link.jitter_distribution == "uniform":
            lines[-1] += "; tc has none, but can give the half width: sqrt(3) standard deviations"
    if any(qdisc.is_random for qdisc in qdiscs):
        lines.append("# bwbench also sends a seed, which netem takes from Linux 6.6 on (tc 6.6: 'seed NUMBER')")
    lines += [f"ip netns add {AIR}", *_add_bridge(CORE)]
    for node in nodes:
        lines += _node(node, "" if link.mtu == DEFAULT_MTU else f" mtu {link.mtu}")
    names = " ".join([AIR, *(_namespace(node.port) for node in nodes)])
    return [*lines, f"# all of it goes with: for name in {names}; do ip netns del $name; done"]


def _node(node: NodeLayout, mtu: str) -> list[str]:
    port, namespace = node.port, _namespace(node.port)
    lines = [
        f"# node {port.node}",
        f"ip netns add {namespace}",
        f"ip -n {AIR} link add {port.interface}{mtu} type veth peer name {DATA_INTERFACE}{mtu} address {port.mac}"
        f" netns {namespace}",
        f"ip netns exec {AIR} ethtool -K {port.interface} {_NO_OFFLOADS}",
        f"ip netns exec {namespace} ethtool -K {DATA_INTERFACE} {_NO_OFFLOADS}",
        f"ip -n {namespace} addr add {port.address}/{PREFIX_LENGTH} dev {DATA_INTERFACE}",
        f"ip -n {namespace} link set {DATA_INTERFACE} gso_max_segs 1 up",
    ]
    for name in node.bridges:
        lines += _add_bridge(name)
    lines += [f"ip -n {AIR} link add {one}{mtu} type veth peer name {other}{mtu}" for one, other in node.pairs]
    lines += [f"ip -n {AIR} link set {name} master {bridge} up" for name, bridge in node.masters]
    lines.append(f"bridge -n {AIR} fdb append {port.mac} dev {node.core_end} master static")
    for role, (name, qdisc) in node.qdiscs.items():
        lines.append(f"# {_PURPOSE[role]}")
        lines.append(f"tc -n {AIR} qdisc add dev {name} root handle bbbb: netem {netem_arguments(qdisc)}")
    return lines


def _add_bridge(name: str) -> list[str]:
    return [f"ip -n {AIR} link add {name} {_BRIDGE}", f"ip -n {AIR} link set {name} up"]


def _namespace(port: Port) -> str:
    return f"node{port.node}"
