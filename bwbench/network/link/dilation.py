"""Slow motion: what parts of a link are in the machine's time, where emulated time runs ``factor`` times slower.

Times are multiplied, rates divided, and what counts bytes, frames or chances stays. A factor below 1 is a link that is
faster than the one asked for. What reckons with both rates and times (queues in bytes, frames of a transmission) is
taken from the link that was asked, so that it is the same to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from bwbench.network.link.air import Air
from bwbench.network.link.node_link import NodeLink, NodeOverride, Queue, TcpSettings
from bwbench.network.link.variation import Outage, Traces


def check_dilation(factor: float) -> None:
    """Raise ValueError where emulated time cannot run ``factor`` times slower than the machine's."""
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"a dilation is more than 0 and finite, not {factor}")


def cannot_dilate(congestion_control: str | None) -> str | None:
    """Why TCP's congestion control cannot run in slow motion, in words; None where it can, or where none is named."""
    if congestion_control is None or not congestion_control.startswith("bbr"):
        return None
    return (
        f"{congestion_control} probes by clocks of the kernel's own, which no dilation slows down; "
        "take cubic or reno, or no dilation"
    )


def dilated_node(node: NodeLink, factor: float) -> NodeLink:
    """The same node: its queues hold the same bytes or packets, its frames are lost with the same chance."""
    return replace(
        node,
        up_bps=node.up_bps / factor,
        down_bps=node.down_bps / factor,
        latency_s=node.latency_s * factor,
        jitter_s=node.jitter_s * factor,
        up_trace=node.up_trace and node.up_trace.dilated(factor),
        down_trace=node.down_trace and node.down_trace.dilated(factor),
        discipline=node.discipline and node.discipline.dilated(factor),
    )


def dilated_air(air: Air, factor: float) -> Air:
    """The same air: as many frames in a transmission, which takes ``factor`` times as long with its overhead."""
    return replace(air, overhead_s=air.overhead_s * factor, longest_s=air.longest_s * factor)


def dilated_queue(queue: Queue | None, factor: float) -> Queue | None:
    """As it is written for the slower link: times are longer, all else the same. The minimum of a queue is not here."""
    if queue is None:
        return None
    amount = queue.amount * factor if queue.unit == "s" else queue.amount
    return replace(queue, amount=amount, discipline=queue.discipline and queue.discipline.dilated(factor))


def dilated_traces(traces: Traces | None, factor: float) -> Traces | None:
    """Both directions; see ``Trace.dilated``."""
    if traces is None:
        return None
    return traces.model_copy(
        update={"up": traces.up and traces.up.dilated(factor), "down": traces.down and traces.down.dilated(factor)}
    )


def dilated_outage(outage: Outage, factor: float) -> Outage:
    """Later, longer and rarer by the factor."""
    return outage.model_copy(
        update={
            "at_s": outage.at_s * factor,
            "duration_s": outage.duration_s * factor,
            "every_s": outage.every_s and outage.every_s * factor,
        }
    )


def dilated_tcp(tcp: TcpSettings, factor: float) -> TcpSettings:
    """Buffers stay; what the kernel takes of the longest wait is for ``namespaces/retransmission.py`` to say."""
    return tcp.model_copy(update={"rto_max_s": tcp.rto_max_s and tcp.rto_max_s * factor})


def dilated_keys(
    bandwidth_bps: float | None,
    up_bps: float | None,
    down_bps: float | None,
    latency_s: float | None,
    jitter_s: float | None,
    factor: float,
) -> dict[str, float | None]:
    """Rates and times that a link and what differs at a node have in common; None stays None."""
    rates = {"bandwidth_bps": bandwidth_bps, "up_bps": up_bps, "down_bps": down_bps}
    times = {"latency_s": latency_s, "jitter_s": jitter_s}
    return {name: rate and rate / factor for name, rate in rates.items()} | {
        name: time_s and time_s * factor for name, time_s in times.items()
    }


def dilated_overrides(overrides: Mapping[int, NodeOverride], factor: float) -> dict[int, NodeOverride]:
    """What differs at each node, in the machine's time."""
    return {
        node: own.model_copy(
            update={
                **dilated_keys(own.bandwidth_bps, own.up_bps, own.down_bps, own.latency_s, own.jitter_s, factor),
                "queue": dilated_queue(own.queue, factor),
                "trace": dilated_traces(own.trace, factor),
            }
        )
        for node, own in overrides.items()
    }
