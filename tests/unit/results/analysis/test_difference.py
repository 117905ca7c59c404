"""Differences of a metric: each arm with its own spread, pairs within kin alone."""

from __future__ import annotations

import pytest

from bwbench.results.analysis.difference import difference_of

ARM, REFERENCE = {0: 0.90, 1: 0.80, 2: 0.70}, {0: 0.89, 1: 0.79, 2: 0.69}


def test_kin_lose_what_their_seeds_share() -> None:
    found = difference_of(ARM, REFERENCE, kin=True)
    assert found is not None and found.paired and found.num == 3
    assert (found.value, found.low, found.high) == (pytest.approx(0.01),) * 3


def test_others_have_the_spread_of_both() -> None:
    found = difference_of(ARM, {seed + 5: value for seed, value in REFERENCE.items()}, kin=False)
    assert found is not None and not found.paired and found.value == pytest.approx(0.01)
    half = 2.7764 * 0.1 * (2 / 3) ** 0.5  # 4 degrees of freedom
    assert found.high == pytest.approx(0.01 + half, abs=1e-4) and found.low == pytest.approx(0.01 - half, abs=1e-4)


def test_single_repeats_have_no_interval_and_no_repeats_no_difference() -> None:
    found = difference_of({0: 0.9}, REFERENCE, kin=True)
    assert found is not None and found.low is None and found.num == 1
    assert difference_of({}, REFERENCE, kin=False) is None
