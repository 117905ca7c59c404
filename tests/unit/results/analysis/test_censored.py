"""The censored fit: as the plain mean without a limit, and right on average with one."""

from __future__ import annotations

import random
import statistics

import pytest

from bwbench.results.analysis.censored import can_be_fitted, censored_mean


def test_without_limits_it_is_the_mean_and_its_variance() -> None:
    logs = [1.0, 1.3, 0.9, 1.6]
    found = censored_mean(logs, [])
    assert found.centre == pytest.approx(statistics.fmean(logs))
    assert found.variance == pytest.approx(statistics.variance(logs) / len(logs))


def test_it_is_about_right_where_a_third_is_beyond_the_limit() -> None:
    rng, limit = random.Random(1), 0.1
    centres = []
    for _ in range(300):
        values = [rng.gauss(0.0, 0.25) for _ in range(20)]
        known = [value for value in values if value <= limit]
        if can_be_fitted(20, 20 - len(known)):
            centres.append(censored_mean(known, [limit] * (20 - len(known))).centre)
    assert statistics.fmean(centres) == pytest.approx(0.0, abs=0.02)
    assert statistics.fmean(min(value, limit) for value in (rng.gauss(0.0, 0.25) for _ in range(6000))) < -0.04


def test_a_limit_far_away_moves_the_centre_beyond_the_mean() -> None:
    near, far = censored_mean([1.0, 1.1, 1.2], [1.3]), censored_mean([1.0, 1.1, 1.2], [3.0])
    assert 1.15 < near.centre < far.centre and near.variance < far.variance


def test_equal_times_and_a_limit_beyond_them_are_no_error() -> None:
    found = censored_mean([1.0, 1.0, 1.0], [1.0])
    assert found.centre == pytest.approx(1.0, abs=1e-3) and found.variance >= 0


@pytest.mark.parametrize(("num", "num_censored", "can"), [(3, 1, True), (4, 2, True), (3, 2, False), (2, 1, False)])
def test_half_have_to_arrive_and_two_at_least(num: int, num_censored: int, can: bool) -> None:
    assert can_be_fitted(num, num_censored) is can
