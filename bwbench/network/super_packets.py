"""Whether packets cross the data network one by one, or as super-packets of several segments, and how large these are.

One by one every packet is shaped, queued and dropped by itself, as on a real link. As super-packets (the kernel's
segmentation offloads) they share all this; they cost the relay so much less that fast links cannot do without.
"""

from __future__ import annotations

from bwbench.network.link import Link

# Packets one by one: what a user-space relay carries of them on one core, see benchmarks/relay_cost.py; a node, and all
# nodes together.
MOST_SINGLE_BPS = 200e6
MOST_SINGLE_TOTAL_BPS = 500e6
FEWEST_SUPER_BPS = 50e6  # below that even two segments take longer than LONGEST_S
LONGEST_S = 0.0005  # on the link: what a super-packet adds to a delay, and to a burst of losses
MOST_BYTES = 61_440  # with all headers a super-packet then fits a slot of 64 KiB in the relay's receive ring


def super_packet_bytes(link: Link, num_nodes: int, backend: str = "relay") -> int | None:
    """The largest super-packet, with its headers; None where every packet goes by itself.

    They are used where every node is fast (on average, where a trace drives it), or fast enough and one of so many that
    the relay would not keep up. Never with netem, whose queues count packets of whatever size, and never where frames
    are lost, late or overtaken by chance: that would strike all segments at once.
    """
    if not link.shaped:
        return MOST_BYTES
    nodes = [link.base, *(link.node(node) for node in link.overrides)]
    if backend == "netem" or link.reorder or any(node.loss or node.jitter_s for node in nodes):
        return None
    slowest_bps = min(node.slowest_bps for node in nodes)
    crowded = link.air is None and num_nodes * slowest_bps > MOST_SINGLE_TOTAL_BPS
    if slowest_bps >= (FEWEST_SUPER_BPS if crowded else MOST_SINGLE_BPS):
        return min(MOST_BYTES, int(slowest_bps / 8 * LONGEST_S))
    return None
