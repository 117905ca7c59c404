"""The switched link between sites: what leaves its site crosses lines that others share, one after another.

Within a site all is as on a switched link. Between two sites a frame waits and is serialised at its node's uplink, at
its site's line up, and on the path to the other site; takes the latency of all that; then at the other site's line
down, and at the receiver's downlink. A line that is missing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bwbench.network.link.site_network import SharedLine, SiteNetwork
from bwbench.network.relay.schedule import Direction, FrameT, OnDrop, RelayModel
from bwbench.network.relay.switched import Retimed, SwitchedSchedule, bottleneck

Take = Callable[[float, int], float | None]  # of a bottleneck


@dataclass(frozen=True)
class Hop:
    """A line on the way between two sites; all routes that use it have the same ``take``."""

    take: Take
    rate_bps: float


@dataclass(frozen=True)
class Route:
    """The lines from one site to another.

    Attributes:
        before: those that a frame meets before its latency, in their order.
        after: the other site's line down; None where it has none.
    """

    before: tuple[Hop, ...]
    after: Hop | None


class RoutedSchedule(SwitchedSchedule[FrameT]):
    """Sites whose nodes share the lines to the outside, each with a drop-tail queue before it.

    Every line serves frames in the order in which they reach it, whoever sent them. A super-packet goes on to the next
    line while its last segments are still on the one before. Lost by chance, or in an outage, is a frame where it
    reaches its receiver's own link: it has used all lines before.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT]) -> None:
        super().__init__(model, on_drop)
        if model.sites is None:
            raise ValueError("this link has no sites")
        self._site_of = model.sites.site_of
        self._routes = _routes(model.sites, self._frame_bytes)
        # Heaps of (arrival at the line, order, number of the line on the route, src, dst, wire_bytes, frame, when it
        # was sent before), of lines before the latency; and of (arrival at the site's line down, order, src, dst, …).
        self._outbound: list[tuple[float, int, int, int, int, int, FrameT, float]] = []
        self._inbound: list[tuple[float, int, int, int, int, FrameT]] = []
        # What reaches a line before the latency matters to nobody before so much later: no wake-up of its own. Where
        # rates may change it is looked at in time.
        self._early_s = 0.0 if model.varies else self._shortest_outside_s(model)

    def _shortest_outside_s(self, model: RelayModel) -> float:
        """What no way between two sites undercuts."""
        if self._delays is not None:
            return self._shortest_delay_s()
        pairs = [(src, dst) for src in range(model.num_nodes) for dst in range(model.num_nodes)]
        return min(self._latency_s[src][dst] for src, dst in pairs if self._site_of[src] != self._site_of[dst])

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        here, there = self._site_of[src], self._site_of[dst]
        if here == there:
            super().submit(now_s, src, dst, wire_bytes, frame)
            return
        if self._has_outages and self._is_dead(src, now_s):
            self._on_drop(src, dst, frame, entered=False)
            return
        sent_s = self._take_up[src](now_s, wire_bytes)
        if sent_s is None:
            self._on_drop(src, dst, frame, entered=False)
            return
        first = self._routes[here][there].before[0]
        arrival_s = sent_s - self._overlap_s(wire_bytes, self._model.up[src].fastest_bps, first.rate_bps)
        self._order = order = self._order + 1
        heappush(self._outbound, (arrival_s, order, 0, src, dst, wire_bytes, frame, sent_s))

    def change(self, now_s: float, model: RelayModel) -> None:
        """See the base class; the lines between sites stay as they are."""
        super().change(now_s, model)
        self._early_s = 0.0 if model.varies else self._shortest_outside_s(model)

    def advance(self, now_s: float) -> None:
        """See the base class."""
        outbound, inbound = self._outbound, self._inbound
        while outbound and outbound[0][0] <= now_s:
            self._next_line(*heappop(outbound))
        # Nothing that comes later can be at a line down before: see the base class.
        horizon_s = now_s + self._settled_s
        while inbound and inbound[0][0] <= horizon_s:
            arrival_s, order, src, dst, wire_bytes, frame = heappop(inbound)
            line = self._routes[self._site_of[src]][self._site_of[dst]].after
            assert line is not None
            sent_s = line.take(arrival_s, wire_bytes)
            if sent_s is None:
                self._on_drop(src, dst, frame, entered=True)
                continue
            self._reach_node(sent_s, line.rate_bps, order, src, dst, wire_bytes, frame)
        super().advance(now_s)

    def _next_line(
        self, at_s: float, order: int, number: int, src: int, dst: int, wire_bytes: int, frame: FrameT, _: float
    ) -> None:
        """A frame is at a line before the latency: it is sent on, or finds no room."""
        route = self._routes[self._site_of[src]][self._site_of[dst]]
        line = route.before[number]
        sent_s = line.take(at_s, wire_bytes)
        if sent_s is None:
            self._on_drop(src, dst, frame, entered=True)
            return
        if number + 1 < len(route.before):
            arrival_s = sent_s - self._overlap_s(wire_bytes, line.rate_bps, route.before[number + 1].rate_bps)
            heappush(self._outbound, (arrival_s, order, number + 1, src, dst, wire_bytes, frame, sent_s))
            return
        delays = self._delays
        arrival_s = sent_s + self._latency_s[src][dst] if delays is None else delays.arrival_s(sent_s, src, dst)
        if route.after is None:
            self._reach_node(arrival_s, line.rate_bps, order, src, dst, wire_bytes, frame)
            return
        arrival_s -= self._overlap_s(wire_bytes, line.rate_bps, route.after.rate_bps)
        heappush(self._inbound, (arrival_s, order, src, dst, wire_bytes, frame))

    def _reach_node(
        self, sent_s: float, rate_bps: float, order: int, src: int, dst: int, wire_bytes: int, frame: FrameT
    ) -> None:
        """A frame is on its way into the receiver's downlink, from a line of that rate."""
        arrival_s = sent_s - self._overlap_s(wire_bytes, rate_bps, self._model.down[dst].fastest_bps)
        # Whatever its node's uplink does from now on, it has left that: sent at the beginning of time.
        heappush(self._crossing, (arrival_s, order, src, dst, wire_bytes, frame, 0.0))

    def _overlap_s(self, wire_bytes: int, one_bps: float, other_bps: float) -> float:
        """How much of a super-packet's time on one line it spends on the next as well: all segments but one."""
        more_bytes = wire_bytes - self._frame_bytes
        return more_bytes * 8 / max(one_bps, other_bps) if more_bytes > 0 else 0.0

    def next_time(self) -> float:
        """See the base class."""
        next_s = super().next_time()
        if self._inbound:
            next_s = min(next_s, self._inbound[0][0])
        if self._outbound:
            next_s = min(next_s, self._outbound[0][0] + self._early_s)
        return next_s

    def _retime(self, up: Sequence[Retimed], down: Sequence[Retimed]) -> None:
        """See the base class; the lines between sites never change."""
        super()._retime(up, down)
        waiting, self._outbound = self._outbound, []
        for at_s, order, number, src, dst, wire_bytes, frame, before_s in waiting:
            sent_s = up[src](before_s) if number == 0 else before_s
            heappush(self._outbound, (at_s + sent_s - before_s, order, number, src, dst, wire_bytes, frame, sent_s))


def _routes(sites: SiteNetwork, frame_bytes: int) -> list[list[Route]]:
    """Of every pair of sites; nobody asks for that of a site with itself."""

    def hop(line: SharedLine | None) -> Hop | None:
        if line is None:
            return None
        direction = Direction(line.rate_bps, line.queue_bytes, line.queue_packets)
        return Hop(bottleneck(direction, frame_bytes).take, line.rate_bps)

    up, down = [hop(line) for line in sites.up], [hop(line) for line in sites.down]
    paths = [[hop(line) for line in row] for row in sites.paths]
    number = len(sites.names)
    return [
        [Route(tuple(one for one in (up[src], paths[src][dst]) if one is not None), down[dst]) for dst in range(number)]
        for src in range(number)
    ]
