"""A link for a payload that is divided by a factor: its rates are divided too, and all times stay.

Frames stay as long as they are, so that each takes ``factor`` times as long on the wire. That is what a shrunk link
differs by, beside queues of so few bytes that they would hold no frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bwbench.network.link.node_link import NodeOverride, Queue
from bwbench.network.link.sites import Paths, Site

if TYPE_CHECKING:
    from bwbench.network.link.link import Link


def cannot_shrink(link: Link) -> str | None:
    """Why the rates of a link cannot be divided, in words; None where they can."""
    if not link.shaped:
        return "an unshaped link has no rate that could be divided; give it a bandwidth"
    if link.medium == "shared":
        return "on a shared air every frame costs the same whatever it carries; use medium: switched"
    if any(link.traces):
        return "a trace says its rates itself; divide them in its file"
    if link.is_managed:
        return "what a discipline does goes by packets, of which there are fewer then; use a drop-tail queue"
    if link.cross_traffic:
        return "cross traffic would stay what it is beside slower links; leave it out"
    return None


def shrunk_keys(link: Link, factor: float) -> dict[str, object]:
    """The keys of a link that become others; ``cannot_shrink`` has been asked."""
    frame_bytes = link.full_frame.num_bytes

    def shrunk(one: Link | NodeOverride | Site) -> dict[str, object]:
        rates = {name: getattr(one, name) for name in ("bandwidth_bps", "up_bps", "down_bps")}
        made: dict[str, object] = {name: rate and rate / factor for name, rate in rates.items()}
        return {**made, "queue": _shrunk_queue(one.queue, factor, frame_bytes)}

    return {
        **shrunk(link),
        "overrides": {node: own.model_copy(update=shrunk(own)) for node, own in link.overrides.items()},
        "sites": tuple(site.model_copy(update=shrunk(site)) for site in link.sites),
        "paths": link.paths and _shrunk_paths(link.paths, factor),
    }


def _shrunk_queue(queue: Queue | None, factor: float, frame_bytes: int) -> Queue | None:
    """A queue of bytes or packets holds what the slower link fills in the same time; all others follow the rate."""
    if queue is not None and queue.unit == "B":
        return replace(queue, amount=max(float(frame_bytes), queue.amount / factor))
    if queue is not None and queue.unit == "packets":
        return replace(queue, amount=float(max(1, round(queue.amount / factor))))
    return queue


def _shrunk_paths(paths: Paths, factor: float) -> Paths:
    rows = {
        src: {dst: path.model_copy(update={"bandwidth_bps": path.bandwidth_bps / factor}) for dst, path in row.items()}
        for src, row in paths.between.items()
    }
    return paths.model_copy(update={"between": rows})
