"""A link in the terms of the relay's schedules: everything looked up, loaded and spread over the nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache

from bwbench.base.plain_data import JsonObject
from bwbench.network.link import Link
from bwbench.network.link.air import Air
from bwbench.network.link.node_link import NodeLink, Path, path_between
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.link.variation import Trace


@dataclass(frozen=True)
class Direction:
    """One direction of one node's link: a rate, and the drop-tail queue before it.

    Attributes:
        rate_bps: of Ethernet frames; on a shared air the PHY rate of the station. The mean where a trace drives it.
        queue_bytes: what the queue holds; on a link of its own the frame on its way out is part of it.
        queue_packets: the same where it counts packets of whatever size; None where it counts bytes.
        trace: the rate over time while the link plays; None where it is constant.
    """

    rate_bps: float
    queue_bytes: int
    queue_packets: int | None = None
    trace: RateTrace | None = None

    @property
    def fastest_bps(self) -> float:
        """The highest rate that ever holds."""
        return self.rate_bps if self.trace is None else max(self.rate_bps, self.trace.max_bps)

    def scaled(self, factor: float) -> Direction:
        """The same at ``factor`` times the rate."""
        trace = self.trace and RateTrace(self.trace.times_s, [rate_bps * factor for rate_bps in self.trace.rates_bps])
        return replace(self, rate_bps=self.rate_bps * factor, trace=trace)


@dataclass(frozen=True)
class RelayModel:
    """What a schedule needs of a link.

    Attributes:
        link: as asked.
        up, down: from and to each node.
        paths: latency, jitter and loss between nodes, ``paths[src][dst]``.
        air: the shared medium; None where each node has a link of its own.
    """

    link: Link
    up: tuple[Direction, ...]
    down: tuple[Direction, ...]
    paths: tuple[tuple[Path, ...], ...]
    air: Air | None

    @classmethod
    def of(cls, link: Link, num_nodes: int, load: Callable[[Trace], RateTrace]) -> RelayModel:
        """The model of ``link`` between ``num_nodes`` nodes; ``load`` reads a trace, and is asked once for each.

        Raises ValueError where the link is not shaped, or has traces of which nobody knows the mean rate yet.
        """
        nodes = link.nodes(num_nodes)
        if any(math.isnan(node.slowest_bps) for node in nodes):
            raise ValueError("the link's traces have no mean rate yet: freeze_link fills it in")
        load_once = cache(load)

        def direction(rate_bps: float, queue_bytes: int, node: NodeLink, trace: Trace | None) -> Direction:
            if trace is None:
                return Direction(rate_bps, queue_bytes, node.queue_packets)
            return Direction(load_once(trace).mean_bps, queue_bytes, node.queue_packets, load_once(trace))

        # Nodes that are alike share their paths: of 254 nodes only those that differ cost anything.
        between = cache(path_between)
        rows = {src: tuple(between(src, dst) for dst in nodes) for src in set(nodes)}
        return cls(
            link=link,
            up=tuple(direction(node.up_bps, node.up_queue_bytes, node, node.up_trace) for node in nodes),
            down=tuple(direction(node.down_bps, node.down_queue_bytes, node, node.down_trace) for node in nodes),
            paths=tuple(rows[src] for src in nodes),
            air=link.air,
        )

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.up)

    @property
    def has_jitter(self) -> bool:
        """Whether the delay of any path varies."""
        return any(path.jitter_s > 0 for row in self.paths for path in row)

    @property
    def has_loss(self) -> bool:
        """Whether frames are lost at random on any path."""
        return self.link.burst_loss is not None or any(path.loss > 0 for row in self.paths for path in row)

    @property
    def has_traces(self) -> bool:
        """Whether the rate of any direction changes over time."""
        return any(direction.trace is not None for direction in (*self.up, *self.down))

    @property
    def varies(self) -> bool:
        """Whether playing changes anything."""
        return self.has_traces or bool(self.link.outages)

    def with_fault(self, rate: float = 1.0, latency: float = 1.0) -> RelayModel:
        """A link that is not what was asked: all rates and all latencies times a factor."""
        air = self.air and replace(self.air, overhead_s=self.air.overhead_s / rate)
        return replace(
            self,
            up=tuple(direction.scaled(rate) for direction in self.up),
            down=tuple(direction.scaled(rate) for direction in self.down),
            paths=tuple(tuple(replace(path, latency_s=path.latency_s * latency) for path in row) for row in self.paths),
            air=air,
        )


def applied_relay(model: RelayModel, priority: str) -> JsonObject:
    """What the relay was told to do: a node without an override and the path between two such, and who differs in what.

    Args:
        priority: how its process is scheduled.
    """
    link, air = model.link, model.air
    usual = _applied_node(link.base)
    differing = {node: _applied_node(link.node(node)) for node in sorted(link.overrides)}
    return {
        "bandwidth_bps": link.base.slowest_bps,
        **usual,
        "jitter_distribution": link.jitter_distribution,
        "reorder": link.reorder,
        "burst_loss": asdict(link.burst_loss) if link.burst_loss else None,
        "medium": link.medium,
        "air": {**asdict(air), "wired": [*sorted(air.wired)]} if air else None,
        "nodes": {
            str(node): {key: value for key, value in own.items() if value != usual[key]}
            for node, own in differing.items()
        },
        "outages": [outage.model_dump(mode="json") for outage in link.outages],
        "seed": link.seed,
        "priority": priority,
    }


def _applied_node(node: NodeLink) -> JsonObject:
    return {
        "up_bps": node.up_bps,
        "down_bps": node.down_bps,
        "latency_s": node.latency_s,
        "jitter_s": node.jitter_s,
        "loss": node.loss,
        "queue_bytes": node.up_queue_bytes,
        "down_queue_bytes": node.down_queue_bytes,
        "queue_packets": node.queue_packets,
        "up_trace": _applied_trace(node.up_trace),
        "down_trace": _applied_trace(node.down_trace),
    }


def _applied_trace(trace: Trace | None) -> JsonObject | None:
    if trace is None:
        return None
    return {"file": trace.file, "start_s": trace.start_s, "sha256": trace.sha256, "mean_bps": trace.mean_bps}
