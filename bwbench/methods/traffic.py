"""What a method puts on the network in one optimizer step, and how long a link takes for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from bwbench.network.link import Link
from bwbench.network.link.frame_sizes import ACK_FRAME_BYTES, FullFrame
from bwbench.network.link.node_link import path_between
from bwbench.network.link.site_network import SiteNetwork

GLOO_HEADER_BYTES = 48  # before each message; and twice in a frame of its own, since both sides say that they are ready
# To whom each rank that sends anything sends it: to the next of them, to the next and to the one before, to the busiest
# and that to all others, or to all others alike.
Peers = Literal["next", "neighbours", "hub", "all"]
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
        serial_bytes: those bytes of the busiest rank that cannot overlap with its own other direction, because it must
            have received them before it sends them on, e.g. the last bucket of a parameter server. 0 where every rank
            sends and receives at the same time all along, as in a ring.
        messages: that carry the payload, sent by all ranks together: each costs headers of its own. 0 where a method
            does not say.
        in_background: sent while the nodes compute, over whole steps: it lengthens a step only where it takes longer.
        peers: to whom; between sites it decides which lines carry it. A ring's rounds go from each to the ``next``.
    """

    payload_bytes_per_rank: tuple[float, ...]
    received_bytes_per_rank: tuple[float, ...]
    rounds: float
    serial_bytes: float = 0.0
    in_background: bool = False
    messages: float = 0.0
    peers: Peers = "all"

    @classmethod
    def none(cls, num_nodes: int) -> Traffic:
        """Nothing crosses the link."""
        return cls((0.0,) * num_nodes, (0.0,) * num_nodes, 0)

    def scaled(self, factor: float) -> Traffic:
        """This traffic times ``factor``: 1/H for what happens every H steps."""
        sent = tuple(factor * size for size in self.payload_bytes_per_rank)
        received = tuple(factor * size for size in self.received_bytes_per_rank)
        rounds, serial, messages = (factor * value for value in (self.rounds, self.serial_bytes, self.messages))
        return Traffic(sent, received, rounds, serial, self.in_background, messages, self.peers)

    def plus(self, other: Traffic) -> Traffic:
        """This traffic and another, one after the other."""
        sent = tuple(map(sum, zip(self.payload_bytes_per_rank, other.payload_bytes_per_rank, strict=True)))
        received = tuple(map(sum, zip(self.received_bytes_per_rank, other.received_bytes_per_rank, strict=True)))
        rounds, serial_bytes = self.rounds + other.rounds, self.serial_bytes + other.serial_bytes
        said = all(traffic.messages or not traffic.total_bytes for traffic in (self, other))
        messages = self.messages + other.messages if said else 0.0
        return Traffic(sent, received, rounds, serial_bytes, self.in_background, messages, self.peers)

    @property
    def total_bytes(self) -> float:
        """Payload sent by all ranks together."""
        return sum(self.payload_bytes_per_rank)

    @property
    def busiest_bytes(self) -> float:
        """The most that one direction of one node's link carries."""
        return max((*self.payload_bytes_per_rank, *self.received_bytes_per_rank), default=0.0)


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


def transfer_time_s(link: Link, traffic: Traffic) -> float:
    """Seconds that one step's messages take on the link; 0 on an unshaped one.

    ``medium: switched``: the direction that takes longest of any node, with the acknowledgements of what comes the
    other way, plus what cannot overlap; between sites also each of the lines that nodes share. ``medium: shared``: the
    airtime of all frames of all nodes, acknowledgements too, up to the access point and down again. Rates that change
    count by their mean.
    """
    if not link.shaped:
        return 0.0
    pairs = list(zip(traffic.payload_bytes_per_rank, traffic.received_bytes_per_rank, strict=True))
    nodes, sites = link.nodes(len(pairs)), link.site_network(len(pairs))
    sending_s, full = 0.0, link.full_frame
    if link.air is not None:
        stations = [number for number in range(len(pairs)) if number not in link.air.wired]
        for number in stations:
            (sent, received), phy_bps = pairs[number], nodes[number].up_bps
            up_s, down_s = link.air.contended_overhead_s(len(stations), phy_bps)
            sending_s += _airtime_s(full, sent, phy_bps, up_s, down_s)
            sending_s += _airtime_s(full, received, phy_bps, down_s, up_s)
    else:
        sending_s = traffic.serial_bytes * full.wire_per_payload * 8 / min(node.slowest_bps for node in nodes)
        busiest_s = max(
            max(_line_s(full, sent, received, node.up_bps), _line_s(full, received, sent, node.down_bps))
            for node, (sent, received) in zip(nodes, pairs, strict=True)
        )
        sending_s += busiest_s if sites is None else max(busiest_s, _between_sites_s(full, traffic, sites))
    return float(sending_s + waiting_time_s(link, traffic))


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
    paths, active = sites.paths_among(nodes), _active(traffic)
    if traffic.peers in ("next", "neighbours"):
        latencies_s = [paths[src][dst].latency_s for src, dst in zip(active, [*active[1:], *active[:1]], strict=True)]
        return float(traffic.rounds * (sum(latencies_s) / len(active) if traffic.peers == "next" else max(latencies_s)))
    return float(traffic.rounds * max(paths[src][dst].latency_s for src, dst in permutations(active, 2)))


def _active(traffic: Traffic) -> list[int]:
    """Ranks that send; all where nobody sends anything."""
    sizes = traffic.payload_bytes_per_rank
    return [rank for rank, size in enumerate(sizes) if size > 0] or list(range(len(sizes)))


def _between_sites_s(full: FullFrame, traffic: Traffic, sites: SiteNetwork) -> float:
    """Seconds of the line between sites that takes longest, with the acknowledgements of what comes the other way."""
    sent, number = bytes_between_sites(traffic, sites), len(sites.names)
    times_s = [0.0]
    for site in range(number):
        out = sum(sent[site][other] for other in range(number) if other != site)
        into = sum(sent[other][site] for other in range(number) if other != site)
        for line, there, back in ((sites.up[site], out, into), (sites.down[site], into, out)):
            if line is not None:
                times_s.append(_line_s(full, there, back, line.rate_bps))
    for src, dst in sites.pairs:
        if (line := sites.paths[src][dst]) is not None:
            times_s.append(_line_s(full, sent[src][dst], sent[dst][src], line.rate_bps))
    return max(times_s)


def bytes_between_sites(traffic: Traffic, sites: SiteNetwork) -> list[list[float]]:
    """Payload that the nodes of each site send to those of each, ``[src][dst]``, by whom each rank sends to."""
    number, site_of, sizes = len(sites.names), sites.site_of, traffic.payload_bytes_per_rank
    sent = [[0.0] * number for _ in range(number)]
    active = _active(traffic)
    if len(active) < 2:
        return sent
    if traffic.peers in ("next", "neighbours"):
        shares = {1: 1.0} if traffic.peers == "next" or len(active) == 2 else {1: 0.5, -1: 0.5}
        for place, rank in enumerate(active):
            for distance, share in shares.items():
                sent[site_of[rank]][site_of[active[(place + distance) % len(active)]]] += share * sizes[rank]
        return sent
    hub = max(active, key=lambda rank: sizes[rank]) if traffic.peers == "hub" else None
    counts = [sum(site_of[rank] == site for rank in active) for site in range(number)]
    for rank in active:
        if hub is not None and rank != hub:
            sent[site_of[rank]][site_of[hub]] += sizes[rank]
            continue
        for site, count in enumerate(counts):
            sent[site_of[rank]][site] += sizes[rank] * (count - (site == site_of[rank])) / (len(active) - 1)
    return sent


def inside_time_s(link: Link, traffic: Traffic) -> float:
    """Seconds that one step's messages within the sites take, before and after those between them."""
    if not link.shaped or not link.sites:
        return 0.0
    slowest_bps = min(node.slowest_bps for node in link.nodes(len(traffic.payload_bytes_per_rank)))
    serial_s = traffic.serial_bytes * link.full_frame.wire_per_payload * 8 / slowest_bps
    return float(serial_s + traffic.rounds * link.latency_s)


def _line_s(full: FullFrame, data_bytes: float, back_bytes: float, rate_bps: float) -> float:
    """What one direction of a node's own line takes: payload, and the acknowledgements of what came the other way."""
    return (data_bytes * full.wire_per_payload + back_bytes * ack_per_payload(full)) * 8 / rate_bps


def _airtime_s(full: FullFrame, data_bytes: float, rate_bps: float, overhead_s: float, ack_overhead_s: float) -> float:
    """What payload between a station and the access point takes of the air, with the acknowledgements coming back."""
    frames = data_bytes / full.tcp_payload_bytes
    frame_s = overhead_s + full.num_bytes * 8 / rate_bps
    return frames * (frame_s + (ack_overhead_s + ACK_FRAME_BYTES * 8 / rate_bps) / SEGMENTS_PER_ACK)
