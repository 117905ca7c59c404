"""NoLoCo: random pairs, which all ranks know, how news spread among them, and what it goes with."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS, OPTIMIZERS
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.algorithms.decentralized import Decentralized, DecentralizedConfig
from bwbench.methods.algorithms.noloco import Noloco, NolocoConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached
from bwbench.methods.collectives.gossip import GossipPair, GossipPairConfig, Neighbours, random_peers
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.codec import NoCompression

PERIOD = 4
SGD = Component("sgd", OPTIMIZERS.load("sgd").Config())


@pytest.mark.parametrize("num_nodes", [2, 4, 6, 16])
def test_random_pairs_are_pairs_and_meet_everybody(num_nodes):
    met = set()
    for number in range(40 * num_nodes):
        peers = random_peers(number, num_nodes)
        assert all(peers[peers[rank]] == rank != peers[rank] for rank in range(num_nodes))
        met |= set(enumerate(peers))
    assert len(met) == num_nodes * (num_nodes - 1)


def test_random_pairs_are_always_the_same():
    assert [random_peers(number, 4) for number in range(3)] == [random_peers(number, 4) for number in range(3)]
    assert len({random_peers(number, 6) for number in range(30)}) > 5


def test_a_round_of_random_pairs_averages_them():
    def work(group, rank):
        ours = GossipPair(GossipPairConfig(pairs="random"))
        ours.connect(group)
        means = []
        for _ in range(4):
            bucket = torch.full((3,), float(rank))
            ours.average(bucket, NoCompression(), round_of(group, 0))
            means.append(float(bucket[0]))
        return means

    for rank, means in enumerate(run_ranks(4, work)):
        assert means == [(rank + random_peers(number, 4)[rank]) / 2 for number in range(4)]


@pytest.mark.parametrize("num_nodes", [2, 4, 8, 30])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_news_have_reached_everybody_when_it_is_said(first, num_nodes):
    ours = GossipPair(GossipPairConfig(pairs="random"))
    rounds = ours.rounds_to_reach_all(first, num_nodes)
    heard = torch.eye(num_nodes)
    for number in range(first, first + rounds):
        assert not heard.all()
        heard = (heard + heard[list(random_peers(number, num_nodes))]).clamp(max=1)
    assert heard.all()
    assert GossipPair().rounds_to_reach_all(first, num_nodes) == num_nodes
    assert Neighbours().rounds_to_reach_all(first, num_nodes) == num_nodes
    assert Ring().rounds_to_reach_all(first, num_nodes) == 1


def test_ranks_stop_when_all_have_heard_of_it():
    def work(group, rank):
        pairs = GossipPair(GossipPairConfig(pairs="random"))
        node = attached(group, rank, Noloco(NolocoConfig(period=PERIOD)), pairs)
        found = [node.running.agreement_step(step) for step in range(1, 13)]
        node.running.close()
        node = attached(group, rank, Decentralized(DecentralizedConfig(interval=3)), GossipPair(pairs.options))
        found.append(node.running.agreement_step(5))
        node.running.close()
        return found

    pairs = GossipPair(GossipPairConfig(pairs="random"))
    expected = [(number + pairs.rounds_to_reach_all(number, 4)) * PERIOD for number in range(3) for _ in range(PERIOD)]
    expected.append((1 + pairs.rounds_to_reach_all(1, 4)) * 3)
    assert run_ranks(4, work) == [expected] * 4


def test_with_all_in_a_round_replicas_are_equal():
    """A mean over all: outer values stay equal, there is nothing to pull, and heavy-ball momentum is left."""

    def work(group, rank):
        node = attached(group, rank, Noloco(NolocoConfig(period=PERIOD)), "ring")
        node.train(2 * PERIOD)
        node.running.close()
        return node.trajectory[-1]

    first, *others = run_ranks(3, work)
    assert all(torch.equal(first, other) for other in others)


def test_a_payload_a_round_however_many_nodes():
    ours = Noloco(NolocoConfig(period=10))
    for num_nodes in (2, 4, 8):
        traffic = ours.traffic(SHAPES, num_nodes, GossipPair(), NoCompression)
        elements = sum(torch.Size(shape).numel() for shape in SHAPES)
        assert traffic.payload_bytes_per_rank == (pytest.approx(4 * elements / 10),) * num_nodes


@pytest.mark.parametrize("codec", ["none", "fp16", "bf16"])
def test_codecs_that_keep_weights_are_taken(codec):
    assert Noloco.accepts_codec(COMPRESSIONS.load(codec)) is None


@pytest.mark.parametrize("codec", ["int8", "top-k", "powersgd", "sign"])
def test_other_codecs_are_refused(codec):
    assert Noloco.accepts_codec(COMPRESSIONS.load(codec)) is not None
    with pytest.raises(ConfigError, match=codec):
        resolve_method({"algorithm": "noloco", "compression": codec}, 4, SGD)


def test_an_odd_number_of_nodes_is_refused():
    with pytest.raises(ConfigError, match="even number"):
        resolve_method({"algorithm": "noloco"}, 5, SGD)
