"""What the relay was told to do, in the words of the link and in SI units: goes into every result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bwbench.network.link import Link
from bwbench.network.link.node_link import NodeLink
from bwbench.network.link.variation import Trace
from bwbench.network.relay.relay_model import RelayModel


def applied(link: Link, model: RelayModel) -> dict[str, Any]:
    """The parameters, JSON-able: those of most nodes, and under ``nodes`` what is different, by the node's number.

    Args:
        model: what was made of the link.
    """
    usual = _node(link.base)
    differing = {node: _node(link.node(node)) for node in sorted(link.overrides)}
    return {
        "bandwidth_bps": link.base.slowest_bps,
        **usual,
        "jitter_distribution": model.jitter_distribution,
        "reorder": model.reorder,
        "burst_loss": asdict(model.burst_loss) if model.burst_loss else None,
        "medium": link.medium,
        "air": {**asdict(model.air), "wired": sorted(model.air.wired)} if model.air else None,
        "nodes": {
            str(node): {key: value for key, value in own.items() if value != usual[key]}
            for node, own in differing.items()
        },
        "outages": [outage.model_dump(mode="json") for outage in model.outages],
        "seed": model.seed,
    }


def _node(node: NodeLink) -> dict[str, Any]:
    return {
        "up_bps": node.up_bps,
        "down_bps": node.down_bps,
        "latency_s": node.latency_s,
        "jitter_s": node.jitter_s,
        "loss": node.loss,
        "queue_bytes": node.up_queue_bytes,
        "down_queue_bytes": node.down_queue_bytes,
        "queue_packets": node.queue_packets,
        "up_trace": _trace(node.up_trace),
        "down_trace": _trace(node.down_trace),
    }


def _trace(trace: Trace | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    return {"file": trace.file, "start_s": trace.start_s, "sha256": trace.sha256, "mean_bps": trace.mean_bps}
