"""Collectives that average over some of the ranks: against plain references of whom each one meets."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.methods.collectives.collective_contract import LOSSLESS, inputs, make_codec
from bwbench.methods.collectives.gossip import GossipPair, Neighbours, peer_of
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from tests.contract.test_collectives import PARTIAL_PAIRS, average


def test_nothing_partial_is_forgotten_here():
    assert {name for name, _ in PARTIAL_PAIRS} == {"gossip-pair", "neighbours"}


def pairs(num_ranks, step):
    """The rule as Bagua states it, for the ranks of the first half and for those of the second."""
    first = {rank: (step + rank) % ((num_ranks + 1) // 2) + num_ranks // 2 for rank in range(num_ranks // 2)}
    second = {rank: (rank - num_ranks // 2 - step) % (num_ranks // 2) for rank in range(num_ranks // 2, num_ranks)}
    return first | second


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 10])
def test_the_peer_rule(num_ranks):
    met = set()
    for step in range(2 * num_ranks):
        plain = pairs(num_ranks, step)
        assert plain == {rank: peer_of(rank, step, num_ranks) for rank in range(num_ranks)}
        assert all(plain[plain[rank]] == rank != plain[rank] for rank in plain)
        met |= set(plain.items())
    half = num_ranks // 2
    assert met == {(a, b) for a in range(num_ranks) for b in range(num_ranks) if (a < half) != (b < half)}


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize("codec", [codec for name, codec in PARTIAL_PAIRS if name == "gossip-pair"])
def test_gossip_averages_pairs_round_by_round(codec, num_ranks):
    tensors = inputs(num_ranks, 3_001)

    def work(group, rank):
        ours = GossipPair()
        ours.connect(group)
        mine, bucket = [], tensors[rank].clone()
        made = make_codec(codec, 3_001, rank)
        for _ in range(5):
            ours.average(bucket, made, round_of(group, 2))
            mine.append(bucket.clone())
        return mine

    results = run_ranks(num_ranks, work)
    plain = torch.stack(tensors)
    for step in range(5):
        peers = pairs(num_ranks, step)
        plain = torch.stack([(plain[rank] + plain[peers[rank]]) / 2 for rank in range(num_ranks)])
        for rank in range(num_ranks):
            assert torch.equal(results[rank][step], results[peers[rank]][step]), "a pair must end with the same bits"
            if codec in LOSSLESS:
                assert torch.allclose(results[rank][step], plain[rank], atol=5 * LOSSLESS[codec])


def test_gossip_counts_rounds_for_each_bucket_and_rewinds():
    def work(group, rank):
        ours, codec = GossipPair(), make_codec("none")
        ours.connect(group)

        def values(tag):
            bucket = torch.full((2,), float(rank))
            ours.average(bucket, codec, round_of(group, tag))
            return float(bucket[0])

        met = [values(0), values(0), values(7)]
        state = ours.state_dict()
        ours.reset()
        met += [values(0)]
        ours = GossipPair()
        ours.connect(group)
        ours.load_state_dict(state)
        return [*met, values(0), values(7)]

    for rank, met in enumerate(run_ranks(8, work)):
        expected = [(rank + pairs(8, step)[rank]) / 2 for step in (0, 1, 0, 0, 2, 1)]
        assert met == expected


@pytest.mark.parametrize("num_ranks", [3, 5])
def test_gossip_refuses_an_odd_number(num_ranks):
    def work(group, rank):
        with pytest.raises(ConfigError, match="even number"):
            GossipPair().connect(group)

    run_ranks(num_ranks, work)


def mixing(num_ranks):
    """The mixing matrix of a ring; of two ranks, whose neighbours are one."""
    if num_ranks == 2:
        return torch.full((2, 2), 0.5, dtype=torch.float64)
    eye = torch.eye(num_ranks, dtype=torch.float64)
    return (eye + eye.roll(1, 0) + eye.roll(-1, 0)) / 3


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("codec", [codec for name, codec in PARTIAL_PAIRS if name == "neighbours"])
def test_neighbours_mix_as_the_matrix_says(codec, num_ranks):
    tensors = inputs(num_ranks, 2_003)
    results = torch.stack([result for result, _, _ in average("neighbours", codec, tensors)])
    if num_ranks == 1:
        assert torch.equal(results[0], tensors[0])
        return
    matrix = mixing(num_ranks)
    assert torch.allclose(matrix.sum(0), torch.ones(num_ranks, dtype=torch.float64))
    if codec in LOSSLESS:
        plain = (matrix @ torch.stack(tensors).double()).float()
        assert torch.allclose(results, plain, atol=3 * LOSSLESS[codec])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
def test_neighbours_exchange_payloads_of_any_length(num_ranks):
    def work(group, rank):
        ours = Neighbours()
        ours.connect(group)
        for length in (3, 0, 40):
            payload = torch.full((length + rank,), rank, dtype=torch.uint8)
            left, right = ours.exchange(payload, 50, round_of(group, 1))
            for neighbour, received in (((rank - 1) % num_ranks, left), ((rank + 1) % num_ranks, right)):
                assert received.tolist() == [neighbour] * (length + neighbour)
        with pytest.raises(ValueError, match="promised"):
            ours.exchange(torch.zeros(51, dtype=torch.uint8), 50, round_of(group, 1))

    run_ranks(num_ranks, work)
