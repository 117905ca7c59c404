"""What to expect of a link: every node with its defaults filled in, and every node with its neighbour. Pure."""

from __future__ import annotations

import math
from typing import Any

from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link
from bwbench.network.probe.probe_plan import pairs_of


def expected_of_nodes(link: Link, num_nodes: int) -> list[dict[str, Any]]:
    """A row a node, in SI units; empty where nothing is shaped.

    ``…_queue_s`` is what a full queue adds to the latency; ``…_queue_packets`` is None where the queue counts bytes.
    Rates and queues of a wired node are None: its wire is never busy.
    """
    if not link.shaped:
        return []
    rows = []
    for number, node in enumerate(link.nodes(num_nodes)):
        row: dict[str, Any] = {"node": number, "wired": number in link.wired}
        for name, rate_bps, queue_bytes, trace in (
            ("up", node.up_bps, node.up_queue_bytes, node.up_trace),
            ("down", node.down_bps, node.down_queue_bytes, node.down_trace),
        ):
            capacity_bps = link.air.capacity_bps(rate_bps) if link.air else rate_bps
            of_direction = {
                "bps": rate_bps,
                "trace": trace.file if trace else None,
                "queue_bytes": queue_bytes,
                "queue_packets": node.queue_packets,
                "queue_s": queue_bytes * 8 / capacity_bps,
            }
            row.update({f"{name}_{key}": None if row["wired"] else value for key, value in of_direction.items()})
        rows.append({**row, "latency_s": node.latency_s, "jitter_s": node.jitter_s, "loss": node.loss})
    return rows


def expected_of_pairs(link: Link, num_nodes: int) -> list[dict[str, Any]]:
    """A row for every node and its neighbour, in SI units; rates are None between two nodes that are both wired.

    ``rtt_s`` is that of a small ping on the idle link, ``full_frame_s`` the one-way time of a full frame; both with all
    serialisation. TCP's goodput is what its segments may fill: losses, small queues and, on a shared air,
    acknowledgements leave it less.
    """
    return [
        {
            "src": pair.src,
            "dst": pair.dst,
            "rtt_s": pair.rtt_s,
            "full_frame_s": pair.latency_s + _serialisation_s(link, pair.src, pair.dst),
            "udp_goodput_alone_bps": _finite(pair.alone_goodput_bps),
            "tcp_goodput_alone_bps": _finite(pair.alone_bps * TCP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES),
            "udp_goodput_bps": _finite(pair.goodput_bps),
        }
        for pair in pairs_of(link, num_nodes)
    ]


def _serialisation_s(link: Link, src: int, dst: int) -> float:
    """A full frame through the sender's and the receiver's side of an idle link."""
    sides = [(src, link.node(src).up_bps), (dst, link.node(dst).down_bps)]
    if link.air is None:
        return sum(ETHERNET_FRAME_BYTES * 8 / rate_bps for _, rate_bps in sides)
    return sum(
        link.air.transmission_s(ETHERNET_FRAME_BYTES, rate_bps) for node, rate_bps in sides if node not in link.wired
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
