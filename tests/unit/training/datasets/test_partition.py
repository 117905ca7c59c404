"""Who sees which sample: properties that hold for any size, and what makes the three ways differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.base.errors import ConfigError
from bwbench.training.datasets.dataset_contract import partition_violations
from bwbench.training.datasets.partition import Dirichlet, IidFixed, IidReshuffled, fit_counts

RESHUFFLED, FIXED = IidReshuffled(IidReshuffled.Config()), IidFixed(IidFixed.Config())
TARGETS = np.arange(4000) % 10


def dirichlet(alpha: float) -> Dirichlet:
    return Dirichlet(Dirichlet.Config(alpha=alpha))


def orders(partition, num_nodes=4, epoch=0, seed=0, targets=TARGETS):
    return [partition.order(targets, num_nodes, rank, epoch, seed) for rank in range(num_nodes)]


@settings(max_examples=60, deadline=None)
@given(num_nodes=st.integers(1, 9), extra=st.integers(0, 50), alpha=st.sampled_from([1e-3, 0.1, 1.0, 1e6]))
def test_equal_lengths_and_every_index_at_most_once(num_nodes, extra, alpha):
    for partition in (RESHUFFLED, FIXED, dirichlet(alpha)):
        assert partition_violations(partition, num_nodes + extra, num_nodes) == []


def test_reshuffled_gives_the_same_global_batch_to_any_number_of_nodes():
    alone = RESHUFFLED.order(TARGETS, 1, 0, 3, 5)
    four = orders(RESHUFFLED, 4, 3, 5)
    for step in range(5):
        together = np.concatenate([order[32 * step : 32 * (step + 1)] for order in four])
        assert set(together) == set(alone[128 * step : 128 * (step + 1)])


def test_reshuffled_moves_samples_between_nodes_and_fixed_ones_do_not():
    for partition, stays in ((RESHUFFLED, False), (FIXED, True), (dirichlet(0.3), True)):
        first, second = orders(partition, epoch=0), orders(partition, epoch=1)
        assert not np.array_equal(first[0], second[0])
        assert (set(first[0]) == set(second[0])) is stays


def test_the_seed_changes_who_gets_what():
    for partition in (RESHUFFLED, FIXED, dirichlet(0.3)):
        assert set(orders(partition, seed=0)[0]) != set(orders(partition, seed=1)[0])


def skew(alpha: float) -> float:
    """Share of a node's samples that its largest class takes, averaged over nodes and five seeds."""
    shares = [
        np.bincount(TARGETS[order], minlength=10).max() / len(order)
        for seed in range(5)
        for order in orders(dirichlet(alpha), 8, seed=seed)
    ]
    return float(np.mean(shares))


def test_smaller_alpha_makes_nodes_less_alike():
    assert skew(1e5) < 0.13  # ten equal classes
    assert skew(1e5) < skew(10) < skew(1) < skew(0.1)
    assert skew(0.01) > 0.6


def test_dirichlet_keeps_rare_classes():
    targets = np.array([0] * 970 + [1] * 25 + [2] * 5)
    together = np.concatenate(orders(dirichlet(0.3), 4, targets=targets))
    assert sorted(together) == list(range(1000))


def test_dirichlet_needs_one_class_a_sample():
    with pytest.raises(ConfigError, match="text has none: use iid-fixed"):
        dirichlet(1.0).order(np.zeros((10, 4), np.int64), 2, 0, 0, 0)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf")])
def test_alpha_must_be_positive_and_finite(alpha):
    with pytest.raises(ValidationError):
        Dirichlet.Config(alpha=alpha)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    num_nodes=st.integers(1, 6),
    seed=st.integers(0, 10),
    alpha=st.sampled_from([1e-3, 0.3, 100.0]),
)
def test_counts_fit_rows_exactly_and_columns_at_most(sizes, num_nodes, seed, alpha):
    assume(sum(sizes) >= num_nodes)
    share = sum(sizes) // num_nodes
    mixes = np.random.default_rng(seed).dirichlet([alpha] * len(sizes), num_nodes)
    counts = fit_counts(mixes, np.array(sizes), share)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == share).all()
    assert (counts.sum(axis=0) <= sizes).all()


def test_counts_are_the_wanted_ones_where_those_fit():
    mixes = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert fit_counts(mixes, np.array([40, 40]), 40).tolist() == [[30, 10], [10, 30]]
