"""What the probe sends for how long, and what it should find: pure functions of the link."""

from __future__ import annotations

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


def asked_goodput_bps(link: Link, num_nodes: int) -> float | None:
    """UDP payload per second of full frames that the link leaves to each pair while all nodes send to a neighbour.

    On a shared air every frame crosses twice, and ``num_nodes`` pairs divide the capacity. Frames that the link is to
    lose have taken their time on it, but do not arrive.
    """
    frames_bps = _pair_bps(link, num_nodes)
    return None if frames_bps is None else frames_bps * (1 - link.loss) * UDP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES


def asked_rtt_s(link: Link) -> float | None:
    """Round trip of a ping: the latency both ways, and two serialisations in each direction."""
    if link.bandwidth_bps is None:
        return None
    return link.rtt_s + 4 * _frame_s(PING_PAYLOAD_BYTES, link.bandwidth_bps)


def num_pings(link: Link) -> int:
    """How many round trips to measure: fewer where each takes long, since their spread does not grow with them."""
    return max(FEWEST_PINGS, min(NUM_PINGS, int(LONG_PINGS_S / max(asked_rtt_s(link) or 0.0, 1e-6))))


def ping_groups(link: Link, num_nodes: int) -> list[list[int]]:
    """Sources that ping at the same time, group after group: one at a time unless that takes too long."""
    each_s = num_pings(link) * (asked_rtt_s(link) or 0.0)
    number = max(1, min(num_nodes, int(SEQUENTIAL_PINGS_S / each_s))) if each_s else num_nodes
    return [list(range(first, num_nodes, number)) for first in range(number)]


def rate_flow(link: Link, num_nodes: int) -> Flow:
    """Full frames, a little more of them than the link carries."""
    frames_bps = _pair_bps(link, num_nodes)
    if frames_bps is None:
        return Flow(UDP_PAYLOAD_BYTES, MAX_SEGMENTS, None, UNSHAPED_S, 0, 1, LATE_S)
    return _full_frames(link, frames_bps, OVERLOAD if link.medium == "switched" else SHARED_OVERLOAD)


def alone_flow(link: Link) -> Flow | None:
    """For a shared air, which the flow above hardly fills: full frames from one node alone, more than the air carries.

    A station and the access point taking turns get half of it each.
    """
    if link.bandwidth_bps is None or link.medium == "switched":
        return None
    return _full_frames(link, link.bandwidth_bps / 2, OVERLOAD)


def alone_goodput_bps(link: Link) -> float | None:
    """UDP payload per second that arrives of ``alone_flow``."""
    return asked_goodput_bps(link, 1) if link.medium == "shared" else None


def drain_s(link: Link, flow: Flow) -> float:
    """How long what a flow sent too much goes on arriving after its end."""
    if link.bandwidth_bps is None or flow.datagrams_per_s is None:
        return 0.0
    backlog_bytes = (flow.burst + flow.datagrams_per_s * flow.duration_s) * ETHERNET_FRAME_BYTES * (1 - 1 / OVERLOAD)
    return float(min(backlog_bytes, 2 * link.effective_queue_bytes) * 8 / link.bandwidth_bps)


def _full_frames(link: Link, frames_bps: float, overload: float) -> Flow:
    frame_s = _frame_s(UDP_PAYLOAD_BYTES, frames_bps)
    shortest_s, longest_s = RATE_S
    duration_s = min(max(RATE_FRAMES * frame_s, shortest_s), max(longest_s, SLOWEST_FRAMES * frame_s))
    queue_frames = link.effective_queue_bytes // ETHERNET_FRAME_BYTES
    segments = max(1, min(MAX_SEGMENTS, int(SEGMENTS_S / frame_s), queue_frames // 4))
    burst = 0 if overload == SHARED_OVERLOAD else int(min(queue_frames / 2, FIRST_FRAMES_S / frame_s))
    listen_s = link.latency_s + 4 * link.jitter_s + LATE_S
    max_slices = 1 if link.loss else 10  # a slice has too few frames to tell how many are lost
    return Flow(
        UDP_PAYLOAD_BYTES, segments, overload / frame_s, duration_s, burst, max(2, queue_frames), listen_s, max_slices
    )


def loss_flow(link: Link, num_nodes: int) -> Flow | None:
    """Small frames, well below what the link carries; None on an unshaped link."""
    frames_bps = _pair_bps(link, num_nodes)
    if frames_bps is None:
        return None
    pps = min(LOSS_LARGEST_PPS, LOSS_LOAD / _frame_s(LOSS_PAYLOAD_BYTES, frames_bps))
    duration_s = LOSS_QUICK_S
    if link.loss:
        duration_s = min(LOSS_LONGEST_S, max(LOSS_FRAMES, LOSS_EXPECTED / link.loss) / pps)
    catch_up = max(
        1, link.effective_queue_bytes // ETHERNET_FRAME_BYTES // 4
    )  # netem's queue counts frames of any size
    queue_s = min(0.5, link.effective_queue_bytes * 8 / frames_bps)
    listen_s = link.latency_s + 4 * link.jitter_s + queue_s + LOSS_PATIENCE_S
    return Flow(LOSS_PAYLOAD_BYTES, 1, pps, duration_s, 0, catch_up, listen_s)


def _pair_bps(link: Link, num_nodes: int) -> float | None:
    """Frames' bits per second that each pair gets while all nodes send."""
    if link.bandwidth_bps is None:
        return None
    return link.bandwidth_bps / (2 * num_nodes) if link.medium == "shared" else float(link.bandwidth_bps)


def _frame_s(payload_bytes: int, bandwidth_bps: float) -> float:
    return (payload_bytes + HEADER_BYTES) * 8 / bandwidth_bps
