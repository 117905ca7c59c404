from __future__ import annotations

import math

import numpy as np
import pytest

from bwbench.methods.compression.sparse import at_least, bits_of, largest


def normal(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("value", [1e-50, 1e-20, 0.1, 1.0, 3.3, 1e39])
def test_at_least_against_the_definition(value):
    edge = min(value, 3e38)
    x = np.concatenate([normal(200_000), np.float32([edge, -edge, 0, np.inf, np.nan])])
    expected = np.flatnonzero(((np.abs(x.astype(np.float64)) >= value) | np.isnan(x)) & (x != 0))
    assert np.array_equal(at_least(x, bits_of(value)), expected)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("n", [1, 10, 1_000, 70_000, 500_000])
@pytest.mark.parametrize("share", [0.0005, 0.01, 0.2, 1.0])
def test_largest_are_the_largest(n, share, exact):
    x, count = normal(n), max(1, round(share * n))
    indices = largest(x, count, exact=exact)
    assert 0.9 * count <= len(indices) <= count
    if exact:
        assert len(indices) == count
    left_out = np.abs(np.delete(x, indices))
    assert (np.diff(indices) > 0).all()
    assert np.abs(x[indices]).min() >= left_out.max(initial=0.0)


@pytest.mark.parametrize("period", [3, 9, 64, 100, 1024, 78, 79])
def test_patterns_do_not_mislead_the_sample(period):
    """The large entries stand at every ``period``-th place, as in a matrix with one column that learns."""
    x = normal(300_000)
    x[::period] *= 50
    for count in (600, 3_000, 15_000):
        assert 0.9 * count <= len(largest(x, count)) <= count


def test_samples_seldom_mislead():
    missing = [3_000 - len(largest(normal(300_000, seed), 3_000)) for seed in range(50)]
    assert sum(number > 0 for number in missing) <= 3


def test_heavy_tails_and_a_single_large_part():
    for x in (normal(400_000) ** 9, np.concatenate([normal(396_000) * 1e-6, normal(4_000)]).astype(np.float32)):
        assert 3_600 <= len(largest(x, 4_000)) <= 4_000


def test_zeros_are_never_large_and_equal_entries_stay_together():
    x = np.zeros(100_000, np.float32)
    assert len(largest(x, 1_000)) == 0
    x[5::1000] = -2.0
    assert np.array_equal(largest(x, 1_000), np.arange(5, 100_000, 1000))
    assert len(largest(np.ones(100_000, np.float32), 10)) == 100_000


def test_what_has_diverged_is_largest():
    x = normal(100_000)
    x[3], x[4] = math.nan, -math.inf
    for exact in (False, True):
        assert {3, 4} <= set(largest(x, 1_000, exact=exact).tolist())
        assert largest(x, 1, exact=exact).tolist() == [3]
