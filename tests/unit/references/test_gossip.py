"""Gossip: pairs, mixing matrices, and that the mean is kept."""

from __future__ import annotations

import pytest
import torch

from tests.references import compressors as rc
from tests.references.gossip import Decentralized, LowPrecisionDecentralized, shift_one_peer
from tests.unit.references.closed_forms import LR, flat, gradients_of, near, run, start, torch_run


def test_shift_one_pairs() -> None:
    for ranks in (2, 4, 6, 8):
        for count in range(2 * ranks):
            peers = [shift_one_peer(rank, ranks, count) for rank in range(ranks)]
            assert all(peers[peers[rank]] == rank != peers[rank] for rank in range(ranks))
        met = {shift_one_peer(0, ranks, count) for count in range(ranks // 2)}
        assert met == set(range(ranks // 2, ranks))
    assert [shift_one_peer(rank, 4, 1) for rank in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize("peers", ["all", "shift-one"])
def test_decentralized_keeps_the_mean(peers: str) -> None:
    one = Decentralized(start(4), LR, peers=peers)
    for t in range(5):
        grads = gradients_of(one, t)
        before = [flat(tensors) for tensors in one.parameters]
        one.step(grads)
        after = sum(flat(tensors) for tensors in one.parameters) / 4
        near(after, sum(before) / 4 - LR * sum(flat(g) for g in grads) / 4)
        peer = shift_one_peer(2, 4, t)
        source = sum(before) / 4 if peers == "all" else (before[2] + before[peer]) / 2
        near(flat(one.parameters[2]), source - LR * flat(grads[2]))


def test_decentralized_interval_and_one_rank() -> None:
    for first, expected in ((0, [0, 3, 6]), (2, [2, 5])):
        one = Decentralized(start(2), 0.0, interval=3, first=first)
        seen = []
        for t in range(8):
            one.parameters[0][0] += 1.0  # apart, so that an exchange shows
            one.step(gradients_of(one, t))
            if torch.equal(one.parameters[0][0], one.parameters[1][0]):
                seen.append(t)
        assert seen == expected
    alone = run(Decentralized(start(1), LR, momentum=0.9), 5)
    near(flat(alone.parameters[0]), torch_run(lambda p: torch.optim.SGD(p, LR, momentum=0.9), 1, 5))


@pytest.mark.parametrize(("ranks", "two"), [(2, "half"), (2, "literal"), (3, "half"), (5, "half")])
def test_low_precision_exact_codec_is_mixing(ranks: int, two: str) -> None:
    """With Q = identity: x <- W o + (x_new - o) with the doubly stochastic W of the ring."""
    one = LowPrecisionDecentralized(start(ranks), LR, roundtrip=rc.identity, two_ranks=two)
    mixing = torch.zeros(ranks, ranks, dtype=torch.float64)
    for rank in range(ranks):
        if ranks == 2:
            share = 1 / 2 if two == "half" else 2 / 3
            mixing[rank, rank], mixing[rank, 1 - rank] = 1 - share, share
        else:
            for peer in (rank - 1, rank, rank + 1):
                mixing[rank, peer % ranks] += 1 / 3
    for t in range(5):
        grads = gradients_of(one, t)
        old = torch.stack([flat(tensors) for tensors in one.parameters])
        one.step(grads)
        new = torch.stack([flat(tensors) for tensors in one.parameters])
        near(new, mixing @ old - LR * torch.stack([flat(g) for g in grads]))
    alone = run(LowPrecisionDecentralized(start(1), LR), 3)
    near(flat(alone.parameters[0]), torch_run(lambda p: torch.optim.SGD(p, LR), 1, 3))


def test_low_precision_quantised_agrees() -> None:
    """The replicas come together once the gradients stop, although only bytes travel."""
    one = run(LowPrecisionDecentralized(start(4), LR), 10)
    nothing = [[torch.zeros_like(tensor) for tensor in tensors] for tensors in one.parameters]
    spread = torch.stack([flat(tensors) for tensors in one.parameters]).std(0).max()
    for _ in range(60):
        one.step(nothing)
    assert torch.stack([flat(tensors) for tensors in one.parameters]).std(0).max() < 1e-3 * spread
