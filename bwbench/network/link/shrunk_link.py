"""A link for a payload that is divided by a factor: its rates are divided too, and all times stay.

Frames stay as long as they are, so that each takes ``factor`` times as long on the wire. That is what a shrunk link
differs by, beside queues of so few bytes that they would hold no frame.
"""

from __future__ import annotations

from dataclasses import replace

from bwbench.network.link.node_link import Queue


def shrunk_keys(
    bandwidth_bps: float | None, up_bps: float | None, down_bps: float | None, factor: float
) -> dict[str, float | None]:
    """Rates that a link and what differs at a node have in common; None stays None."""
    rates = {"bandwidth_bps": bandwidth_bps, "up_bps": up_bps, "down_bps": down_bps}
    return {name: rate and rate / factor for name, rate in rates.items()}


def shrunk_queue(queue: Queue | None, factor: float, frame_bytes: int) -> Queue | None:
    """A queue of bytes or packets holds what the slower link fills in the same time; all others follow the rate."""
    if queue is not None and queue.unit == "B":
        return replace(queue, amount=max(float(frame_bytes), queue.amount / factor))
    if queue is not None and queue.unit == "packets":
        return replace(queue, amount=float(max(1, round(queue.amount / factor))))
    return queue
