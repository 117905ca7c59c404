"""Student's t on logarithms, fits where repeats are censored, bounds where too few arrive; what a row says."""

from __future__ import annotations

import math
import random

import pytest

from bwbench.results.analysis.statistics import Arrival, arrival_of, by_seed, estimate, geometric_interval


def test_three_repeats_give_two_and_a_half_standard_deviations() -> None:
    logs = [1.0, 1.2, 1.4]  # standard deviation 0.2
    centre, low, high = geometric_interval([math.exp(value) for value in logs])
    assert math.log(centre) == pytest.approx(1.2)
    assert low is not None and high is not None
    assert (math.log(high) - 1.2) / 0.2 == pytest.approx(2.484, abs=1e-3)
    assert math.log(high) - 1.2 == pytest.approx(1.2 - math.log(low))


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        _, low, high = geometric_interval([math.exp(rng.gauss(0.0, 0.3)) for _ in range(3)])
        assert low is not None and high is not None
        covered += low <= 1.0 <= high
    assert 0.93 < covered / 2000 < 0.97


def test_one_repeat_has_no_interval() -> None:
    found = estimate([Arrival(5.0)])
    assert (found.value, found.low, found.high, found.num) == (pytest.approx(5.0), None, None, 1)


def test_a_censored_repeat_gives_a_fit_with_an_interval() -> None:
    found = estimate([Arrival(5.0), Arrival(None, 60.0), Arrival(8.0)])
    assert found.value > math.exp((math.log(5) + math.log(8) + math.log(60)) / 3) > 8  # the limit was exceeded
    assert found.low is not None and found.high is not None and found.low < found.value < found.high
    assert (found.num, found.num_censored, found.kind) == (3, 1, "censored fit")


def test_where_fewer_than_half_arrive_a_bound_stands() -> None:
    found = estimate([Arrival(5.0), Arrival(None, 60.0), Arrival(None, 50.0)])
    assert math.isinf(found.value) and found.at_least == 50.0 and found.kind == "bound"
    found = estimate([Arrival(5.0), Arrival(None, 60.0)])  # one arrival tells no spread
    assert math.isinf(found.value) and found.at_least == pytest.approx(32.5) and found.low is None


def test_no_repeats_are_an_error() -> None:
    with pytest.raises(ValueError, match="no repeats"):
        estimate([])


def test_a_target_met_at_zero_seconds_has_a_logarithm() -> None:
    assert estimate([Arrival(0.0), Arrival(1.0)]).value > 0
    assert estimate([Arrival(1.0), Arrival(2.0), Arrival(None, 0.0)]).value > 0


SEEDS = (Arrival(95.0), Arrival(100.0), Arrival(106.0))


def timed(variance: float, freedom: float = math.inf) -> list[Arrival]:
    return [Arrival(one.time_s, None, 0.0, variance, freedom) for one in SEEDS]


def test_more_seeds_leave_the_part_of_the_timing_runs() -> None:
    """3 % between runs and three of them: 7 % at the least, however many seeds share them."""
    rows = [
        {"seed": seed, "time_to_target_s": 100.0, "composed": True, "timing_runs": 3, "between_share": 0.03**2}
        for seed in range(24)
    ]
    found = estimate(list(by_seed(rows).values()))
    assert found.high is not None and math.log(found.high / 100) == pytest.approx(
        4.3027 * 0.03 / math.sqrt(3), rel=1e-3
    )
    assert found.dominant == "timing runs"


def test_one_timing_run_is_assumed_to_be_off_by_three_percent() -> None:
    row = {"seed": 0, "time_to_target_s": 100.0, "composed": True, "timing_share": 0.04, "between_share": None}
    one = arrival_of(row)
    assert one is not None and math.sqrt(one.timing_variance) == pytest.approx(0.05) and math.isinf(one.timing_freedom)
    whole = arrival_of({**row, "composed": False})
    assert whole is not None and whole.timing_variance == 0.0


def test_what_an_interval_is_as_wide_by() -> None:
    assert estimate(SEEDS).dominant == "seeds"
    assert estimate(timed(0.5**2)).dominant == "timing runs"
    assert estimate([Arrival(100.0, None, 30.0)] * 3).dominant == "grid"
    assert estimate([Arrival(100.0)] * 3).dominant is None


def test_what_nothing_is_known_of_has_an_interval_of_finite_numbers() -> None:
    found = estimate([Arrival(1e-6), Arrival(1e9), Arrival(1.0, timing_variance=400.0, timing_freedom=1.0)])
    assert found.low is not None and found.high is not None
    assert 0 < found.low < 1e-9 and 1e9 < found.high < math.inf
