"""What the record of a cell says about a netem link: first in the words of the link, then qdisc by qdisc. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bwbench.network.link import Link
from bwbench.network.netem.shape import NodeShape


def applied(link: Link, shapes: Sequence[NodeShape], seed_applied: bool | None) -> dict[str, Any]:
    """The parameters really set, JSON-able.

    Args:
        seed_applied: whether the kernel took the seed; None where nothing is random.

    The figures on top are those of a node without an override (of node 0 where all have one) and of a path between two
    such nodes; ``shapes`` has every node, those that are alike together.
    """
    usual = shapes[next((node for node in range(len(shapes)) if node not in link.overrides), 0)]
    stages = [stage for stage in (usual.out, usual.line) if stage is not None]
    losses = [stage.mean_loss for stage in stages if stage.mean_loss] or [0.0]
    alike: dict[NodeShape, list[int]] = {}
    for node, shape in enumerate(shapes):
        alike.setdefault(shape.without_seeds(), []).append(node)
    return {
        "bandwidth_bps": 8 * min(usual.up.rate_bytes_per_s, usual.down.rate_bytes_per_s),
        "up_bps": 8 * usual.up.rate_bytes_per_s,
        "down_bps": 8 * usual.down.rate_bytes_per_s,
        "latency_s": sum(stage.delay_us for stage in stages) / 1e6,
        "jitter_s": math.hypot(*(stage.jitter_us for stage in stages)) / 1e6,
        "jitter_distribution": link.jitter_distribution,
        "reorder": link.reorder,
        "loss": losses[0] if len(losses) == 1 else 1 - math.prod(1 - loss for loss in losses),
        "queue_packets": min(usual.up.limit_packets, usual.down.limit_packets),
        "seed": link.seed,
        "seed_applied": seed_applied,
        "shapes": [{"nodes": nodes, **shape.to_json()} for shape, nodes in alike.items()],
    }
