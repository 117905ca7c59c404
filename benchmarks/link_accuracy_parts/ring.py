"""Time of a ring all-reduce of four stations against the closed form: everything crosses their air twice.

The closed form knows the segments and their acknowledgements, and nothing of what TCP loses at a full queue.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link
from bwbench.network.link.air import Air
from bwbench.network.network import open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.rows import Row, row
from link_accuracy_parts.tools import Tool

NODES = 4
STEPS = 2 * (NODES - 1)
ROUNDS = 4
LATENCY = "2.5 ms"
ACK_FRAME_BYTES = 66  # Ethernet 14, IPv4 20, TCP 32
SEGMENTS_AN_ACK = 2  # RFC 1122, 4.2.3.2: every second full segment is acknowledged
LIMIT_S = 120.0
TOLERANCE = 0.10
_SCRIPT = str(Path(__file__).with_name("ring_node.py"))

LINKS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("plain air, 20 Mbit/s", {"bandwidth": "20 Mbit/s"}, 1_000_000),
    ("802.11g, 54 Mbit/s", {"bandwidth": "54 Mbit/s", "standard": "802.11g"}, 1_000_000),
    ("802.11n, 72 Mbit/s", {"bandwidth": "72 Mbit/s", "standard": "802.11n"}, 2_000_000),
)


def cases(options: Options) -> list[Case]:
    """A case an air."""
    if options.quick or options.backend == "netem":
        return []
    found = []
    for setting, keys, num_bytes in LINKS:
        link = options.link(medium="shared", latency=LATENCY, **keys)
        assert link.air is not None
        asked_s = closed_form_s(link.air, link, num_bytes)
        work = partial(_measure, setting, link, num_bytes, asked_s)
        found.append(Case(f"ring {setting}", 4 + 1.1 * ROUNDS * asked_s, work))
    return found


def closed_form_s(air: Air, link: Link, num_bytes: int) -> float:
    """Seconds of a ring whose air is never silent, with the acknowledgements of its segments."""
    phy_bps, frames = link.base.up_bps, air.aggregation
    data_s = air.transmission_s(frames * ETHERNET_FRAME_BYTES, phy_bps) / frames
    ack_s = air.transmission_s(frames * ACK_FRAME_BYTES, phy_bps) / frames
    segments = math.ceil(num_bytes / NODES / TCP_PAYLOAD_BYTES)  # of a node in a step
    crossings = 2 * NODES * segments
    return STEPS * (crossings * (data_s + ack_s / SEGMENTS_AN_ACK) + link.latency_s)


def _measure(setting: str, link: Link, num_bytes: int, asked_s: float) -> list[Row]:
    """The slowest node of each round counts; the first round opens TCP's window and does not."""
    with open_network(link, NODES) as network:
        addresses = [node.data_address for node in network.nodes]
        words = [sys.executable, _SCRIPT]
        ranks = [
            Tool(network, rank, [*words, str(rank), str(num_bytes), str(ROUNDS), *addresses]) for rank in range(NODES)
        ]
        try:
            times_s = [json.loads(tool.finish(LIMIT_S).splitlines()[-1]) for tool in ranks]
        finally:
            for tool in ranks:
                tool.stop()
        total = network.counters().total()
    slowest_s = [max(of_round) for of_round in zip(*times_s, strict=True)][1:]
    more = {"payload_bytes": num_bytes, "rounds_s": slowest_s, "drops": total.drops, "ack_frames": total.ack_frames}
    measured_s = statistics.median(slowest_s)
    return [row("ring", setting, link.backend, "s", asked_s, measured_s, TOLERANCE, **more, frames=total.frames)]
