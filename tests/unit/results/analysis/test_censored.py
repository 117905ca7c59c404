"""The censored fit: as the plain mean without a limit, and right on average with one; and the share that arrived."""

from __future__ import annotations

import random
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.results.analysis.censored import arrival_steps, can_be_fitted, censored_mean, half_arrived


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


# Weeks of remission of patients on 6-mercaptopurine (Freireich et al. 1963; Kalbfleisch and Prentice 1980, table 1.2).
RELAPSED = [6, 6, 6, 7, 10, 13, 16, 22, 23]
STILL_WELL = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
PUBLISHED = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
TIMES = st.lists(st.integers(1, 12), max_size=12)


def test_the_share_that_arrived_is_that_of_the_textbook() -> None:
    steps = arrival_steps(RELAPSED, STILL_WELL)
    assert {step.time_s: round(float(1 - step.share), 3) for step in steps if step.num_arrived} == PUBLISHED
    assert [(step.num_at_risk, step.num_arrived, step.num_censored) for step in steps[:4]] == [
        (21, 3, 1), (17, 1, 0), (16, 0, 1), (15, 1, 1),
    ]  # fmt: skip
    assert half_arrived(steps) == 23


def test_an_arrival_comes_before_a_limit_at_the_same_time() -> None:
    (step,) = arrival_steps([5.0], [5.0])
    assert step.share == Fraction(1, 2) and half_arrived([step]) == 5.0
    assert arrival_steps([5.0], [4.9])[-1].share == 1  # the one that was given up might have arrived as well


@given(TIMES, TIMES)
def test_shares_rise_and_nobody_is_lost(times: list[int], limits: list[int]) -> None:
    steps = arrival_steps(times, limits)
    assert [step.time_s for step in steps] == sorted({*times, *limits})
    assert sum(step.num_arrived for step in steps) == len(times)
    assert sum(step.num_censored for step in steps) == len(limits)
    shares = [Fraction(0), *(step.share for step in steps)]
    assert shares == sorted(shares) and shares[-1] <= 1
    rises = [after > before for before, after in zip(shares, shares[1:], strict=False)]
    assert rises == [step.num_arrived > 0 for step in steps]


@given(TIMES)
def test_where_all_arrive_it_is_the_share_of_them(times: list[int]) -> None:
    for step in arrival_steps(times, []):
        assert step.share == Fraction(sum(time <= step.time_s for time in times), len(times))


@given(TIMES)
def test_where_none_arrives_nothing_is_said_of_when(limits: list[int]) -> None:
    steps = arrival_steps([], limits)
    assert all(step.share == 0 for step in steps) and half_arrived(steps) is None
