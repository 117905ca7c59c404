"""DES-LOC: both moments of Adam, each averaged at a period of its own, and which optimizers have them."""

from __future__ import annotations

import copy

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms.des_loc import DesLoc, DesLocConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.fp16 import Fp16


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def moments(node, key):
    return torch.cat([node.optimizer.state[p][key].reshape(-1) for p in node.model.parameters()])


def test_moments_have_the_same_bits_when_they_have_been_averaged():
    def work(group, rank):
        node = attached(group, rank, DesLoc(DesLocConfig(period=2)), "ring", ["fp16"], adam)
        found = []
        for _ in range(12):
            node.train(1)
            found.append([moments(node, key) for key in ("exp_avg", "exp_avg_sq")])
        node.running.close()
        return found

    results = run_ranks(3, work)
    for step in range(1, 13):
        for which, period in enumerate((6, 12)):
            values = [found[step - 1][which] for found in results]
            assert all(torch.equal(one, values[0]) for one in values) == (step % period == 0)
    assert all((found[-1][1] >= 0).all() for found in results)


def test_moments_that_a_checkpoint_has_replaced_are_the_ones_averaged():
    def work(group, rank):
        options = DesLocConfig(period=2, first_moment=1, second_moment=1)
        node = attached(group, rank, DesLoc(options), "ring", ["none"], adam)
        node.train(3)
        node.optimizer.load_state_dict(copy.deepcopy(node.optimizer.state_dict()))
        node.train(1)
        node.running.close()
        return torch.cat([moments(node, key) for key in ("exp_avg", "exp_avg_sq")])

    first, *others = run_ranks(3, work)
    assert all(torch.equal(first, other) for other in others)


def test_bytes_are_those_of_three_periods():
    ours = DesLoc(DesLocConfig(period=8, first_moment=3, second_moment=6))
    whole = Ring().traffic(4, [4 * sum(torch.Size(shape).numel() for shape in SHAPES)])
    sent = ours.traffic(SHAPES, 4, Ring(), Fp16)
    assert sent.total_bytes == pytest.approx(whole.total_bytes * (1 / 2 + 1 / 3 + 1 / 6) / 8)
    assert sent.rounds == pytest.approx(whole.rounds * (1 + 1 / 3 + 1 / 6) / 8)
    assert not sent.in_background
    assert ours.traffic(SHAPES, 4, Ring(), NoCompression).total_bytes == pytest.approx(whole.total_bytes * 1.5 / 8)


def test_only_adam_has_both_moments():
    def work(group, rank):
        with pytest.raises(ConfigError, match="Adam's; got the optimizer SGD"):
            attached(group, rank, DesLoc(), "ring")

    run_ranks(2, work)


def test_a_third_moment_is_refused():
    def with_amsgrad(model):
        return torch.optim.AdamW(model.parameters(), amsgrad=True)

    def work(group, rank):
        with pytest.raises(ConfigError, match="amsgrad=True divides by a third moment"):
            attached(group, rank, DesLoc(), "ring", ["none"], with_amsgrad)

    run_ranks(2, work)


def test_there_is_no_overlap_to_choose():
    with pytest.raises(ValueError, match="overlap"):
        DesLocConfig(overlap=2)
