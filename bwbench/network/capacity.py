"""What the relay carries on an ordinary machine: reckoned from measurements, so that asking costs nothing.

``bwbench doctor`` measures this very machine instead, and the probe every link before it is used.
"""

from __future__ import annotations

import os

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import Link
from bwbench.network.super_packets import super_packet_bytes

# Of all nodes together, sending at once, on one core of 2024 (benchmarks/relay_cost.py): packets one by one, and as
# super-packets. With one core the workers have to share it.
MOST_SINGLE_BPS = 500e6
MOST_SUPER_BPS = 4e9


def beyond_relay(link: Link, num_nodes: int, num_cores: int | None = None) -> str | None:
    """Why the relay will hardly carry a link whose nodes all send at once; None where it should."""
    if not link.shaped or num_nodes < 2:
        return None
    nodes = link.nodes(num_nodes)
    total_bps = sum(node.up_bps for node in nodes)
    if link.air is not None:
        total_bps = link.air.capacity_bps(link.base.up_bps)
    singly = super_packet_bytes(link, num_nodes) is None
    most_bps = MOST_SINGLE_BPS if singly else MOST_SUPER_BPS
    if (num_cores or os.cpu_count() or 1) < 2:
        most_bps /= 2
    if total_bps <= most_bps:
        return None
    total = BANDWIDTH.show(total_bps, 3)
    most = f"{BANDWIDTH.format(most_bps)} {'packet by packet' if singly else 'in super-packets'}"
    return (
        f"{num_nodes} nodes may send {total} at once, and the relay carries about {most}: cells may end as "
        "invalid. 'bwbench doctor' measures this machine"
    )
