"""The link of one node with everything filled in, and the path between two nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bwbench.network.link.trace import Trace


@dataclass(frozen=True)
class NodeLink:
    """What one node's link is asked to be: base link and override put together.

    Attributes:
        up_bps, down_bps: rate of Ethernet frames from the node and to it; the mean where a trace drives it. On a shared
            air both are the PHY rate of the station.
        latency_s: one-way delay between this node and one that is like it; see ``path_between``.
        jitter_s: standard deviation of that delay.
        loss: share of the frames lost between this node and one that is like it.
        up_queue_bytes, down_queue_bytes: drop-tail queue before each direction.
        queue_packets: where the queue counts packets: how many; None where it counts bytes.
        up_trace, down_trace: what drives the rate over time; None where it is constant.
    """

    up_bps: float
    down_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    up_queue_bytes: int
    down_queue_bytes: int
    queue_packets: int | None = None
    up_trace: Trace | None = None
    down_trace: Trace | None = None

    @property
    def slowest_bps(self) -> float:
        """The slower of both directions."""
        return min(self.up_bps, self.down_bps)


@dataclass(frozen=True)
class Path:
    """What happens to a frame between the sender's uplink and the receiver's downlink."""

    latency_s: float
    jitter_s: float
    loss: float


def path_between(src: NodeLink, dst: NodeLink) -> Path:
    """Each end contributes half: the mean latency, half of both variances, and both halves of the loss.

    So a path between two nodes that are alike is what their link says.
    """
    return Path(
        latency_s=(src.latency_s + dst.latency_s) / 2,
        jitter_s=src.jitter_s
        if src.jitter_s == dst.jitter_s
        else math.hypot(src.jitter_s, dst.jitter_s) / math.sqrt(2),
        loss=src.loss if src.loss == dst.loss else 1 - math.sqrt((1 - src.loss) * (1 - dst.loss)),
    )
