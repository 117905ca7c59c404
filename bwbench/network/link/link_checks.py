"""What the keys of a link must say together, and of which nodes: what is refused, and what to write in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from bwbench.base.explain import problem, refused
from bwbench.network.link.site_network import sizes_of
from bwbench.network.link.sites import wrong_sites

if TYPE_CHECKING:
    from bwbench.network.link.link import Link


def check_keys(link: Link) -> None:
    """Raise PydanticCustomError, of sites ValidationError, for keys of a shaped link that do not go together."""
    _check_rates(link)
    _check_random(link)
    _check_medium(link)
    _check_queues(link)
    _check_sites(link)


def _check_rates(link: Link) -> None:
    for name, rate_bps in (("up", link.up_bps), ("down", link.down_bps)):
        traced = link.trace is not None and getattr(link.trace, name) is not None
        if link.bandwidth_bps is None and rate_bps is None and not traced:
            other = "a shaped link needs a bandwidth: '10 Mbit/s' (or write link: unshaped)"
            if link.up_bps or link.down_bps or link.trace:
                other = f"only one direction has a rate; give 'bandwidth' or '{name}' as well"
            raise refused(other)
        if traced and rate_bps is not None:
            raise refused(f"'{name}' and the trace both say how fast that direction is; leave one of them out")
    if link.trace is not None and link.trace.up and link.trace.down and link.bandwidth_bps is not None:
        raise refused("'bandwidth' and the trace both say how fast the link is; leave one of them out")


def _check_random(link: Link) -> None:
    losses = [link.loss, *(override.loss for override in link.overrides.values() if override.loss is not None)]
    if link.loss_burst is None:
        if link.loss_in_bad != 1.0 or link.loss_in_good != 0.0:
            raise refused("'loss_in_bad' and 'loss_in_good' belong to bursts; give 'loss_burst', their mean length")
    elif not link.loss:
        raise refused("'loss_burst' without 'loss' loses nothing; give the share of frames lost: 'loss: 0.01'")
    elif len(losses) > 1:
        raise refused("a node cannot have a loss of its own where frames are lost in bursts; leave one of them out")
    else:
        try:
            _ = link.burst_loss
        except ValueError as error:
            raise refused(f"loss {link.loss:g} in bursts of {link.loss_burst:g}: {error}") from None
    if not link.has_jitter:
        for key in ("reorder", "jitter_distribution", "jitter_kind"):
            if getattr(link, key) != type(link).model_fields[key].default:
                raise refused(f"'{key}' without 'jitter' changes nothing; give the standard deviation: 'jitter: 1 ms'")
    elif link.reorder and link.wanders:
        raise refused(
            "'reorder' changes nothing where the delay wanders: no frame catches up with another; "
            "add 'jitter_kind: independent', or leave 'reorder' out"
        )


def _check_medium(link: Link) -> None:
    if link.medium == "switched":
        for name in ("standard", "efficiency", "aggregation", "wired", "fairness"):
            if getattr(link, name) != type(link).model_fields[name].default:
                raise refused(f"'{name}' belongs to 'medium: shared'; leave it out, or share the air")
        return
    if link.cross_traffic:
        raise refused("'cross_traffic' needs links of the nodes' own; on a shared air add nodes that send it")
    if link.demand:
        raise refused("'demand' is a base station's to grant; on a shared air stations take turns: leave it out")
    if link.up_bps != link.down_bps or any(o.up_bps != o.down_bps for o in link.overrides.values()):
        raise refused("on a shared air a station has one PHY rate, up and down; give 'bandwidth' alone")
    if any(trace is not None and trace.up != trace.down for trace in link.traces):
        raise refused("on a shared air a station has one PHY rate; give one trace for both directions")


def _check_queues(link: Link) -> None:
    for queue in link.queues:
        if queue.unit == "B" and queue.amount < link.full_frame.num_bytes:
            frame = f"one frame ({link.full_frame.num_bytes} B where 'mtu' is {link.mtu})"
            raise refused(f"a queue of {queue.amount:g} B is too small: it has to hold {frame}")


def _check_sites(link: Link) -> None:
    is_shared, frame_bytes = link.medium == "shared", link.full_frame.num_bytes
    wrong = list(wrong_sites(link.sites, link.paths, is_shared=is_shared, frame_bytes=frame_bytes))
    if wrong := [*wrong, *_beyond_sites(link)]:
        raise ValidationError.from_exception_data("link", wrong)


def _beyond_sites(link: Link) -> Iterator[InitErrorDetails]:
    """What links at one place can have, and the lines of sites cannot yet: they serve drop-tail queues alone."""
    if not link.sites:
        return
    for name in ("cross_traffic", "handover", "demand"):
        if getattr(link, name):
            yield problem(f"{name!r} does not go with 'sites' yet; leave it out, or the sites", (name,))
    own = [(("overrides", str(node), "queue"), override.queue) for node, override in link.overrides.items()]
    own += [(("sites", site.name, "queue"), site.queue) for site in link.sites]
    for place, queue in [(("queue",), link.queue), *own]:
        if queue is not None and queue.discipline is not None:
            text = f"a queue that {queue.discipline.discipline} manages does not go with 'sites' yet"
            yield problem(f"{text}; write its size alone, like '50 ms', or leave the sites out", place)


def unknown_nodes(link: Link, num_nodes: int) -> list[tuple[str, str]]:
    """What the link says of nodes that are not among ``num_nodes``, as (key, what is wrong)."""
    named = {
        "overrides": list(link.overrides),
        "wired": list(link.wired),
        "outages": [node for outage in link.outages for node in outage.nodes or ()],
        "cross_traffic": [node for traffic in link.cross_traffic for node in traffic.nodes or ()],
        "handover": list((link.handover and link.handover.nodes) or ()),
    }
    found = [
        (key, f"there is no node {number}; nodes are numbered 0 to {num_nodes - 1}")
        for key, numbers in named.items()
        for number in sorted(set(numbers))
        if number >= num_nodes
    ]
    if link.wired and len(set(link.wired)) >= num_nodes:
        found.append(("wired", "all nodes are wired, so that nobody is on the air; write 'medium: switched'"))
    if link.sites and num_nodes > 1:
        try:
            sizes_of(link.sites, num_nodes)
        except ValueError as error:
            found.append(("sites", str(error)))
    return found
