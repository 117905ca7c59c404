"""What a network was set to, by whichever back end: in the words of the link and in SI units. Goes into every result.

One shape for all of them. What every shaping back end knows stands in ``Applied`` itself; a field that only one of them
knows is None with the others. Never what was achieved: that is the probe's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from bwbench.network.link.air import Air
from bwbench.network.link.chance import Distribution, GilbertElliott
from bwbench.network.link.node_link import NodeLink
from bwbench.network.link.variation import Outage, Trace

Number = int | float  # as it was set: what the kernel takes in whole numbers stays whole


@dataclass(frozen=True)
class AppliedTrace:
    """A trace that drives a rate: the file, from where on, and its mean."""

    file: str
    start_s: Number
    sha256: str | None
    mean_bps: Number | None

    @classmethod
    def of(cls, trace: Trace | None) -> AppliedTrace | None:
        """What there is to say of ``trace``; None where there is none."""
        return None if trace is None else cls(trace.file, trace.start_s, trace.sha256, trace.mean_bps)


@dataclass(frozen=True)
class AppliedNode:
    """What the link of one node was set to, and the path between two such nodes.

    Attributes:
        up_bps, down_bps: rates of Ethernet frames; the mean where a trace drives one.
        latency_s, jitter_s, loss: of the path: one way.
        queue_bytes, down_queue_bytes: before each direction; None where the back end counts packets alone.
        queue_packets: the same where packets are counted; None where bytes are.
    """

    up_bps: Number
    down_bps: Number
    latency_s: Number
    jitter_s: Number
    loss: Number
    queue_bytes: int | None = None
    down_queue_bytes: int | None = None
    queue_packets: int | None = None
    up_trace: AppliedTrace | None = None
    down_trace: AppliedTrace | None = None

    @classmethod
    def of(cls, node: NodeLink) -> AppliedNode:
        """A node whose link was set to exactly what was asked."""
        return cls(
            node.up_bps,
            node.down_bps,
            node.latency_s,
            node.jitter_s,
            node.loss,
            node.up_queue_bytes,
            node.down_queue_bytes,
            node.queue_packets,
            AppliedTrace.of(node.up_trace),
            AppliedTrace.of(node.down_trace),
        )

    @property
    def slowest_bps(self) -> Number:
        """The slower of both directions."""
        return min(self.up_bps, self.down_bps)


@dataclass(frozen=True)
class AppliedWiring:
    """What was set on the nodes' own interfaces and TCP, whatever shapes the link.

    Attributes:
        offloads: whether packets go as super-packets, of at most ``super_packet_bytes``.
        mtu: in bytes.
        tcp: settings that hold in the nodes, by their names below net.ipv4.
    """

    offloads: bool
    super_packet_bytes: int | None
    mtu: int
    tcp: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AlikeNodes:
    """Nodes for which the kernel was told the same: qdisc by qdisc, by role (``netem/shape.py``)."""

    nodes: tuple[int, ...]
    qdiscs: Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True)
class Applied:
    """All that was set.

    Attributes:
        usual: a node without an override; None where nothing is shaped.
        differing: those that differ, by their number (relay; of netem ``qdiscs`` tells it).
        burst_loss: the chain that loses frames in bursts; None where each is lost by itself (relay).
        medium, air, outages: as in ``Link`` (relay; netem has ``switched`` links without outages alone).
        seed: of the random numbers behind loss and jitter.
        seed_applied: whether the kernel took the seed; None where nothing is random (netem).
        qdiscs: what the kernel was told for every node (netem).
        priority: how the relay's process is scheduled.
        bridge: the interface that joins the nodes where nothing is shaped.
        wiring: of the nodes' own ends; None until the agent has put it in.
    """

    backend: Literal["relay", "netem", "unshaped"]
    usual: AppliedNode | None = None
    differing: Mapping[int, AppliedNode] = field(default_factory=dict)
    jitter_distribution: Distribution = "normal"
    reorder: bool = False
    burst_loss: GilbertElliott | None = None
    medium: Literal["switched", "shared"] = "switched"
    air: Air | None = None
    outages: tuple[Outage, ...] = ()
    seed: int | None = None
    seed_applied: bool | None = None
    qdiscs: tuple[AlikeNodes, ...] = ()
    priority: str | None = None
    bridge: str | None = None
    wiring: AppliedWiring | None = None

    def with_wiring(self, wiring: AppliedWiring) -> Applied:
        """The same with what was set on the nodes' own ends."""
        return replace(self, wiring=wiring)

    def to_json(self) -> dict[str, Any]:
        """As ``link.json`` has it under ``applied``, where each back end has keys of its own."""
        wiring = asdict(self.wiring) if self.wiring else {}
        of_backend = {"relay": self._relay, "netem": self._netem, "unshaped": self._unshaped}[self.backend]
        return {**wiring, **of_backend()}

    def to_message(self) -> dict[str, Any]:
        """Every field, JSON-able: for another process of ours, which reads it by ``from_message``."""
        content: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return content

    @classmethod
    def from_message(cls, content: Mapping[str, Any]) -> Applied:
        """The inverse of ``to_message``."""
        return _adapter().validate_python(content)

    def _relay(self) -> dict[str, Any]:
        assert self.usual is not None
        usual = asdict(self.usual)
        return {
            "bandwidth_bps": self.usual.slowest_bps,
            **usual,
            "jitter_distribution": self.jitter_distribution,
            "reorder": self.reorder,
            "burst_loss": asdict(self.burst_loss) if self.burst_loss else None,
            "medium": self.medium,
            "air": {**asdict(self.air), "wired": sorted(self.air.wired)} if self.air else None,
            "nodes": {
                str(node): {key: value for key, value in asdict(own).items() if value != usual[key]}
                for node, own in self.differing.items()
            },
            "outages": [outage.model_dump(mode="json") for outage in self.outages],
            "seed": self.seed,
            **({} if self.priority is None else {"priority": self.priority}),
        }

    def _netem(self) -> dict[str, Any]:
        assert self.usual is not None
        return {
            "bandwidth_bps": self.usual.slowest_bps,
            "up_bps": self.usual.up_bps,
            "down_bps": self.usual.down_bps,
            "latency_s": self.usual.latency_s,
            "jitter_s": self.usual.jitter_s,
            "jitter_distribution": self.jitter_distribution,
            "reorder": self.reorder,
            "loss": self.usual.loss,
            "queue_packets": self.usual.queue_packets,
            "seed": self.seed,
            "seed_applied": self.seed_applied,
            "shapes": [{"nodes": list(alike.nodes), **alike.qdiscs} for alike in self.qdiscs],
        }

    def _unshaped(self) -> dict[str, Any]:
        return {} if self.bridge is None else {"bridge": self.bridge}


def same_qdiscs(qdiscs: Sequence[Mapping[str, Mapping[str, Any] | None]]) -> tuple[AlikeNodes, ...]:
    """The nodes in the order of their numbers, those with the same qdiscs together."""
    alike: list[tuple[list[int], Mapping[str, Mapping[str, Any] | None]]] = []
    for node, own in enumerate(qdiscs):
        numbers = next((numbers for numbers, found in alike if found == own), None)
        if numbers is None:
            alike.append(([node], own))
        else:
            numbers.append(node)
    return tuple(AlikeNodes(tuple(numbers), found) for numbers, found in alike)


@cache
def _adapter() -> TypeAdapter[Applied]:
    return TypeAdapter(Applied)
