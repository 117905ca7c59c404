"""Student's t on logarithms, medians with infinity, ratios by pairs."""

from __future__ import annotations

import math
import random

import pytest

from bwbench.results.analysis.statistics import Arrival, estimate, geometric_interval, paired_ratio, student_t


@pytest.mark.parametrize(
    ("degrees", "value"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_students_t_as_in_the_tables(degrees: int, value: float) -> None:
    assert student_t(degrees) == pytest.approx(value, abs=5e-5)


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


def test_a_censored_repeat_gives_the_median_and_no_interval() -> None:
    found = estimate([Arrival(5.0), Arrival(None, 60.0), Arrival(8.0)])
    assert (found.value, found.low, found.high) == (8.0, None, None)
    assert (found.num, found.num_censored, found.kind) == (3, 1, "median")


def test_a_median_beyond_the_limit_is_infinite_with_a_bound() -> None:
    found = estimate([Arrival(5.0), Arrival(None, 60.0), Arrival(None, 50.0)])
    assert math.isinf(found.value) and found.at_least == 50.0
    found = estimate([Arrival(5.0), Arrival(None, 60.0)])  # the middle of two is infinite too
    assert math.isinf(found.value) and found.at_least == pytest.approx(32.5)


def test_no_repeats_are_an_error() -> None:
    with pytest.raises(ValueError, match="no repeats"):
        estimate([])


def test_a_target_met_at_zero_seconds_has_a_logarithm() -> None:
    assert estimate([Arrival(0.0), Arrival(1.0)]).value > 0
    assert paired_ratio({0: Arrival(1.0)}, {0: Arrival(0.0)}) is not None


def test_pairs_cancel_what_seeds_share() -> None:
    reference = {seed: Arrival(time) for seed, time in enumerate((10.0, 20.0, 40.0))}
    arm = {seed: Arrival(time) for seed, time in enumerate((5.0, 10.0, 20.0))}
    ratio = paired_ratio(reference, arm)
    assert ratio is not None and ratio.num == 3
    assert ratio.value == pytest.approx(2.0)
    assert ratio.low == pytest.approx(2.0) and ratio.high == pytest.approx(2.0)


def test_only_common_seeds_count() -> None:
    ratio = paired_ratio({0: Arrival(10.0), 1: Arrival(99.0)}, {0: Arrival(5.0), 2: Arrival(1.0)})
    assert ratio is not None and (ratio.value, ratio.num, ratio.low) == (pytest.approx(2.0), 1, None)
    assert paired_ratio({0: Arrival(1.0)}, {1: Arrival(1.0)}) is None


def test_ratios_with_a_censored_side_are_bounds() -> None:
    arm_late = paired_ratio({0: Arrival(10.0)}, {0: Arrival(None, 50.0)})
    assert arm_late is not None and (arm_late.bound, arm_late.value) == ("<", pytest.approx(0.2))
    single_late = paired_ratio({0: Arrival(None, 100.0)}, {0: Arrival(20.0)})
    assert single_late is not None and (single_late.bound, single_late.value) == (">", pytest.approx(5.0))
    assert paired_ratio({0: Arrival(None, 100.0)}, {0: Arrival(None, 100.0)}) is None


def test_one_censored_pair_of_three_leaves_the_median_ratio() -> None:
    reference = {seed: Arrival(10.0) for seed in range(3)}
    arm = {0: Arrival(5.0), 1: Arrival(4.0), 2: Arrival(None, 50.0)}
    ratio = paired_ratio(reference, arm)
    assert ratio is not None and (ratio.value, ratio.bound, ratio.low) == (pytest.approx(2.0), "", None)


def test_an_even_number_of_pairs_leaves_a_bound_too() -> None:
    """One of two arms that never arrived says that the ratio is at most so much, whichever way round it is asked."""
    one = {0: Arrival(10.0), 1: Arrival(10.0)}
    other = {0: Arrival(20.0), 1: Arrival(None, 40.0)}
    there, back = paired_ratio(one, other), paired_ratio(other, one)
    assert there is not None and back is not None
    assert (there.bound, back.bound) == ("<", ">")
    assert there.value == pytest.approx(math.sqrt(0.5 * 0.25))
    assert there.value * back.value == pytest.approx(1.0)
