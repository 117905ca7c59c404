"""``collective: auto``: the collective that moves the fewest bytes for a codec."""

from __future__ import annotations

from bwbench.collectives.base import AbstractCollective
from bwbench.compression.base import AbstractCodec
from bwbench.registry import COLLECTIVES

TYPICAL_BUCKET_ELEMENTS = 250_000  # 1 MB of fp32; the choice depends on the ratio of the codec, not on this


def automatic(codec: AbstractCodec, num_nodes: int) -> str:
    """The cheapest collective: fewest payload bytes at the busiest rank, the first in the registry among equals.

    Args:
        codec: with its options, without error feedback around it.
        num_nodes: 1 gives ``none``.
    """
    if num_nodes == 1:
        return "none"
    payload_bytes = codec.payload_bytes(TYPICAL_BUCKET_ELEMENTS)
    costs = {}
    for entry in COLLECTIVES:
        collective_class: type[AbstractCollective] = COLLECTIVES.load(entry.name)
        if collective_class.wraps_model or not collective_class.needs_peers:
            continue
        if collective_class.accepts(type(codec)) is None:
            traffic = collective_class().traffic(num_nodes, [payload_bytes])
            costs[entry.name] = traffic.busiest_bytes
    return min(costs, key=lambda name: costs[name])
