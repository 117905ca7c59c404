"""What a method puts on the network in one optimizer step, and how long a link takes for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

from bwbench.network.link import Link
from bwbench.network.link.frame_sizes import ACK_FRAME_BYTES, FullFrame
from bwbench.network.link.node_link import path_between

GLOO_HEADER_BYTES = 48  # before each message; and twice in a frame of its own, since both sides say that they are ready
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
    """

    payload_bytes_per_rank: tuple[float, ...]
    received_bytes_per_rank: tuple[float, ...]
    rounds: float
    serial_bytes: float = 0.0
    in_background: bool = False
    messages: float = 0.0

    @classmethod
    def none(cls, num_nodes: int) -> Traffic:
        """Nothing crosses the link."""
        return cls((0.0,) * num_nodes, (0.0,) * num_nodes, 0)

    def scaled(self, factor: float) -> Traffic:
        """This traffic times ``factor``: 1/H for what happens every H steps."""
        sent = tuple(factor * size for size in self.payload_bytes_per_rank)
        received = tuple(factor * size for size in self.received_bytes_per_rank)
        rounds, serial, messages = (factor * value for value in (self.rounds, self.serial_bytes, self.messages))
        return Traffic(sent, received, rounds, serial, self.in_background, messages)

    def plus(self, other: Traffic) -> Traffic:
        """This traffic and another, one after the other."""
        sent = tuple(map(sum, zip(self.payload_bytes_per_rank, other.payload_bytes_per_rank, strict=True)))
        received = tuple(map(sum, zip(self.received_bytes_per_rank, other.received_bytes_per_rank, strict=True)))
        rounds, serial_bytes = self.rounds + other.rounds, self.serial_bytes + other.serial_bytes
        said = all(traffic.messages or not traffic.total_bytes for traffic in (self, other))
        messages = self.messages + other.messages if said else 0.0
        return Traffic(sent, received, rounds, serial_bytes, self.in_background, messages)

    def without_bytes(self) -> Traffic:
        """The rounds alone, as if messages were empty."""
        nothing = (0.0,) * len(self.payload_bytes_per_rank)
        return Traffic(nothing, nothing, self.rounds, 0.0, self.in_background)

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
    other way, plus what cannot overlap. ``medium: shared``: the airtime of all frames of all nodes, acknowledgements
    too, up to the access point and down again. Rates that change count by their mean.
    """
    if not link.shaped:
        return 0.0
    pairs = list(zip(traffic.payload_bytes_per_rank, traffic.received_bytes_per_rank, strict=True))
    nodes = link.nodes(len(pairs))
    latency_s = max((path_between(src, dst).latency_s for src, dst in permutations(nodes, 2)), default=0.0)
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
        sending_s += max(
            max(_line_s(full, sent, received, node.up_bps), _line_s(full, received, sent, node.down_bps))
            for node, (sent, received) in zip(nodes, pairs, strict=True)
        )
    return float(sending_s + traffic.rounds * latency_s)


def _line_s(full: FullFrame, data_bytes: float, back_bytes: float, rate_bps: float) -> float:
    """What one direction of a node's own line takes: payload, and the acknowledgements of what came the other way."""
    return (data_bytes * full.wire_per_payload + back_bytes * ack_per_payload(full)) * 8 / rate_bps


def _airtime_s(full: FullFrame, data_bytes: float, rate_bps: float, overhead_s: float, ack_overhead_s: float) -> float:
    """What payload between a station and the access point takes of the air, with the acknowledgements coming back."""
    frames = data_bytes / full.tcp_payload_bytes
    frame_s = overhead_s + full.num_bytes * 8 / rate_bps
    return frames * (frame_s + (ack_overhead_s + ACK_FRAME_BYTES * 8 / rate_bps) / SEGMENTS_PER_ACK)
