from __future__ import annotations

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.collectives.hierarchical import Hierarchical, HierarchicalConfig
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.network.link import Link
from tests.contract.test_collectives import average, inputs

LINK = Link.model_validate({"bandwidth": "1 Gbit/s"})
SITES = Link.model_validate({"bandwidth": "1 Gbit/s", "regions": ["oregon", "virginia"]})


@pytest.mark.parametrize("across", ["ring", "scatter-gather", "all-gather", "parameter-server"])
@pytest.mark.parametrize(("num_ranks", "workers"), [(2, 2), (3, 2), (4, 1), (5, 3), (7, 3), (8, 4)])
def test_the_mean_over_all_ranks_however_hosts_are_filled(across, num_ranks, workers):
    tensors = inputs(num_ranks, 20_001)
    options = {"workers_per_host": workers, "across": across}
    results = average("hierarchical", "none", tensors, options=options)
    assert all(torch.equal(result, results[0][0]) for result, _, _ in results)
    assert torch.allclose(results[0][0], torch.stack(tensors).mean(0), atol=1e-6)
    traffic = Hierarchical(HierarchicalConfig(**options)).traffic(num_ranks, [4 * 20_001])
    for rank, (_, payload_bytes, _) in enumerate(results):
        assert payload_bytes == pytest.approx(traffic.payload_bytes_per_rank[rank], rel=2e-3)
        assert rank % workers == 0 or payload_bytes == 0
    assert sum(traffic.received_bytes_per_rank) == pytest.approx(traffic.total_bytes)


def test_only_what_crosses_hosts_counts():
    traffic = Hierarchical(HierarchicalConfig(workers_per_host=4)).traffic(8, [1000])
    assert traffic.payload_bytes_per_rank == (1000, 0, 0, 0, 1000, 0, 0, 0)
    assert Hierarchical(HierarchicalConfig(workers_per_host=8)).traffic(8, [1000]).total_bytes == 0


def test_nonsense_is_refused():
    def work(group, rank):
        with pytest.raises(ConfigError, match="workers_per_host is 4"):
            Hierarchical(HierarchicalConfig(workers_per_host=4)).connect(group)

    run_ranks(2, work)
    assert "cannot average" in Hierarchical(HierarchicalConfig(across="gossip-pair")).check(4)
    assert "cannot average" in Hierarchical(HierarchicalConfig(across="torch")).check(4)
    assert "cannot average" in Hierarchical(HierarchicalConfig(across="hierarchical")).check(4)
    assert "Did you mean 'ring'" in Hierarchical(HierarchicalConfig(across="rign")).check(4)
    assert "cannot carry" in Hierarchical().check(4, [COMPRESSIONS.load("threshold")])
    assert Hierarchical(HierarchicalConfig(across="all-gather")).check(4, [COMPRESSIONS.load("threshold")]) is None


@pytest.mark.parametrize("sites", [(1, 3), (2, 2), (3, 1, 1)])
def test_sites_count_what_crosses_their_lan(sites):
    tensors = inputs(sum(sites), 20_001)
    results = average("hierarchical", "none", tensors, options={"sites": sites})
    assert all(torch.equal(result, results[0][0]) for result, _, _ in results)
    assert torch.allclose(results[0][0], torch.stack(tensors).mean(0), atol=1e-6)
    ours = Hierarchical(HierarchicalConfig(sites=sites))
    between, inside = ours.traffic(sum(sites), [4 * 20_001]), ours.inside(sum(sites), [4 * 20_001])
    for rank, (_, payload_bytes, _) in enumerate(results):
        predicted = between.payload_bytes_per_rank[rank] + inside.payload_bytes_per_rank[rank]
        assert payload_bytes == pytest.approx(predicted, rel=2e-3)
    leaders = {sum(sites[:number]) for number in range(len(sites))}
    assert {rank for rank, size in enumerate(between.payload_bytes_per_rank) if size} == leaders


@pytest.mark.parametrize("options", [{"workers_per_host": 2}, {"workers_per_host": 3}])
def test_within_hosts_nothing_crosses_a_network_unless_the_link_has_sites(options):
    ours = Hierarchical(HierarchicalConfig(**options))
    tensors = inputs(4, 20_001)
    for link, has_lan in ((None, False), (LINK, False), (SITES, True)):
        results = average("hierarchical", "none", tensors, options=options, link=link)
        between, inside = ours.traffic(4, [4 * 20_001]), ours.inside(4, [4 * 20_001], link)
        assert (inside.total_bytes > 0) == has_lan
        for rank, (_, payload_bytes, _) in enumerate(results):
            predicted = between.payload_bytes_per_rank[rank] + inside.payload_bytes_per_rank[rank]
            assert payload_bytes == pytest.approx(predicted, rel=2e-3)


def test_the_sites_of_a_link_are_hosts_unless_somebody_says_otherwise():
    assert Hierarchical.at_sites(HierarchicalConfig(), [2, 3]).sites == (2, 3)
    assert Hierarchical.at_sites(HierarchicalConfig(workers_per_host=4), [2, 3]).sites == ()
    assert "sites: 2, 3 are 5 nodes, and there are 6" in Hierarchical(HierarchicalConfig(sites=(2, 3))).check(6)
