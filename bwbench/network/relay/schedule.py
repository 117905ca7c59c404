"""When a frame leaves: the model of the link, in virtual time and without sockets; and what happens to it by chance.

The model is the link with everything looked up, loaded and spread over the nodes.

A schedule is told of frames as they come and says which ones are due. All times are seconds of one monotonic clock. It
reckons with the time at which a frame came, not with the time at which it was told, so that a relay that was late
catches up instead of losing capacity.

Delays that vary and losses have random numbers of their own each, by the seed. So the frames that are lost stay the
same when the jitter changes, and what one receiver loses does not depend on what others are sent.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from heapq import heappop
from typing import Generic, Protocol, TypeVar

from bwbench.base.plain_data import JsonObject
from bwbench.network.link import Link
from bwbench.network.link.air import Air
from bwbench.network.link.discipline import AbstractDiscipline
from bwbench.network.link.node_link import NodeLink, Path, path_between
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.link.site_network import SiteNetwork
from bwbench.network.link.variation import Trace
from bwbench.network.relay.delays import HandOvers, delays_of


@dataclass(frozen=True)
class Direction:
    """One direction of one node's link: a rate, and the queue before it.

    Attributes:
        rate_bps: of Ethernet frames; on a shared air the PHY rate of the station. The mean where a trace drives it.
        queue_bytes: what the queue holds; on a link of its own the frame on its way out is part of it.
        queue_packets: the same where it counts packets of whatever size; None where it counts bytes.
        trace: the rate over time while the link plays; None where it is constant.
        discipline: what manages the queue; None where it is drop-tail.
    """

    rate_bps: float
    queue_bytes: int
    queue_packets: int | None = None
    trace: RateTrace | None = None
    discipline: AbstractDiscipline | None = None

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
        sites: which nodes are where, and the lines between; None where all are at one place.
    """

    link: Link
    up: tuple[Direction, ...]
    down: tuple[Direction, ...]
    paths: tuple[tuple[Path, ...], ...]
    air: Air | None
    sites: SiteNetwork | None = None

    @classmethod
    def of(cls, link: Link, num_nodes: int, load: Callable[[Trace], RateTrace]) -> RelayModel:
        """The model of ``link`` between ``num_nodes`` nodes; ``load`` reads a trace, and is asked once for each.

        Raises ValueError where the link is not shaped, has files of traces or paths that nobody has read yet, or sites
        that do not go with so many nodes.
        """
        nodes, sites = link.nodes(num_nodes), link.site_network(num_nodes)
        if any(math.isnan(node.slowest_bps) for node in nodes):
            raise ValueError("the link's traces have no mean rate yet: freeze_link fills it in")
        load_once = cache(load)

        def direction(rate_bps: float, queue_bytes: int, node: NodeLink, trace: Trace | None) -> Direction:
            if trace is None:
                return Direction(rate_bps, queue_bytes, node.queue_packets, None, node.discipline)
            rates = load_once(trace)
            return Direction(rates.mean_bps, queue_bytes, node.queue_packets, rates, node.discipline)

        # Nodes that are alike share their paths: of 254 nodes only those that differ cost anything.
        between = cache(path_between)
        rows = {src: tuple(between(src, dst) for dst in nodes) for src in set(nodes)}
        return cls(
            link=link,
            up=tuple(direction(node.up_bps, node.up_queue_bytes, node, node.up_trace) for node in nodes),
            down=tuple(direction(node.down_bps, node.down_queue_bytes, node, node.down_trace) for node in nodes),
            paths=tuple(rows[src] for src in nodes) if sites is None else sites.paths_among(nodes),
            air=link.air,
            sites=sites,
        )

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.up)

    @property
    def has_jitter(self) -> bool:
        """Whether the delay of any path varies."""
        return any(path.jitter_s > 0 for row in self.paths for path in row)

    def timing(self) -> tuple[object, ...]:
        """All that decides how long frames are under way between the links: equal where delays are."""
        paths = tuple(tuple((path.latency_s, path.jitter_s) for path in row) for row in self.paths)
        return paths, self.link.jitter_kind, self.link.jitter_distribution, self.link.reorder

    @property
    def has_loss(self) -> bool:
        """Whether frames are lost at random on any path."""
        return self.link.burst_loss is not None or any(path.loss > 0 for row in self.paths for path in row)

    @property
    def is_managed(self) -> bool:
        """Whether any queue decides when its link falls free.

        That is where a discipline manages it, others send into it, or the rate follows what has been sent.
        """
        return bool(self.link.cross_traffic or self.link.demand) or any(
            direction.discipline is not None for direction in (*self.up, *self.down)
        )

    @property
    def varies(self) -> bool:
        """Whether playing changes anything."""
        return self.link.varies or any(direction.trace is not None for direction in (*self.up, *self.down))

    def with_fault(self, rate: float = 1.0, latency: float = 1.0) -> RelayModel:
        """A link that is not what was asked: all rates and all latencies times a factor."""
        air = self.air and replace(self.air, overhead_s=self.air.overhead_s / rate)
        return replace(
            self,
            up=tuple(direction.scaled(rate) for direction in self.up),
            down=tuple(direction.scaled(rate) for direction in self.down),
            paths=tuple(tuple(replace(path, latency_s=path.latency_s * latency) for path in row) for row in self.paths),
            air=air,
            sites=self.sites and self.sites.scaled(rate),
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
        "jitter_kind": link.jitter_kind if model.has_jitter else None,
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
        "cross_traffic": [traffic.model_dump(mode="json", by_alias=True) for traffic in link.cross_traffic],
        "handover": link.handover.model_dump(mode="json", by_alias=True) if link.handover else None,
        "demand": link.demand.model_dump(mode="json", by_alias=True) if link.demand else None,
        **(model.sites.applied() if model.sites else {}),
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
        "discipline": node.discipline.written() if node.discipline else None,
        "up_trace": _applied_trace(node.up_trace),
        "down_trace": _applied_trace(node.down_trace),
    }


def _applied_trace(trace: Trace | None) -> JsonObject | None:
    if trace is None:
        return None
    return {"file": trace.file, "start_s": trace.start_s, "sha256": trace.sha256, "mean_bps": trace.mean_bps}


FrameT = TypeVar("FrameT")
NEVER = float("inf")

_LostT = TypeVar("_LostT", contravariant=True)


class Losses:
    """Draws which frames are lost: each by itself with its path's probability, or in bursts.

    For bursts every receiving node has a Gilbert-Elliott chain of its own that moves with each frame for it, as netem's
    has that sits before a node. It begins in the good state.
    """

    def __init__(self, model: RelayModel) -> None:
        self._loss = [[path.loss for path in row] for row in model.paths]
        self._random = [random.Random(f"{model.link.seed} loss {dst}").random for dst in range(model.num_nodes)]
        self._chain = model.link.burst_loss
        self._is_bad = [False] * model.num_nodes

    def become(self, model: RelayModel) -> None:
        """From now on lose what this model asks, with the same random numbers."""
        self._loss = [[path.loss for path in row] for row in model.paths]
        self._chain = model.link.burst_loss

    def is_lost(self, src: int, dst: int) -> bool:
        """Whether the next frame that reaches ``dst``, which comes from ``src``, is lost."""
        draw, chain = self._random[dst], self._chain
        if chain is None:
            return draw() < self._loss[src][dst]
        is_bad = draw() >= chain.bad_to_good if self._is_bad[dst] else draw() < chain.good_to_bad
        self._is_bad[dst] = is_bad
        return draw() < (chain.loss_in_bad if is_bad else chain.loss_in_good)


class OnDrop(Protocol[_LostT]):
    """Told of every frame that is lost: ``entered`` is False where it never got past its sender's own end of the link.

    That is where the queue there has no room for it, or where an outage has killed that end.
    """

    def __call__(self, src: int, dst: int, frame: _LostT, *, entered: bool) -> None:
        """Called once a frame."""


class AbstractSchedule(ABC, Generic[FrameT]):
    """Takes frames in, gives frames out when they are due.

    What happens between the two ends is the same on every medium: a path takes its latency with its jitter and loses
    its share of frames. Links that vary are steady at first: traces at their mean rates, no outages.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT]) -> None:
        self._model = model
        self._on_drop = on_drop
        self._latency_s = [[path.latency_s for path in row] for row in model.paths]
        moving = model.link.handover
        self._hand_overs = HandOvers(moving, model.link.seed, model.num_nodes) if moving else None
        self._delays = delays_of(model.link, model.paths, self._hand_overs) if model.has_jitter or moving else None
        self._losses = Losses(model) if model.has_loss else None
        self._outages = [
            [outage for outage in model.link.outages if outage.nodes is None or node in outage.nodes]
            for node in range(model.num_nodes)
        ]
        self._frame_bytes = model.link.full_frame.num_bytes
        self._has_outages = bool(model.link.outages)
        self._loses_on_the_way = model.has_loss or self._has_outages or self._hand_overs is not None
        self._since_s: float | None = None  # when the link began to play; None while it is steady
        self._leaving: list[tuple[float, int, int, FrameT]] = []  # heap of (due, order, dst, frame)
        self._order = 0

    @abstractmethod
    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """A frame has come from ``src`` at ``now_s``, for ``dst``; it is charged ``wire_bytes``."""

    @abstractmethod
    def advance(self, now_s: float) -> None:
        """Every frame that came before ``now_s`` has been submitted: decide what follows from them."""

    @abstractmethod
    def next_time(self) -> float:
        """When to call ``advance`` and ``pop_due`` again if nothing comes before; ``NEVER`` where nothing waits."""

    def next_due(self) -> float:
        """When the next frame is due, as far as that is decided; ``NEVER`` where nothing is."""
        return self._leaving[0][0] if self._leaving else NEVER

    @abstractmethod
    def look_ahead_s(self) -> float:
        """How long after it came the smallest frame is due at the earliest: its shortest way through the link."""

    def shortest_time_s(self, num_bytes: int) -> float:
        """How long so many bytes take on the fastest link."""
        return num_bytes * 8 / max(direction.fastest_bps for direction in (*self._model.up, *self._model.down))

    @abstractmethod
    def switch(self, now_s: float, since_s: float | None) -> None:
        """From ``now_s`` on be as a link whose traces and outages began at ``since_s``; None: as one that is steady."""

    def change(self, now_s: float, model: RelayModel) -> None:
        """From ``now_s`` on be the link of ``model``, of as many nodes on the same medium, with what is under way."""
        before, self._model = self._model, model
        self._latency_s = [[path.latency_s for path in row] for row in model.paths]
        if self._losses is not None:
            self._losses.become(model)
        elif model.has_loss:
            self._losses = Losses(model)
        if model.timing() != before.timing():  # else they go on from where they are
            delays, self._delays = self._delays, None
            if model.has_jitter or delays is not None:
                self._delays = delays_of(model.link, model.paths, self._hand_overs)
            if self._delays is not None and delays is not None:
                self._delays.follow(delays)
        self._loses_on_the_way = model.has_loss or self._has_outages or self._hand_overs is not None

    def pop_due(self, now_s: float) -> tuple[float, int, FrameT] | None:
        """The next frame that is due by ``now_s`` as (due time, dst, frame), in the order of due times."""
        if self._leaving and self._leaving[0][0] <= now_s:
            due_s, _, dst, frame = heappop(self._leaving)
            return due_s, dst, frame
        return None

    def _shortest_delay_s(self) -> float:
        """What no path undercuts."""
        return min(map(min, self._latency_s)) if self._delays is None else self._delays.shortest_s

    def _is_lost(self, src: int, dst: int, arrival_s: float) -> bool:
        """Whether a frame does not come through: by chance, or because it reaches a dead link."""
        if self._has_outages and self._is_dead(dst, arrival_s):
            return True
        if self._hand_overs is not None and self._hand_overs.is_lost(arrival_s, src, dst):
            return True
        return self._losses is not None and self._losses.is_lost(src, dst)

    def _begin(self, since_s: float | None) -> None:
        """What varies began at ``since_s``; None: it does not."""
        self._since_s = since_s
        if self._hand_overs is not None:
            self._hand_overs.since_s = since_s

    def _is_dead(self, node: int, time_s: float) -> bool:
        since_s = self._since_s
        return since_s is not None and any(outage.is_dead(time_s - since_s) for outage in self._outages[node])


def packets_of(num_bytes: int, frame_bytes: int) -> int:
    """How many packets a frame counts as: one, or as many full ones (of ``frame_bytes``) as a super-packet makes."""
    return -(-num_bytes // frame_bytes)
