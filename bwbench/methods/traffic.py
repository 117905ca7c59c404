"""What a method puts on the network in one optimizer step, and how long a link takes for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from typing import Literal

from bwbench.network.link import Link
from bwbench.network.link.cross_traffic import left_bps
from bwbench.network.link.frame_sizes import ACK_FRAME_BYTES, FullFrame
from bwbench.network.link.node_link import NodeLink, path_between
from bwbench.network.link.site_network import SiteNetwork

GLOO_HEADER_BYTES = 48  # before each message; and twice in a frame of its own, since both sides say that they are ready
# To whom each rank of a group sends: to the next of them, to the next and to the one before, to the busiest and that to
# all others, or to all others alike.
Peers = Literal["next", "neighbours", "hub", "all"]
Way = tuple[int, int, float]  # from which rank to which, and how many bytes
SEGMENTS_PER_ACK = 2  # TCP delays acknowledgements to one in two full segments


def ack_per_payload(full: FullFrame) -> float:
    """Bytes of acknowledgements to a byte of payload."""
    return ACK_FRAME_BYTES / SEGMENTS_PER_ACK / full.tcp_payload_bytes


@dataclass(frozen=True)
class Traffic:
    """Payload bytes of one step and how many times the ranks wait for one another.

    Attributes:
        payload_bytes_per_rank: bytes that each rank sends, without any header; length N.
        received_bytes_per_rank: bytes that each rank receives; length N. The sums of both are equal.
        rounds: messages that follow one another, each delayed by the link's one-way latency; over all buckets. A
            fraction where an algorithm does not exchange in every step.
        serial_bytes: those bytes that the busiest rank of a group sends to all others of it and that cannot overlap
            with its own other direction, because it must have received them before it sends them on, e.g. the last
            segment of a parameter server. 0 where every rank sends and receives at the same time all along, as in a
            ring.
        messages: that carry the payload, sent by all ranks together: each costs headers of its own. 0 where a method
            does not say.
        in_background: sent while the nodes compute, over whole steps: it lengthens a step only where it takes longer.
        peers: to whom; between sites it decides which lines carry it. A ring's rounds go from each to the ``next``.
        groups: who exchange with one another, each group by itself and all at the same time. A rank in several of them
            sends as much in each. None where all that send anything are one group.
    """

    payload_bytes_per_rank: tuple[float, ...]
    received_bytes_per_rank: tuple[float, ...]
    rounds: float
    serial_bytes: float = 0.0
    in_background: bool = False
    messages: float = 0.0
    peers: Peers = "all"
    groups: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def none(cls, num_nodes: int) -> Traffic:
        """Nothing crosses the link."""
        return cls((0.0,) * num_nodes, (0.0,) * num_nodes, 0)

    def scaled(self, factor: float) -> Traffic:
        """This traffic times ``factor``: 1/H for what happens every H steps."""
        return replace(
            self,
            payload_bytes_per_rank=tuple(factor * size for size in self.payload_bytes_per_rank),
            received_bytes_per_rank=tuple(factor * size for size in self.received_bytes_per_rank),
            rounds=factor * self.rounds,
            serial_bytes=factor * self.serial_bytes,
            messages=factor * self.messages,
        )

    def plus(self, other: Traffic) -> Traffic:
        """This traffic and another between the same ranks, one after the other."""
        said = all(traffic.messages or not traffic.total_bytes for traffic in (self, other))
        return replace(
            self,
            payload_bytes_per_rank=added(self.payload_bytes_per_rank, other.payload_bytes_per_rank),
            received_bytes_per_rank=added(self.received_bytes_per_rank, other.received_bytes_per_rank),
            rounds=self.rounds + other.rounds,
            serial_bytes=self.serial_bytes + other.serial_bytes,
            messages=self.messages + other.messages if said else 0.0,
        )

    @property
    def total_bytes(self) -> float:
        """Payload sent by all ranks together."""
        return sum(self.payload_bytes_per_rank)

    def ways(self) -> list[list[Way]]:
        """Who sends how much to whom, by group."""
        found = []
        for group in self._sent_in_groups():
            ranks, hub = list(group), max(group, key=group.__getitem__)
            ways: list[Way] = []
            for place, (rank, size) in enumerate(group.items()):
                if self.peers in ("next", "neighbours"):
                    distances = (1,) if self.peers == "next" else (1, -1)
                    others = dict.fromkeys(ranks[(place + distance) % len(ranks)] for distance in distances)
                else:
                    others = dict.fromkeys(ranks if self.peers == "all" or rank == hub else (hub,))
                others.pop(rank, None)
                ways += [(rank, other, size / len(others)) for other in others]
            found.append(ways)
        return found

    def serial_ways(self) -> list[Way]:
        """What of this the busiest rank of each group sends to all others when it has received everything."""
        found: list[Way] = []
        for group in self._sent_in_groups() if self.serial_bytes else ():
            hub = max(group, key=group.__getitem__)
            found += [(hub, other, self.serial_bytes / (len(group) - 1)) for other in group if other != hub]
        return found

    def _sent_in_groups(self) -> list[dict[int, float]]:
        """Bytes of each rank in each group, in the order of its members."""
        sizes = self.payload_bytes_per_rank
        everyone = range(len(sizes))
        groups = self.groups or ([rank for rank in everyone if sizes[rank] > 0] or everyone,)
        shares = Counter(rank for group in groups for rank in group)
        return [{rank: sizes[rank] / shares[rank] for rank in group} for group in groups]


def added(*per_rank: Sequence[float]) -> tuple[float, ...]:
    """Bytes of each rank, of several exchanges together."""
    return tuple(map(sum, zip(*per_rank, strict=True)))


def wire_bytes(traffic: Traffic, full: FullFrame) -> float:
    """Bytes of the frames that carry one step's payload, of all ranks together; without acknowledgements.

    What a message of gloo's costs beside its payload, some 300 bytes, is most of it where messages are small
    (docs/algorithms/bytes.md). All are taken to be equally long, and none is sent twice.
    """
    if not traffic.messages:
        return traffic.total_bytes * full.wire_per_payload
    message = traffic.total_bytes / traffic.messages + GLOO_HEADER_BYTES
    headers = full.num_bytes - full.tcp_payload_bytes
    in_frames = message + headers * math.ceil(message / full.tcp_payload_bytes)
    return traffic.messages * (in_frames + 2 * (GLOO_HEADER_BYTES + headers))


def transfer_time_s(link: Link, traffic: Traffic, *, beside_others: bool = False) -> float:
    """Seconds that one step's messages take on the link; 0 on an unshaped one.

    ``medium: switched``: the direction that takes longest of any node, with the acknowledgements of what comes the
    other way, plus what cannot overlap; between sites also each of the lines that nodes share. ``medium: shared``: the
    airtime of all frames of all nodes, acknowledgements too, up to the access point and down again, in full
    transmissions, as TCP was measured to send them. Rates that change count by their mean.

    Args:
        beside_others: of each rate counts what the link's cross traffic leaves of it in mean.
    """
    if not link.shaped:
        return 0.0
    pairs = list(zip(traffic.payload_bytes_per_rank, traffic.received_bytes_per_rank, strict=True))
    nodes, sites = link.nodes(len(pairs)), link.site_network(len(pairs))
    if beside_others and link.cross_traffic:
        nodes = tuple(_beside_others(link, number, node) for number, node in enumerate(nodes))
    sending_s, full = 0.0, link.full_frame
    if link.air is not None:
        stations = [number for number in range(len(pairs)) if number not in link.air.wired]
        for number in stations:
            (sent, received), phy_bps = pairs[number], nodes[number].up_bps
            frame_s, ack_s = (link.air.frame_s(size, phy_bps) for size in (full.num_bytes, ACK_FRAME_BYTES))
            frames = (sent + received) / full.tcp_payload_bytes
            sending_s += frames * (frame_s + ack_s / SEGMENTS_PER_ACK)
    else:
        serial_s = traffic.serial_bytes * full.wire_per_payload * 8 / min(node.slowest_bps for node in nodes)
        busiest_s = max(
            max(_line_s(full, sent, received, node.up_bps), _line_s(full, received, sent, node.down_bps))
            for node, (sent, received) in zip(nodes, pairs, strict=True)
        )
        if sites is not None:
            serial_s = max(serial_s, _slowest_line_s(full, traffic.serial_ways(), sites))
            busiest_s = max(busiest_s, _slowest_line_s(full, chain.from_iterable(traffic.ways()), sites))
        sending_s = serial_s + busiest_s
    return float(sending_s + waiting_time_s(link, traffic))


def _beside_others(link: Link, number: int, node: NodeLink) -> NodeLink:
    """The link of a node with the rates that cross traffic leaves of it."""
    up_bps, down_bps = (
        left_bps(link.cross_traffic, number, direction, rate_bps)
        for direction, rate_bps in (("up", node.up_bps), ("down", node.down_bps))
    )
    return replace(node, up_bps=up_bps, down_bps=down_bps)


def waiting_time_s(link: Link, traffic: Traffic) -> float:
    """Seconds of a step that its rounds wait for the link's latency alone; 0 on an unshaped one.

    Every round takes as long as the farthest two nodes are apart. In a ring of nodes at several sites what is passed on
    has crossed some long ways and some short ones when it has gone round: there a round takes their mean.
    """
    if not link.shaped or not traffic.rounds:
        return 0.0
    num_nodes = len(traffic.payload_bytes_per_rank)
    nodes, sites = link.nodes(num_nodes), link.site_network(num_nodes)
    if sites is None:
        kinds = permutations(nodes, 2)
        return float(traffic.rounds * max((path_between(src, dst).latency_s for src, dst in kinds), default=0.0))
    paths, longest_s = sites.paths_among(nodes), 0.0
    for ways in traffic.ways():
        latencies_s = [paths[src][dst].latency_s for src, dst, _ in ways] or [0.0]
        mean_s = sum(latencies_s) / len(latencies_s)
        longest_s = max(longest_s, mean_s if traffic.peers == "next" else max(latencies_s))
    return float(traffic.rounds * longest_s)


def _slowest_line_s(full: FullFrame, ways: Iterable[Way], sites: SiteNetwork) -> float:
    """Seconds of the line between sites that takes longest, with the acknowledgements of what comes the other way."""
    number, site_of = len(sites.names), sites.site_of
    sent = [[0.0] * number for _ in sites.names]  # bytes between sites, [src][dst]
    for src, dst, num_bytes in ways:
        if site_of[src] != site_of[dst]:
            sent[site_of[src]][site_of[dst]] += num_bytes
    times_s = [0.0]
    for site in range(number):
        out, into = sum(sent[site]), sum(row[site] for row in sent)
        for line, there, back in ((sites.up[site], out, into), (sites.down[site], into, out)):
            if line is not None:
                times_s.append(_line_s(full, there, back, line.rate_bps))
    for src, dst in sites.pairs:
        if (line := sites.paths[src][dst]) is not None:
            times_s.append(_line_s(full, sent[src][dst], sent[dst][src], line.rate_bps))
    return max(times_s)


def _line_s(full: FullFrame, data_bytes: float, back_bytes: float, rate_bps: float) -> float:
    """What one direction of a node's own line takes: payload, and the acknowledgements of what came the other way."""
    return (data_bytes * full.wire_per_payload + back_bytes * ack_per_payload(full)) * 8 / rate_bps
