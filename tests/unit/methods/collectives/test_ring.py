from __future__ import annotations

import pytest
import torch

from bwbench.methods.collectives import ring as ring_module
from bwbench.methods.collectives.ring import LARGEST_DIRECT_CHUNK_BYTES, Ring, RingConfig, goes_directly
from bwbench.methods.collectives.transport import Members, Round
from bwbench.methods.compression.codec import NoCompression
from bwbench.network.link import Link
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


@pytest.mark.parametrize("paced", [True, False])
def test_an_unpaced_ring_is_told_nothing_of_its_link(paced, monkeypatch):
    told = []
    monkeypatch.setattr(ring_module, "in_flight_bytes", lambda link, size: told.append(link) or 1000.0)
    ring = Ring(RingConfig(paced=paced))
    ring.link = Link(bandwidth="10 Mbit/s")
    with pytest.raises(RuntimeError, match="not connected"):  # it has looked at its link by then
        ring._average(torch.zeros(100_000), NoCompression(), Round(0, Members((0, 1, 2), 0)))
    assert told == [ring.link if paced else None]
    assert ring._flows(4) == (1 if paced else 0)
