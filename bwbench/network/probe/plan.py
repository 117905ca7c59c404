"""What the probe sends for how long, and what it should find: pure functions of the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.network.link import ETHERNET_FRAME_BYTES, UDP_PAYLOAD_BYTES, Link
from bwbench.network.probe.stream import Flow

HEADER_BYTES = ETHERNET_FRAME_BYTES - UDP_PAYLOAD_BYTES
PING_PAYLOAD_BYTES = 32
NUM_PINGS, FEWEST_PINGS = 20, 6
LONG_PINGS_S = 2.0  # a pair's round trips take this long before some are left out
SEQUENTIAL_PINGS_S = 0.3  # what the pairs' round trips may take one after another; beyond, some go at the same time

OVERLOAD = 1.2  # its queue never runs empty while we measure, and a link that is faster than asked is found out
SHARED_OVERLOAD = 1.005  # each frame above the fair part takes one from the access point's turns: stay close to it
RATE_FRAMES = 80
RATE_S = (0.4, 2.0)
SLOWEST_FRAMES = 30  # however long they take
MAX_SEGMENTS = 40  # of a super-datagram of at most 64 kB
SEGMENTS_S = 0.001  # datagrams of this time are handed to the kernel at once, which makes single frames of them

LOSS_PAYLOAD_BYTES = 200
LOSS_LOAD = 0.6  # of the link: far from the queue's limit
LOSS_LARGEST_PPS = 4000.0
LOSS_QUICK_S = 0.15  # where no loss was asked
LOSS_LONGEST_S = 3.0
LOSS_PATIENCE_S = 0.5  # late is not lost
LOSS_FRAMES = 1000
LOSS_EXPECTED = 20  # lost frames, for an interval that says something

UNSHAPED_S = 0.3
LATE_S = 0.05  # by which frames may be late on a busy machine
FIRST_FRAMES_S = 0.01  # a burst at the beginning, so that a sender that is not scheduled for a while leaves no gap


@dataclass(frozen=True)
class Pair:
    """What the link asks of a node and its neighbour, steady, while every node sends to its neighbour.

    Attributes:
        frames_bps: bits of full frames per second from ``src`` to ``dst``.
        alone_bps: the same while nobody else sends.
        rtt_s: round trip of a ping on the idle link: both latencies, and every serialisation on the way.
        small_s: how long a frame of the loss measurement keeps the link from others.
        latency_s, jitter_s, loss: of the path.
        queue_bytes: the smallest queue on the way.
    """

    src: int
    dst: int
    frames_bps: float
    alone_bps: float
    rtt_s: float
    small_s: float
    latency_s: float
    jitter_s: float
    loss: float
    queue_bytes: int

    @property
    def goodput_bps(self) -> float:
        """UDP payload per second that arrives; frames that the link is to lose have taken their time on it."""
        return self._arriving(self.frames_bps)

    @property
    def alone_goodput_bps(self) -> float:
        """The same while nobody else sends."""
        return self._arriving(self.alone_bps)

    def _arriving(self, frames_bps: float) -> float:
        return frames_bps * (1 - self.loss) * UDP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES


def pairs_of(link: Link, num_nodes: int) -> list[Pair]:
    """Every node and its neighbour; empty where nothing is shaped.

    On a shared air all of them get the same, and together all of the airtime.
    """
    if not link.shaped or num_nodes < 2:
        return []
    ends = [(src, (src + 1) % num_nodes) for src in range(num_nodes)]
    on_air_s = sum(_crossing_s(link, src, dst, ETHERNET_FRAME_BYTES, True) for src, dst in ends)
    all_small_s = sum(_crossing_s(link, src, dst, LOSS_PAYLOAD_BYTES + HEADER_BYTES, False) for src, dst in ends)
    ping_bytes = PING_PAYLOAD_BYTES + HEADER_BYTES
    found = []
    for src, dst in ends:
        up, down, path = link.node(src), link.node(dst), link.path(src, dst)
        alone_s = _crossing_s(link, src, dst, ETHERNET_FRAME_BYTES, True)
        if link.air is None:
            frames_bps = alone_bps = min(up.up_bps, down.down_bps)
            small_s = (LOSS_PAYLOAD_BYTES + HEADER_BYTES) * 8 / frames_bps
        else:
            # Two wired nodes are not on the air: whatever goes between them is as fast as the machine.
            alone_bps = ETHERNET_FRAME_BYTES * 8 / alone_s if alone_s else float("inf")
            frames_bps = ETHERNET_FRAME_BYTES * 8 / on_air_s if alone_s else float("inf")
            small_s = all_small_s
        rtt_s = 2 * path.latency_s + _crossing_s(link, src, dst, ping_bytes, False)
        rtt_s += _crossing_s(link, dst, src, ping_bytes, False)
        queue_bytes = min(up.up_queue_bytes, down.down_queue_bytes)
        found.append(
            Pair(src, dst, frames_bps, alone_bps, rtt_s, small_s, path.latency_s, path.jitter_s, path.loss, queue_bytes)
        )
    return found


def _crossing_s(link: Link, src: int, dst: int, frame_bytes: int, saturated: bool) -> float:
    """What a frame takes of its sender's and of its receiver's side together.

    On a shared air a single frame pays for a transmission of its own; where the air is saturated it shares that.
    """
    up_bps, down_bps = link.node(src).up_bps, link.node(dst).down_bps
    if link.air is None:
        return frame_bytes * 8 * (1 / up_bps + 1 / down_bps)
    on_air = [rate_bps for node, rate_bps in ((src, up_bps), (dst, down_bps)) if node not in link.air.wired]
    if src in link.air.wired and dst in link.air.wired:
        return 0.0
    shared_by = link.air.aggregation if saturated else 1
    return sum(link.air.overhead_s / shared_by + frame_bytes * 8 / rate_bps for rate_bps in on_air)


def num_pings(pair: Pair | None) -> int:
    """How many round trips to measure: fewer where each takes long, since their spread does not grow with them."""
    rtt_s = pair.rtt_s if pair else 0.0
    return max(FEWEST_PINGS, min(NUM_PINGS, int(LONG_PINGS_S / max(rtt_s, 1e-6))))


def ping_groups(pairs: Sequence[Pair], num_nodes: int) -> list[list[int]]:
    """Sources that ping at the same time, group after group: one at a time unless that takes too long."""
    each_s = max((num_pings(pair) * pair.rtt_s for pair in pairs), default=0.0)
    number = max(1, min(num_nodes, int(SEQUENTIAL_PINGS_S / each_s))) if each_s else num_nodes
    return [list(range(first, num_nodes, number)) for first in range(number)]


def rate_flows(link: Link, num_nodes: int) -> list[Flow]:
    """For each node: full frames, a little more of them than the link carries. All take equally long."""
    pairs = pairs_of(link, num_nodes)
    if not pairs:
        return [_UNSHAPED_FLOW] * num_nodes
    overload = OVERLOAD if link.medium == "switched" else SHARED_OVERLOAD
    return _full_frames(pairs, [pair.frames_bps for pair in pairs], overload)


def alone_flow(link: Link, num_nodes: int) -> tuple[Pair, Flow] | None:
    """For a shared air, which the flows above hardly fill: full frames of one pair, more than the air carries.

    None where the link is switched, or where two wired nodes are the first pair. Stations that differ get little more
    than what the air carries: each frame too many of a fast one would be taken from a slow one's.
    """
    pairs = pairs_of(link, num_nodes)
    if link.medium == "switched" or not pairs or pairs[0].alone_bps == float("inf"):
        return None
    overload = OVERLOAD if link.is_uniform and not link.wired else SHARED_OVERLOAD
    return pairs[0], _full_frames(pairs[:1], [pairs[0].alone_bps], overload)[0]


def loss_flows(link: Link, num_nodes: int) -> list[Flow] | None:
    """For each node: small frames, far fewer than the link carries; None where nothing is shaped."""
    pairs = pairs_of(link, num_nodes)
    if not pairs:
        return None
    rates = [min(LOSS_LARGEST_PPS, LOSS_LOAD / pair.small_s) if pair.small_s else LOSS_LARGEST_PPS for pair in pairs]
    duration_s = LOSS_QUICK_S
    for pair, pps in zip(pairs, rates, strict=True):
        if pair.loss:
            wanted_s = max(LOSS_FRAMES, LOSS_EXPECTED / pair.loss) / pps
            duration_s = max(duration_s, min(LOSS_LONGEST_S, wanted_s))
    flows = []
    for pair, pps in zip(pairs, rates, strict=True):
        catch_up = max(1, pair.queue_bytes // ETHERNET_FRAME_BYTES // 4)  # netem's queue counts frames of any size
        queue_s = min(0.5, pair.queue_bytes * 8 / pair.frames_bps)
        listen_s = pair.latency_s + 4 * pair.jitter_s + queue_s + LOSS_PATIENCE_S
        flows.append(Flow(LOSS_PAYLOAD_BYTES, 1, pps, duration_s, 0, catch_up, listen_s))
    return flows


def drain_s(pairs: Sequence[Pair], flows: Sequence[Flow]) -> float:
    """How long what flows sent too much goes on arriving after their end."""
    longest_s = 0.0
    for pair, flow in zip(pairs, flows, strict=False):
        if flow.datagrams_per_s is not None:
            sent_bytes = (flow.burst + flow.datagrams_per_s * flow.duration_s) * ETHERNET_FRAME_BYTES
            backlog_bytes = min(sent_bytes * (1 - 1 / OVERLOAD), 2 * pair.queue_bytes)
            longest_s = max(longest_s, backlog_bytes * 8 / pair.frames_bps)
    return longest_s


_UNSHAPED_FLOW = Flow(UDP_PAYLOAD_BYTES, MAX_SEGMENTS, None, UNSHAPED_S, 0, 1, LATE_S)


def _full_frames(pairs: Sequence[Pair], rates_bps: Sequence[float], overload: float) -> list[Flow]:
    frames_s = [ETHERNET_FRAME_BYTES * 8 / rate_bps for rate_bps in rates_bps]
    shortest_s, longest_s = RATE_S
    slowest_s = max(frames_s)
    duration_s = min(max(RATE_FRAMES * slowest_s, shortest_s), max(longest_s, SLOWEST_FRAMES * slowest_s))
    listen_s = max(pair.latency_s + 4 * pair.jitter_s for pair in pairs) + LATE_S
    flows = []
    for pair, frame_s in zip(pairs, frames_s, strict=True):
        if not frame_s:  # between two wired nodes: left out
            flows.append(Flow(UDP_PAYLOAD_BYTES, 1, 0.0, duration_s, 0, 1, listen_s))
            continue
        queue_frames = pair.queue_bytes // ETHERNET_FRAME_BYTES
        segments = max(1, min(MAX_SEGMENTS, int(SEGMENTS_S / frame_s), queue_frames // 4))
        burst = 0 if overload == SHARED_OVERLOAD else int(min(queue_frames / 2, FIRST_FRAMES_S / frame_s))
        max_slices = 1 if pair.loss else 10  # a slice has too few frames to tell how many are lost
        flows.append(
            Flow(
                UDP_PAYLOAD_BYTES,
                segments,
                overload / frame_s,
                duration_s,
                burst,
                max(2, queue_frames),
                listen_s,
                max_slices,
            )
        )
    return flows
