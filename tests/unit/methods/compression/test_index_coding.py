from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.methods.compression.sparse import decode_indices, encode_indices, most_index_bytes


def entropy_bytes(density):
    """Of the indices of entries at random, an entry."""
    return (-density * math.log2(density) - (1 - density) * math.log2(1 - density)) / density / 8


def at_random(density, n=2_000_000):
    return np.flatnonzero(np.random.default_rng(0).random(n) < density)


@given(st.lists(st.integers(0, 200_000), unique=True), st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_indices_come_back(indices, room):
    indices = np.array(sorted(indices), np.int64)
    code, low_bits = encode_indices(indices, 200_001 + room)
    assert np.array_equal(decode_indices(code, len(indices), low_bits), indices)


@pytest.mark.parametrize("low_bits", range(32))
def test_gaps_of_every_size(low_bits):
    gap = max(2, min(1 << low_bits, 1 << 30))
    indices = np.cumsum(np.array([gap - 1, gap, gap + 1, 1])) - 1
    code, width = encode_indices(indices, int(indices[-1]) + 1)
    assert np.array_equal(decode_indices(code, 4, width), indices)


@pytest.mark.parametrize("indices", [[], [0], [7], [0, 1, 2, 3], [2**32 - 2]])
def test_few_indices(indices):
    indices = np.array(indices, np.int64)
    code, low_bits = encode_indices(indices, 2**32 - 1)
    assert np.array_equal(decode_indices(code, len(indices), low_bits), indices)


@pytest.mark.parametrize(("density", "claimed"), [(0.001, 1.44), (0.01, 1.02), (0.1, 0.60)])
def test_bytes_an_entry(density, claimed):
    indices = at_random(density)
    size = len(encode_indices(indices, 2_000_000)[0]) / len(indices)
    assert size <= claimed
    assert size <= 1.02 * entropy_bytes(density)


@pytest.mark.parametrize("density", [1e-5, 1e-4, 0.003, 0.02, 0.2, 0.5, 0.9])
def test_estimate(density):
    indices = at_random(density)
    size, most = len(encode_indices(indices, 2_000_000)[0]), most_index_bytes(len(indices), 2_000_000)
    assert 0.92 * most <= size <= most


@given(st.lists(st.integers(0, 5_000), unique=True), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_nothing_is_longer_than_the_estimate(indices, room):
    indices = np.array(sorted(indices), np.int64)
    assert len(encode_indices(indices, 5_001 + room)[0]) <= most_index_bytes(len(indices), 5_001 + room)


@pytest.mark.parametrize("density", [0.001, 0.01, 0.03, 0.1])
def test_clusters_come_near_the_estimate(density):
    size = round(density * 2_000_000)
    clustered = np.concatenate([np.arange(size - size // 10), at_random(density / 10, 2_000_000 - size) + size])
    most = most_index_bytes(len(clustered), 2_000_000)
    assert 0.97 * most <= len(encode_indices(clustered, 2_000_000)[0]) <= most


def test_a_code_that_was_cut_is_an_error():
    code, low_bits = encode_indices(np.arange(0, 1000, 10), 1000)
    with pytest.raises(ValueError, match="100 indices"):
        decode_indices(code[:-5], 100, low_bits)
