"""Ranks of a host share what crosses the link; what every collective keeps is asked by the contract tests."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.collectives.collective_contract import violations
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.sharded import Sharded, ShardedConfig
from bwbench.network.link import Link
from tests.contract.test_collectives import average, inputs

LAN = Link.model_validate({"bandwidth": "1 Gbit/s", "regions": ["oregon", "virginia"]})


@pytest.mark.parametrize("across", ["ring", "scatter-gather", "all-gather", "parameter-server"])
@pytest.mark.parametrize(("num_ranks", "workers"), [(2, 2), (3, 2), (4, 1), (5, 3), (7, 3), (8, 4)])
def test_the_mean_over_all_ranks_however_hosts_are_filled(across, num_ranks, workers):
    tensors = inputs(num_ranks, 20_001)
    options = {"workers_per_host": workers, "across": across}
    results = average("sharded", "none", tensors, options=options)
    assert all(torch.equal(result, results[0][0]) for result, _, _ in results)
    assert torch.allclose(results[0][0], torch.stack(tensors).mean(0), atol=1e-6)
    traffic = Sharded(ShardedConfig(**options)).traffic(num_ranks, [4 * 20_001])
    for rank, (_, payload_bytes, _) in enumerate(results):
        assert payload_bytes == pytest.approx(traffic.payload_bytes_per_rank[rank], rel=2e-3)
    assert sum(traffic.received_bytes_per_rank) == pytest.approx(traffic.total_bytes)


@pytest.mark.parametrize(
    ("across", "codec"),
    [("ring", "fp16"), ("scatter-gather", "int8"), ("all-gather", "threshold"), ("ring", "powersgd")],
)
def test_several_hosts_keep_the_contract_of_collectives(across, codec):
    options = ShardedConfig(workers_per_host=2, across=across)
    assert violations(lambda: Sharded(options), codec, [3, 4, 5]) == []


def test_as_many_bytes_cross_as_leaders_would_send_and_every_rank_sends_its_part():
    traffic = Sharded(ShardedConfig(workers_per_host=4)).traffic(8, [1000])
    assert traffic.payload_bytes_per_rank == (250,) * 8
    assert traffic.total_bytes == 2000
    assert Sharded(ShardedConfig(workers_per_host=8)).traffic(8, [1000]).total_bytes == 0
    uneven = Sharded(ShardedConfig(workers_per_host=2)).traffic(3, [1000])
    assert uneven.payload_bytes_per_rank == (500, 500, 1000), "the last rank has both shards of its host"


@pytest.mark.parametrize(("num_ranks", "workers"), [(4, 2), (5, 3), (3, 3)])
def test_what_hosts_say_inside_counts_where_it_crosses_a_lan(num_ranks, workers):
    options = {"workers_per_host": workers}
    ours = Sharded(ShardedConfig(**options))
    between, inside = ours.traffic(num_ranks, [4 * 20_001]), ours.inside(num_ranks, [4 * 20_001], LAN)
    results = average("sharded", "none", inputs(num_ranks, 20_001), options=options, link=LAN)
    for rank, (_, payload_bytes, _) in enumerate(results):
        predicted = between.payload_bytes_per_rank[rank] + inside.payload_bytes_per_rank[rank]
        assert payload_bytes == pytest.approx(predicted, rel=2e-3)
    assert ours.inside(num_ranks, [4 * 20_001]).total_bytes == 0


def test_the_same_shard_goes_from_host_to_host():
    traffic = Sharded(ShardedConfig(workers_per_host=2)).traffic(5, [1_000_000])
    assert traffic.peers == "next"
    assert traffic.groups == ((0, 2, 4), (1, 3, 4)), "the last rank has both shards of its host"
    first, second = traffic.ways()
    assert [way[:2] for way in first] == [(0, 2), (2, 4), (4, 0)]
    assert [way[2] for way in (*first, *second)] == pytest.approx([2e6 / 3] * 6)


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_a_host_alone_adds_up_in_the_order_of_the_ranks_as_a_leader_does(num_ranks):
    tensors = inputs(num_ranks, 10_007)
    options = {"workers_per_host": num_ranks}
    sharded, led = (average(name, "none", tensors, options=options)[0][0] for name in ("sharded", "hierarchical"))
    assert torch.equal(sharded, led)


def test_nonsense_is_refused():
    def work(group, rank):
        with pytest.raises(ConfigError, match="workers_per_host is 4"):
            Sharded(ShardedConfig(workers_per_host=4)).connect(group)

    run_ranks(2, work)
    for across in ("gossip-pair", "torch", "hierarchical", "sharded"):
        assert "cannot average" in Sharded(ShardedConfig(across=across)).check(4)
    assert "Did you mean 'ring'" in Sharded(ShardedConfig(across="rign")).check(4)
    assert "cannot carry" in Sharded().check(4, [COMPRESSIONS.load("threshold")])
    assert Sharded(ShardedConfig(across="all-gather")).check(4, [COMPRESSIONS.load("threshold")]) is None
