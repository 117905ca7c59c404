"""A link for a payload that is divided by a factor: its rates are divided too, and all times stay.

Frames stay as long as they are, so that each takes ``factor`` times as long on the wire. That is what a shrunk link
differs by. Where it would decide is refused: what goes frame by frame, and lines that hold a few frames at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from bwbench.network.link.node_link import NodeOverride, Queue, TcpSettings
from bwbench.network.link.sites import Paths, Site

if TYPE_CHECKING:
    from bwbench.network.link.link import Link

# That a way and its queue hold together: with fewer TCP has no window to grow, and a loss costs it a timeout.
FEWEST_FRAMES = 16


def cannot_shrink(link: Link, factor: float) -> str | None:
    """Why the rates of a link cannot be divided by ``factor``, in words; None where they can."""
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
    if _loses(link):
        return (
            "where frames are lost at random, TCP is as fast as round trips and frames make it, whatever the rate, and "
            "fills the slower link as it would not fill the whole one; leave the loss out, or run it whole"
        )
    if link.has_jitter and not link.wanders:
        return (
            "delays that are drawn for each frame meet fewer frames, further apart; write jitter_kind: correlated, or "
            "run it whole"
        )
    return _few_frames(link, factor)


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
        "tcp": _shrunk_tcp(link.tcp, factor),
    }


def _loses(link: Link) -> bool:
    losses = [link.loss, *(own.loss for own in link.overrides.values()), link.handover and link.handover.loss]
    return any(losses)


def _few_frames(link: Link, factor: float) -> str | None:
    """That a way of the slower link, or a buffer of its TCP, would hold too few frames at a time."""
    frame_bytes = link.full_frame.num_bytes
    made = link.model_copy(update=shrunk_keys(link, factor))
    ways = [*_ways(made)]
    if (name_and_bytes := min(ways, key=lambda way: way[1], default=None)) is not None:
        name, num_bytes = name_and_bytes
        if num_bytes < FEWEST_FRAMES * frame_bytes:
            held = f"{name} and its queue would hold {num_bytes / frame_bytes:.1f} frames at a time"
            return f"{held}, and TCP needs {FEWEST_FRAMES}; shrink it less, or ask for a longer queue"
    tcp = made.tcp
    for key, buffer_bytes in (("receive_buffer", tcp.receive_buffer_bytes), ("send_buffer", tcp.send_buffer_bytes)):
        if buffer_bytes is not None and buffer_bytes < FEWEST_FRAMES * frame_bytes:
            held = f"tcp.{key} would hold {buffer_bytes / frame_bytes:.1f} frames"
            return f"{held}, and TCP needs {FEWEST_FRAMES}; shrink it less, or ask for a larger buffer"
    return None


def _ways(link: Link) -> Iterator[tuple[str, float]]:
    """Each way of a link in words, and the bytes that it holds: under way in a round trip, and in its queue."""
    for name, node in (("the link", link.base), *((f"node {n}", link.node(n)) for n in sorted(link.overrides))):
        for rate_bps, queue_bytes in ((node.up_bps, node.up_queue_bytes), (node.down_bps, node.down_queue_bytes)):
            yield name, queue_bytes + rate_bps / 8 * 2 * node.latency_s
    if (sites := link.smallest_site_network) is not None:
        for src, dst in sites.pairs:
            rtt_s = 2 * (link.latency_s + sites.latency_s[src][dst])
            for line in sites.route(src, dst):
                name = f"the way from {sites.names[src]} to {sites.names[dst]}"
                yield name, line.queue_bytes + line.rate_bps / 8 * rtt_s


def _shrunk_queue(queue: Queue | None, factor: float, frame_bytes: int) -> Queue | None:
    """A queue of bytes or packets holds what the slower link fills in the same time; all others follow the rate."""
    if queue is not None and queue.unit == "B":
        return replace(queue, amount=max(float(frame_bytes), queue.amount / factor))
    if queue is not None and queue.unit == "packets":
        return replace(queue, amount=float(max(1, round(queue.amount / factor))))
    return queue


def _shrunk_tcp(tcp: TcpSettings, factor: float) -> TcpSettings:
    """A buffer that limits what is under way limits it to as many round trips of the slower link."""
    buffers = {name: getattr(tcp, name) for name in ("receive_buffer_bytes", "send_buffer_bytes")}
    return tcp.model_copy(update={name: size and size / factor for name, size in buffers.items()})


def _shrunk_paths(paths: Paths, factor: float) -> Paths:
    rows = {
        src: {dst: path.model_copy(update={"bandwidth_bps": path.bandwidth_bps / factor}) for dst, path in row.items()}
        for src, row in paths.between.items()
    }
    return paths.model_copy(update={"between": rows})
