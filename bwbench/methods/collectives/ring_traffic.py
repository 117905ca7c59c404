"""What a ring all-reduce moves: ours and gloo's alike."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.methods.traffic import Traffic


def ring_traffic(num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
    """2(N-1)/N of each bucket sent and received by every rank, at the same time, in 2(N-1) rounds a bucket."""
    each = (2 * (num_nodes - 1) / num_nodes * sum(bucket_payload_bytes),) * num_nodes
    return Traffic(each, each, 2 * (num_nodes - 1) * len(bucket_payload_bytes))
