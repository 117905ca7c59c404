"""How a link is carried: by which back end and why, packet by packet or not, and whether the relay will manage.

One by one every packet is shaped, queued and dropped by itself, as on a real link. As super-packets (the kernel's
segmentation offloads) several segments share all this; they cost the relay so much less that fast links cannot do
without. What the relay carries is reckoned from measurements, so that asking costs nothing: ``bwbench doctor`` measures
this very machine instead, and the probe every link before it is used.
"""

from __future__ import annotations

import os

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.base.units import BANDWIDTH
from bwbench.network.link import ETHERNET_FRAME_BYTES, Link
from bwbench.network.netem.shape import beyond_netem

# Packets one by one: what a user-space relay carries of them on one core, see benchmarks/relay_cost.py; a node, and all
# nodes together. In frames of the usual size, as the next one: a relay's work goes by frames.
MOST_SINGLE_BPS = 200e6
MOST_SINGLE_TOTAL_BPS = 500e6
FEWEST_SUPER_BPS = 50e6  # below that even two segments take longer than LONGEST_S
LONGEST_S = 0.0005  # on the link: what a super-packet adds to a delay, and to a burst of losses
MOST_BYTES = 61_440  # with all headers a super-packet then fits a slot of 64 KiB in the relay's receive ring

# Full super-packets, of all nodes together, on one core of 2024. With one core the workers have to share it.
MOST_SUPER_BPS = 4e9


def choose(link: Link, *, netem_available: bool) -> tuple[str, str]:
    """Name of the back end and the reason in words.

    Raises ConfigError where the link asks for a back end that cannot carry it, UnfitMachineError where it asks for
    netem on a kernel without it.
    """
    if not link.shaped:
        return "unshaped", "the link asks for no shaping"
    if link.backend == "relay":
        return "relay", "asked for"
    reason = beyond_netem(link)
    if link.backend == "netem":
        if reason:
            raise ConfigError(f"backend: netem cannot do {reason}; write 'backend: relay' or 'backend: auto'")
        if not netem_available:
            raise UnfitMachineError(
                "backend: netem is asked for, but this kernel has no sch_netem; try 'sudo modprobe sch_netem' (package "
                "linux-modules-extra or kernel-modules-extra), or write 'backend: relay' or 'backend: auto'"
            )
        return "netem", "asked for"
    if reason:
        return "relay", f"netem cannot do {reason}"
    if not netem_available:
        return "relay", "this kernel has no sch_netem"
    return "netem", "the kernel has it, and the link asks for nothing else"


def super_packet_bytes(link: Link, num_nodes: int, backend: str = "relay") -> int | None:
    """The largest super-packet, with its headers; None where every packet goes by itself.

    They are used where every node is fast (on average, where a trace drives it), or fast enough and one of so many that
    the relay would not keep up. Never with netem, whose queues count packets of whatever size, and never where frames
    are lost, late or overtaken by chance, or dropped by a discipline: that would strike all segments at once.
    """
    if not link.shaped:
        return MOST_BYTES
    link = link.asked  # in slow motion too TCP sees what the link makes of it that was asked
    nodes = [link.base, *(link.node(node) for node in link.overrides)]
    by_itself = (
        link.reorder
        or link.handover
        or link.demand
        or any(node.loss or node.jitter_s or node.discipline for node in nodes)
    )
    if backend == "netem" or by_itself:
        return None
    slowest_bps, size = min(node.slowest_bps for node in nodes), _relative_size(link)
    crowded = link.air is None and num_nodes * slowest_bps > MOST_SINGLE_TOTAL_BPS * size
    if (sites := link.site_network(num_nodes)) is not None:  # a super-packet crosses their lines as well
        slowest_bps = min(slowest_bps, *(line.rate_bps for line in sites.lines))
    if slowest_bps < (FEWEST_SUPER_BPS if crowded else MOST_SINGLE_BPS) * size:
        return None
    largest_bytes = min(MOST_BYTES, int(slowest_bps / 8 * LONGEST_S))
    return largest_bytes if largest_bytes >= 2 * link.full_frame.num_bytes else None


def _relative_size(link: Link) -> float:
    return link.full_frame.num_bytes / ETHERNET_FRAME_BYTES


def relay_limit_bps(link: Link, num_nodes: int, num_cores: int | None = None) -> float:
    """What the relay will hardly carry more of than this, all nodes together.

    Its work goes by packets, so that it carries as many of them, however large they are: short super-packets, as a slow
    line demands them, are little better than single frames.
    """
    packet_bytes = super_packet_bytes(link, num_nodes) or link.full_frame.num_bytes
    most_bps = min(MOST_SUPER_BPS, MOST_SINGLE_TOTAL_BPS * (packet_bytes / ETHERNET_FRAME_BYTES))
    return most_bps / 2 if (num_cores or os.cpu_count() or 1) < 2 else most_bps


def beyond_relay(link: Link, num_nodes: int, num_cores: int | None = None) -> str | None:
    """Why the relay will hardly carry a link whose nodes all send at once; None where it should."""
    if not link.shaped or num_nodes < 2:
        return None
    nodes = link.nodes(num_nodes)
    total_bps = sum(node.up_bps for node in nodes)
    if link.air is not None:
        total_bps = link.air.capacity_bps(link.base.up_bps)
    largest_bytes = super_packet_bytes(link, num_nodes)
    most_bps = relay_limit_bps(link, num_nodes, num_cores)
    if total_bps <= most_bps:
        return None
    total = BANDWIDTH.show(total_bps, 3)
    how = "packet by packet" if largest_bytes is None else f"in super-packets of {largest_bytes / 1000:.3g} kB"
    most = f"{BANDWIDTH.show(most_bps, 3)} {how}"
    return (
        f"{num_nodes} nodes may send {total} at once, and the relay carries about {most}: cells may end as "
        "invalid, runs with exit status 3. 'bwbench doctor' measures this machine"
    )
