from __future__ import annotations

import pytest
import torch

from bwbench.methods.collectives.ring import LARGEST_DIRECT_CHUNK_BYTES, Ring, goes_directly
from tests.contract.test_collectives import average, inputs


def test_latency_counts_twice_where_buckets_are_small():
    small, large = 4 * LARGEST_DIRECT_CHUNK_BYTES, 4 * LARGEST_DIRECT_CHUNK_BYTES + 4
    assert goes_directly(small, 4) and not goes_directly(large, 4)
    ring = Ring()
    assert ring.traffic(4, [large]).rounds == 6
    assert ring.traffic(4, [large, small, small]).rounds == 6 + 2 + 2
    assert ring.traffic(2, [small]).rounds == ring.traffic(2, [large]).rounds == 2
    assert ring.traffic(4, [small]).payload_bytes_per_rank == (1.5 * small,) * 4


@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_nothing_jumps_where_the_way_changes(codec):
    num_ranks, tolerance = 3, 1e-6 if codec == "none" else 4e-3
    limit = num_ranks * LARGEST_DIRECT_CHUNK_BYTES // (4 if codec == "none" else 2)
    tensors = inputs(num_ranks, limit + 1)
    beyond = average("ring", codec, tensors)[0][0]
    within = average("ring", codec, [tensor[:limit] for tensor in tensors])[0][0]
    assert (beyond[:limit] - within).abs().max() < tolerance
    assert (beyond - torch.stack(tensors).mean(0)).abs().max() < tolerance
