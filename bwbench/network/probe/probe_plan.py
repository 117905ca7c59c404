"""What the probe sends for how long, and what it should find: pure functions of the link.

On a shared air, where everybody sends more than it can carry, these are closed forms, as all transmissions are full.

At one place every node sends to its neighbour, all at once. Between sites the lines are shared, and what each of
several streams gets of one depends on chance. So there are rounds: neighbours within their sites, then the first nodes
of all sites, each to that of another one, until every path has been measured both ways. No line has two streams at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bwbench.network.backend_choice import MOST_BYTES, super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.air import Air
from bwbench.network.link.chance import correlation_s
from bwbench.network.link.frame_sizes import UDP_HEADERS_BYTES, FullFrame
from bwbench.network.link.node_link import Path
from bwbench.network.probe.node import Flow

PING_PAYLOAD_BYTES = 32
NUM_PINGS, FEWEST_PINGS = 20, 6
THOROUGH_PINGS, THOROUGH_PINGS_S = 120, 30.0  # a deviation to 17 % (99 %), and no longer for all pairs
PINGS_PER_VALUE = 5  # of a delay that wanders
LONG_PINGS_S = 2.0  # a pair's round trips take this long before some are left out
SEQUENTIAL_PINGS_S = 0.3  # what the pairs' round trips may take one after another; beyond, some go at the same time

OVERLOAD = 1.2  # its queue never runs empty while we measure, and a link that is faster than asked is found out
RATE_FRAMES, AIR_FRAMES = 80, 40  # those of an air take turns: fewer say as much, and each takes its time
JITTERS = 200.0  # a delay that changes by the jitter from beginning to end is then half a percent
FEWEST_JITTERS = 100.0  # however long they take: slow motion makes long ones, and 1 % is what the verdict can bear
RATE_TRANSMISSIONS = 16  # of aggregated frames, which come in bursts
RATE_S = (0.4, 2.0)
SLOWEST_FRAMES = 30  # however long they take
MAX_SEGMENTS = 40  # of a super-datagram of at most 64 kB
# Datagrams of this time are handed to the kernel at once, which makes single frames of them: a sender that has a slow
# processor to share with other nodes keeps up with that.
SEGMENTS_S = 0.005

LOSS_PAYLOAD_BYTES = 200
LOSS_LOAD = 0.6  # of the link: far from the queue's limit
LOSS_LARGEST_PPS = 4000.0
LOSS_STALL_S = 0.025  # for which a queue holds these frames where a machine stops; netem's counts frames of any size
LOSS_FEWEST_PPS = 500.0
LOSS_QUICK_S = 0.15  # where no loss was asked
LOSS_LONGEST_S = 3.0
LOSS_PATIENCE_S = 0.5  # late is not lost
LOSS_FRAMES = 1000
LOSS_EXPECTED = 20  # lost frames, for an interval that says something
LOSS_THOROUGH_S = 60.0
LOSS_SLACK = 2e-3  # a frame or two lost by the machine and not by the link
LOSS_TOLD = 0.5  # a loss is told where it is known to half of itself, or to LOSS_SLACK
LOSS_TOLD_Z = 2.576  # of a 99 % interval

UNSHAPED_S = 0.3
LATE_S = 0.05  # by which frames may be late on a busy machine
FIRST_FRAMES_S = 0.03  # a burst at the beginning, so that a sender that is not scheduled for a while leaves no gap


@dataclass(frozen=True)
class NeighbourRates:
    """Rates of full frames from a node to its neighbour, in bit/s; infinite where nothing limits them.

    Attributes:
        frames_bps: what arrives while every node sends more than the link can carry; None where there is no closed
            form.
        sent_bps: what the sender gets onto the link meanwhile.
        alone_bps, alone_sent_bps: both while nobody else sends.
    """

    frames_bps: float | None
    sent_bps: float
    alone_bps: float
    alone_sent_bps: float


@dataclass(frozen=True)
class Pair(NeighbourRates, Path):
    """What the link asks of a node and its neighbour while it is steady: the path between them, and the rates.

    Attributes:
        rtt_s: round trip of a ping on the idle link: both latencies, and every serialisation on the way.
        small_s: how long a frame of the loss measurement keeps the link from others.
        queue_bytes: the smallest queue on the way.
        full: a full frame.
    """

    src: int
    dst: int
    rtt_s: float
    small_s: float
    queue_bytes: int
    full: FullFrame

    @property
    def ends(self) -> tuple[int, int]:
        """Who sends, and to whom."""
        return self.src, self.dst

    @property
    def goodput_bps(self) -> float | None:
        """UDP payload per second that arrives; frames that the link is to lose have taken their time on it."""
        limited = self.frames_bps is not None and math.isfinite(self.frames_bps)
        return self._arriving(self.frames_bps or 0.0) if limited else None

    @property
    def alone_goodput_bps(self) -> float:
        """The same while nobody else sends."""
        return self._arriving(self.alone_bps)

    def _arriving(self, frames_bps: float) -> float:
        return frames_bps * (1 - self.loss) * self.full.udp_payload_bytes / self.full.num_bytes


def rounds_of(link: Link, num_nodes: int) -> list[list[Pair]]:
    """What is measured one after another, in each round the pairs that send at the same time.

    Every node is at most once a sender and once a receiver in a round. One empty round where nothing is shaped.
    """
    if not link.shaped or num_nodes < 2:
        return [[]]
    sites = link.site_network(num_nodes)
    if sites is None:
        return [pairs_of(link, num_nodes)]
    inside = [
        (node, members[(place + 1) % len(members)])
        for members in sites.members
        for place, node in enumerate(members)
        if len(members) > 1
    ]
    first, number = [members[0] for members in sites.members], len(sites.names)
    between = [
        [(first[site], first[(site + distance) % number]) for site in range(number)] for distance in range(1, number)
    ]
    return [pairs_between(link, num_nodes, ends) for ends in (inside, *between) if ends]


def pairs_of(link: Link, num_nodes: int) -> list[Pair]:
    """Every node and its neighbour, or between sites all pairs of all rounds; empty where nothing is shaped."""
    if not link.shaped or num_nodes < 2:
        return []
    if link.sites:
        return [pair for pairs in rounds_of(link, num_nodes) for pair in pairs]
    return pairs_between(link, num_nodes, [(src, (src + 1) % num_nodes) for src in range(num_nodes)])


def pairs_between(link: Link, num_nodes: int, ends: Sequence[tuple[int, int]]) -> list[Pair]:
    """Nodes that send and those that receive, all at once: no line between sites may be on the way of two of them, and
    on a shared air they are every node and its neighbour.
    """
    small_bytes, ping_bytes = LOSS_PAYLOAD_BYTES + UDP_HEADERS_BYTES, PING_PAYLOAD_BYTES + UDP_HEADERS_BYTES
    sites = link.site_network(num_nodes)
    site_of = (0,) * num_nodes if sites is None else sites.site_of
    if link.air is not None:
        rates = air_rates(link, link.air, num_nodes)
        on_air_s = sum(_crossing_s(link, src, dst, small_bytes) for src, dst in ends)
        smalls_s = [on_air_s] * num_nodes
    else:
        lines = [min(link.node(src).up_bps, link.node(dst).down_bps) for src, dst in ends]
        if sites is not None:
            routes = [sites.route(site_of[src], site_of[dst]) for src, dst in ends]
            lines = [min([bps, *(hop.rate_bps for hop in way)]) for bps, way in zip(lines, routes, strict=True)]
        rates = [NeighbourRates(line_bps, line_bps, line_bps, line_bps) for line_bps in lines]
        smalls_s = [small_bytes * 8 / line_bps for line_bps in lines]
    found = []
    for (src, dst), rate, small_s in zip(ends, rates, smalls_s, strict=True):
        path = link.path(src, dst)
        rtt_s = _crossing_s(link, src, dst, ping_bytes) + _crossing_s(link, dst, src, ping_bytes)
        queue_bytes = min(link.node(src).up_queue_bytes, link.node(dst).down_queue_bytes)
        if sites is not None and site_of[src] != site_of[dst]:
            there, back = sites.route(site_of[src], site_of[dst]), sites.route(site_of[dst], site_of[src])
            rtt_s += sum(ping_bytes * 8 / hop.rate_bps for hop in (*there, *back))
            queue_bytes = min(queue_bytes, *(hop.queue_bytes for hop in there))
            path = sites.path(path, site_of[src], site_of[dst])
            rtt_s += sites.latency_s[site_of[dst]][site_of[src]] - sites.latency_s[site_of[src]][site_of[dst]]
        rtt_s += 2 * path.latency_s
        found.append(
            Pair(
                **vars(path),
                **vars(rate),
                src=src,
                dst=dst,
                rtt_s=rtt_s,
                small_s=small_s,
                queue_bytes=queue_bytes,
                full=link.full_frame,
            )
        )
    return found


def _crossing_s(link: Link, src: int, dst: int, frame_bytes: int) -> float:
    """What a frame by itself takes of its sender's and of its receiver's side together."""
    up_bps, down_bps = link.node(src).up_bps, link.node(dst).down_bps
    if link.air is None:
        return frame_bytes * 8 * (1 / up_bps + 1 / down_bps)
    if src in link.air.wired and dst in link.air.wired:
        return 0.0
    up_s = 0.0 if src in link.air.wired else link.air.transmission_s(frame_bytes, up_bps)
    return up_s + (0.0 if dst in link.air.wired else link.air.transmission_s(frame_bytes, down_bps))


@dataclass(frozen=True)
class Pings:
    """Round trips of one node: how many, how far apart, and no more after so long.

    Attributes:
        independent: as many as what is measured says as much as; fewer where a delay that wanders is seen often.
    """

    count: int
    every_s: float
    budget_s: float
    independent: float


def pings(pair: Pair | None, *, wanders: bool, thorough: bool, num_groups: int = 1) -> Pings:
    """The round trips that tell latency, and where ``thorough`` jitter too."""
    rtt_s, jitter_s = (pair.rtt_s, pair.jitter_s) if pair else (1e-3, 0.0)
    count = num_pings(pair)
    if not jitter_s or not (wanders or thorough):
        return Pings(count, 0.0, max(1.0, 2 * count * rtt_s), float(count))
    one_s = max(rtt_s, 2 * correlation_s(jitter_s) if wanders else 0.0)  # for one that owes nothing to the one before
    longest_s = THOROUGH_PINGS_S / num_groups if thorough else LONG_PINGS_S
    span_s = min(longest_s, (THOROUGH_PINGS if thorough else NUM_PINGS) * one_s)
    every_s = max(rtt_s, one_s / PINGS_PER_VALUE)
    count = max(count, int(span_s / every_s))
    return Pings(count, every_s, max(1.0, span_s, 2 * num_pings(pair) * rtt_s), min(count, count * every_s / one_s))


def num_pings(pair: Pair | None) -> int:
    """How many round trips to measure: fewer where each takes long, since their spread does not grow with them."""
    rtt_s = pair.rtt_s if pair else 0.0
    return max(FEWEST_PINGS, min(NUM_PINGS, int(LONG_PINGS_S / max(rtt_s, 1e-6))))


def ping_groups(pairs: Sequence[Pair], num_nodes: int, *, is_shared: bool = False) -> list[list[int]]:
    """Pairs that ping at the same time, group after group: one at a time where that is quick or the air shared.

    Args:
        num_nodes: how many pairs there are, also where nothing is shaped.
    """
    if is_shared:
        return [[node] for node in range(num_nodes)]
    each_s = max((num_pings(pair) * pair.rtt_s for pair in pairs), default=0.0)
    number = max(1, min(num_nodes, int(SEQUENTIAL_PINGS_S / each_s))) if each_s else num_nodes
    return [list(range(first, num_nodes, number)) for first in range(number)]


def rate_flows(link: Link, num_nodes: int, pairs: Sequence[Pair] | None = None) -> list[Flow]:
    """For each pair: full frames, a little more of them than the link carries. All take equally long.

    Args:
        pairs: those of a round; None is every node and its neighbour.
    """
    pairs = pairs_of(link, num_nodes) if pairs is None else pairs
    if not pairs:
        return [
            Flow(link.full_frame.udp_payload_bytes, _most_segments(link, num_nodes), None, UNSHAPED_S, 0, 1, LATE_S)
        ] * num_nodes
    return _full_frames(pairs, [pair.sent_bps for pair in pairs], link.air, _most_segments(link, num_nodes))


def alone_flow(link: Link, num_nodes: int) -> tuple[Pair, Flow] | None:
    """For a shared air: full frames of the first pair that is on it. None where the link is switched."""
    pairs = [pair for pair in pairs_of(link, num_nodes) if math.isfinite(pair.alone_bps)]
    if link.air is None or not pairs:
        return None
    most_segments = _most_segments(link, num_nodes)
    return pairs[0], _full_frames(pairs[:1], [pairs[0].alone_sent_bps], link.air, most_segments)[0]


def loss_told(asked: float) -> float:
    """How far from the loss that was asked the interval of a measured one may reach, for a verdict on it."""
    return max(LOSS_TOLD * asked, LOSS_SLACK)


def frames_to_tell(asked: float, dependence: float = 1.0) -> int:
    """Frames after which the interval around the measured loss is that narrow, in all but unlucky cases."""
    deviations = LOSS_TOLD_Z + 3  # half the interval, and what chance takes off the measured loss at most
    return math.ceil(dependence * deviations**2 * max(asked, LOSS_SLACK) * (1 - asked) / loss_told(asked) ** 2)


def loss_flows(
    link: Link, num_nodes: int, pairs: Sequence[Pair] | None = None, *, thorough: bool = False
) -> list[Flow] | None:
    """For each pair: small frames, far fewer than the link carries; None where nothing is shaped.

    Args:
        pairs: see ``rate_flows``.
        thorough: as many frames as tell the loss that was asked, for up to ``LOSS_THOROUGH_S``.
    """
    pairs = pairs_of(link, num_nodes) if pairs is None else pairs
    if not pairs:
        return None
    rates = []
    for pair in pairs:
        by_queue = max(LOSS_FEWEST_PPS, pair.queue_bytes // pair.full.num_bytes / LOSS_STALL_S)
        by_link = LOSS_LOAD / pair.small_s if pair.small_s else LOSS_LARGEST_PPS
        rates.append(min(LOSS_LARGEST_PPS, by_queue, by_link))
    duration_s = LOSS_QUICK_S
    for pair, pps in zip(pairs, rates, strict=True):
        if thorough and pair.loss:
            wanted_s = frames_to_tell(pair.loss, 2 * (link.loss_burst or 1.0) - 1) / pps
            duration_s = max(duration_s, min(LOSS_THOROUGH_S, wanted_s))
        elif pair.loss:
            wanted_s = max(LOSS_FRAMES, LOSS_EXPECTED / pair.loss) / pps
            duration_s = max(duration_s, min(LOSS_LONGEST_S, wanted_s))
    flows = []
    for pair, pps in zip(pairs, rates, strict=True):
        catch_up = max(1, pair.queue_bytes // pair.full.num_bytes // 4)
        queue_s = min(0.5, pair.queue_bytes * 8 / pair.sent_bps)
        listen_s = pair.latency_s + 4 * pair.jitter_s + queue_s + LOSS_PATIENCE_S
        flows.append(Flow(LOSS_PAYLOAD_BYTES, 1, pps, duration_s, 0, catch_up, listen_s))
    return flows


def thorough_s(link: Link, num_nodes: int) -> float:
    """About how long a thorough measurement of a shaped link takes."""
    total_s = 0.0
    for pairs in rounds_of(link, num_nodes):
        flows = loss_flows(link, num_nodes, pairs, thorough=True) or []
        groups = ping_groups(pairs, len(pairs), is_shared=link.medium == "shared")
        each = [pings(pair, wanders=link.wanders, thorough=True, num_groups=len(groups)) for pair in pairs]
        pings_s = max(plan.count * max(plan.every_s, pair.rtt_s) for plan, pair in zip(each, pairs, strict=True))
        rates_s = max(flow.duration_s for flow in rate_flows(link, num_nodes, pairs))
        total_s += len(groups) * pings_s + max(flow.duration_s for flow in flows) + rates_s
    return total_s


def drain_s(link: Link, flows: Sequence[Flow], pairs: Sequence[Pair] | None = None) -> float:
    """How long what flows sent too much goes on arriving after their end; ``pairs`` as in ``rate_flows``."""
    pairs = pairs_of(link, len(flows)) if pairs is None else pairs
    sent_bytes = [
        (flow.burst + flow.datagrams_per_s * flow.duration_s) * link.full_frame.num_bytes
        for flow in flows
        if flow.datagrams_per_s is not None
    ]
    if link.air is not None:  # once nobody sends any more, the air empties all queues one after another
        # A station's crosses twice, the other once; a managed queue has room for far more than was sent.
        waiting_bits = 8 * 3 * min(sum(pair.queue_bytes for pair in pairs), sum(sent_bytes))
        return waiting_bits / link.air.capacity_bps(min(link.node(pair.src).up_bps for pair in pairs))
    # What is too much waits in the sender's queue and in one at the receiver's side.
    queued_s = [
        min(num_bytes * (1 - 1 / OVERLOAD), 2 * pair.queue_bytes) * 8 / (pair.frames_bps or pair.sent_bps)
        for pair, num_bytes in zip(pairs, sent_bytes, strict=False)
    ]
    return max(queued_s, default=0.0)


def _most_segments(link: Link, num_nodes: int) -> int:
    """Of a super-datagram. Where packets travel as super-packets, as many as one of those holds: of a larger one the
    kernel makes single frames, which a link so fast has no time for.
    """
    largest_bytes = super_packet_bytes(link, num_nodes) or MOST_BYTES
    return max(1, min(MAX_SEGMENTS, (largest_bytes - UDP_HEADERS_BYTES) // link.full_frame.udp_payload_bytes))


def _full_frames(pairs: Sequence[Pair], rates_bps: Sequence[float], air: Air | None, most_segments: int) -> list[Flow]:
    is_air, aggregation = air is not None, air.aggregation if air else 1
    shortest_s, longest_s = RATE_S
    slowest_s = max(pair.full.num_bytes * 8 / (pair.frames_bps or pair.sent_bps) for pair in pairs)
    wanted = max(AIR_FRAMES if is_air else RATE_FRAMES, RATE_TRANSMISSIONS * aggregation)
    jitter_s = max(pair.jitter_s for pair in pairs)
    shortest_s = max(shortest_s, JITTERS * jitter_s)
    longest_s = max(longest_s, SLOWEST_FRAMES * slowest_s, FEWEST_JITTERS * jitter_s)
    duration_s = min(max(wanted * slowest_s, shortest_s), longest_s)
    listen_s = max(pair.latency_s + 4 * pair.jitter_s for pair in pairs) + LATE_S
    flows = []
    for pair, rate_bps in zip(pairs, rates_bps, strict=True):
        frame_s = pair.full.num_bytes * 8 / rate_bps
        if not frame_s:  # between two wired nodes: left out
            flows.append(Flow(pair.full.udp_payload_bytes, 1, 0.0, duration_s, 0, 1, listen_s))
            continue
        queue_frames = pair.queue_bytes // pair.full.num_bytes
        segments = max(1, min(most_segments, int(SEGMENTS_S / frame_s), queue_frames // 4))
        burst = int(min(queue_frames / 2, FIRST_FRAMES_S / frame_s))
        # A slice would have too few frames to tell how many are lost or how late they are, or too few transmissions.
        max_slices = 1 if pair.loss or pair.jitter_s or aggregation > 1 else 10
        catch_up, pps = max(2, queue_frames), OVERLOAD / frame_s
        flows.append(
            Flow(pair.full.udp_payload_bytes, segments, pps, duration_s, burst, catch_up, listen_s, max_slices)
        )
    return flows


def air_rates(link: Link, air: Air, num_nodes: int) -> list[NeighbourRates]:
    """For each node and its neighbour; infinite between two wired nodes.

    Packet fairness: in a round every station makes one transmission and the access point one, to each station in its
    turn. So each of N stations has N times as much on the air as the access point passes on for it: the starvation of
    access points that send no more often than anyone else. Airtime fairness: every queue, the stations' and those
    of the access point, has the same time.
    """
    stations = {node: link.node(node).up_bps for node in range(num_nodes) if node not in air.wired}
    full_s = {node: air.full_s(phy_bps) for node, phy_bps in stations.items()}
    # Every station sends, and the access point has a frame for every station.
    round_s = sum(full_s.values()) * (1 + 1 / len(stations))
    turn_s = {node: round_s if air.fairness == "packet" else 2 * len(stations) * full_s[node] for node in stations}
    rates = []
    for src in range(num_nodes):
        dst = (src + 1) % num_nodes
        if src not in stations and dst not in stations:
            rates.append(NeighbourRates(math.inf, math.inf, math.inf, math.inf))
            continue
        passed_bps = sent_bps = math.inf
        if src in stations:
            sent_bps = _full_bits(air, stations[src]) / turn_s[src]
        if dst in stations:
            passed_bps = _full_bits(air, stations[dst]) / turn_s[dst]
            passed_bps /= len(stations) if air.fairness == "packet" else 1
        # What the access point does not need for one station goes to the others, in turn: no closed form.
        all_bps = None if sent_bps < passed_bps < math.inf else min(passed_bps, sent_bps)
        alone = _alone(air, stations.get(src), stations.get(dst))
        rates.append(NeighbourRates(all_bps, sent_bps if src in stations else passed_bps, *alone))
    if any(rate.frames_bps is None for rate in rates):
        return [replace(rate, frames_bps=None) for rate in rates]
    return rates


def _alone(air: Air, up_bps: float | None, down_bps: float | None) -> tuple[float, float]:
    """What arrives and what is sent where one node sends alone, through the access point or from or to its wire."""
    if up_bps is None or down_bps is None:
        rate_bps = air.capacity_bps(up_bps or down_bps or math.inf)
        return rate_bps, rate_bps
    up_bits, down_bits, up_s = _full_bits(air, up_bps), _full_bits(air, down_bps), air.full_s(up_bps)
    passed_bits = min(up_bits, down_bits)
    down_s = air.transmission_s(passed_bits / 8, down_bps)
    if air.fairness == "packet" or down_s <= up_s:  # who needs less than half of the time leaves the rest
        return passed_bits / (up_s + down_s), up_bits / (up_s + down_s)
    return down_bits / air.full_s(down_bps) / 2, up_bits / up_s / 2


def _full_bits(air: Air, phy_bps: float) -> float:
    return air.most_frames(phy_bps) * air.frame_bytes * 8
