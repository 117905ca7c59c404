"""What must hold between the fields of a link; each refusal says what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from bwbench.network.link.link import Link

_OF_A_SHARED_AIR = ("standard", "efficiency", "aggregation", "wired")


def check(link: Link) -> None:
    """Raise PydanticCustomError for the first thing that does not hold."""
    if not link.shaped:
        asked = link.model_dump(by_alias=True, exclude_defaults=True, exclude={"shaped", "backend", "tcp", "seed"})
        if asked:
            raise _refused(
                f"an unshaped link takes no bandwidth, latency, jitter, loss or queue (here: {', '.join(asked)})"
            )
        return
    _check_rates(link)
    _check_random(link)
    _check_medium(link)


def _check_rates(link: Link) -> None:
    for name, rate_bps in (("up", link.up_bps), ("down", link.down_bps)):
        traced = link.trace is not None and getattr(link.trace, name) is not None
        if link.bandwidth_bps is None and rate_bps is None and not traced:
            other = "a shaped link needs a bandwidth: '10 Mbit/s' (or write link: unshaped)"
            if link.up_bps or link.down_bps or link.trace:
                other = f"only one direction has a rate; give 'bandwidth' or '{name}' as well"
            raise _refused(other)
        if traced and rate_bps is not None:
            raise _refused(f"'{name}' and the trace both say how fast that direction is; leave one of them out")
    if link.trace is not None and link.trace.up and link.trace.down and link.bandwidth_bps is not None:
        raise _refused("'bandwidth' and the trace both say how fast the link is; leave one of them out")


def _check_random(link: Link) -> None:
    losses = [link.loss, *(override.loss for override in link.overrides.values() if override.loss is not None)]
    if link.loss_burst is None:
        if link.loss_in_bad != 1.0 or link.loss_in_good != 0.0:
            raise _refused("'loss_in_bad' and 'loss_in_good' belong to bursts; give 'loss_burst', their mean length")
    elif not link.loss:
        raise _refused("'loss_burst' without 'loss' loses nothing; give the share of frames lost: 'loss: 0.01'")
    elif len(losses) > 1:
        raise _refused("a node cannot have a loss of its own where frames are lost in bursts; leave one of them out")
    else:
        try:
            _ = link.burst_loss
        except ValueError as error:
            raise _refused(f"loss {link.loss:g} in bursts of {link.loss_burst:g}: {error}") from None
    if (link.reorder or link.jitter_distribution != "normal") and not any(
        [link.jitter_s, *(override.jitter_s for override in link.overrides.values())]
    ):
        key = "reorder" if link.reorder else "jitter_distribution"
        raise _refused(f"'{key}' without 'jitter' changes nothing; give the standard deviation: 'jitter: 1 ms'")


def _check_medium(link: Link) -> None:
    if link.medium == "switched":
        for name in _OF_A_SHARED_AIR:
            if getattr(link, name):
                raise _refused(f"'{name}' belongs to 'medium: shared'; leave it out, or share the air")
        if link.fairness != "packet":
            raise _refused("'fairness' belongs to 'medium: shared'; leave it out, or share the air")
        return
    if link.up_bps != link.down_bps or any(o.up_bps != o.down_bps for o in link.overrides.values()):
        raise _refused("on a shared air a station has one PHY rate, up and down; give 'bandwidth' alone")
    traces = [link.trace, *(override.trace for override in link.overrides.values())]
    if any(trace is not None and trace.up != trace.down for trace in traces):
        raise _refused("on a shared air a station has one PHY rate; give one trace for both directions")


def unknown_nodes(link: Link, num_nodes: int) -> list[tuple[str, str]]:
    """What the link says of nodes that are not among ``num_nodes``, as (key, what is wrong)."""
    named = {
        "overrides": list(link.overrides),
        "wired": list(link.wired),
        "outages": [node for outage in link.outages for node in outage.nodes or ()],
    }
    found = [
        (key, f"there is no node {number}; nodes are numbered 0 to {num_nodes - 1}")
        for key, numbers in named.items()
        for number in sorted(set(numbers))
        if number >= num_nodes
    ]
    if link.wired and len(set(link.wired)) >= num_nodes:
        found.append(("wired", "all nodes are wired, so that nobody is on the air; write 'medium: switched'"))
    return found


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError("link", "{message}", {"message": text})
