"""Where a curve reaches a target, by an isotonic fit over log samples."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

import pytest

from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import (
    CENSORED,
    FIT,
    UNKNOWN,
    Budget,
    CurveArrival,
    arrival_on,
    clock_at,
    crossing,
    first_crossing,
    isotonic,
    payload_at,
)

NO_LIMIT = Budget()


def curve(values: Sequence[float | None], every: int = 1000, metric: str = "accuracy") -> list[CurvePoint]:
    """Evaluations every so many samples from the first on; 100 samples a second, 10 bytes a sample."""
    return [
        CurvePoint(step=at, metrics={metric: value}, samples=at, clock_s=at / 100, payload_bytes=10 * at)
        for at, value in ((number * every, value) for number, value in enumerate(values, 1))
    ]


def rising(samples: float) -> float:
    """0.80 at 10,000 samples, and 0.10 more for every factor of e."""
    return 0.80 + 0.10 * math.log(samples / 10_000)


def sampled(of: Callable[[float], float], every: int, until: int, flicker: float = 0.0, seed: int = 0) -> list[float]:
    generator = random.Random(seed)
    return [of(at) + generator.gauss(0.0, flicker) for at in range(every, until + 1, every)]


def test_a_straight_curve_without_noise_arrives_where_it_crosses() -> None:
    found = arrival_on(curve(sampled(rising, 700, 40_000), 700), "accuracy", 0.80, NO_LIMIT, went_on=True)
    assert found.kind == FIT
    assert found.samples == pytest.approx(10_000, rel=1e-9)
    assert found.clock_s == pytest.approx(100.0)


def test_blocks_rise_and_keep_the_sum_of_what_they_pool() -> None:
    values = [0.1, 0.5, 0.3, 0.2, 0.6, 0.4, 0.9]
    blocks = isotonic(curve(values), "accuracy")
    assert [block.num for block in blocks] == [1, 3, 2, 1]
    assert [block.value for block in blocks] == pytest.approx([0.1, 1 / 3, 0.5, 0.9])
    assert blocks[1].centre == pytest.approx(statistics.fmean(math.log(at) for at in (2000, 3000, 4000)))


@pytest.mark.parametrize("flicker", [0.0, 0.01, 0.02])
def test_noise_moves_the_fit_less_than_the_first_crossing(flicker: float) -> None:
    fits, firsts = [], []
    for seed in range(200):
        noisy = curve(sampled(rising, 300, 40_000, flicker, seed), 300)
        fit, first = crossing(noisy, "accuracy", 0.80), first_crossing(noisy, "accuracy", 0.80)
        assert fit is not None and first is not None
        fits.append(math.log(fit / 10_000))
        firsts.append(math.log(first.samples / 10_000))
    assert abs(statistics.fmean(fits)) < 0.02
    assert statistics.fmean(firsts) <= 0.03 - 5 * flicker  # earlier, the more it flickers


def test_losses_fall() -> None:
    losses = [-value for value in sampled(rising, 500, 40_000, 0.01, 3)]
    mirrored = arrival_on(curve(losses, 500, "loss"), "loss", -0.80, NO_LIMIT, went_on=True)
    plain = curve([-value for value in losses], 500)
    assert mirrored == arrival_on(plain, "accuracy", 0.80, NO_LIMIT, went_on=True)
    assert mirrored.kind == FIT


def test_a_decline_after_the_peak_does_not_pull_the_fit_down() -> None:
    up = sampled(rising, 500, 20_000, 0.005, 1)
    arrived = crossing(curve(up, 500), "accuracy", 0.80)
    declined = crossing(curve([*up, *([0.60] * 100)], 500), "accuracy", 0.80)
    assert declined == pytest.approx(arrived)
    assert arrived == pytest.approx(10_000, rel=0.05)


def test_a_single_lucky_peak_is_no_arrival() -> None:
    values = [0.70, 0.75, 0.85, 0.75, 0.76, 0.77, 0.77, 0.77, 0.77, 0.77, 0.77, 0.77]
    found = arrival_on(curve(values), "accuracy", 0.80, Budget(samples=12_000), went_on=True)
    assert found == CurveArrival(CENSORED, 8000.0, 80.0)  # the budget over 1.5


def test_an_arrival_late_in_the_budget_is_censored() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    in_samples = arrival_on(curve(values), "accuracy", 0.65, Budget(samples=9000), went_on=True)
    assert in_samples == CurveArrival(CENSORED, 6000.0, 60.0)
    in_time = arrival_on(curve(values), "accuracy", 0.65, Budget(samples=10**6, time_s=90.0), went_on=True)
    assert in_time == CurveArrival(CENSORED, 6000.0, 60.0)
    early = arrival_on(curve(values), "accuracy", 0.55, Budget(samples=9000), went_on=True)
    assert early.kind == FIT
    assert 5000 < (early.samples or 0.0) < 6000


def test_fewer_than_three_evaluations_at_or_after_it_tell_nothing() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert arrival_on(curve(values), "accuracy", 0.35, NO_LIMIT, went_on=False).kind == UNKNOWN
    assert arrival_on(curve(values), "accuracy", 0.30, NO_LIMIT, went_on=False).kind == FIT


def test_a_run_that_ended_at_a_lower_target_says_nothing_of_a_higher_one() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert arrival_on(curve(values), "accuracy", 0.9, NO_LIMIT, went_on=False) == CurveArrival(UNKNOWN)
    assert arrival_on(curve(values), "accuracy", 0.9, NO_LIMIT, went_on=True) == CurveArrival(CENSORED, 5000.0, 50.0)


def test_a_flat_start_stays_one_block() -> None:
    values = [0.1] * 10 + [0.2, 0.5, 0.8, 0.8, 0.8]
    assert [block.num for block in isotonic(curve(values), "accuracy")] == [10, 1, 1, 3]
    found = crossing(curve(values), "accuracy", 0.5)
    assert found == pytest.approx(12_000)


def test_ties_at_the_target_arrive_in_the_middle_of_their_block() -> None:
    values = [0.1, 0.5, 0.5, 0.5, 0.9]
    assert crossing(curve(values), "accuracy", 0.5) == pytest.approx(statistics.geometric_mean([2000, 3000, 4000]))


def test_a_coarse_grid_is_interpolated_over_log_samples() -> None:
    values = [rising(5000), rising(10_000), rising(15_000), rising(20_000), rising(25_000)]
    found = arrival_on(curve(values, 5000), "accuracy", rising(7000), NO_LIMIT, went_on=True)
    assert found.samples == pytest.approx(7000)


def test_met_from_the_first_evaluation_on_is_no_later_than_that() -> None:
    met = curve([0.9, 0.91, 0.92, 0.93])
    assert crossing(met, "accuracy", 0.8) == 1000
    at_zero = CurvePoint(step=0, metrics={"accuracy": 0.85}, samples=0, clock_s=0.0, payload_bytes=0)
    before_training = arrival_on([at_zero, *met], "accuracy", 0.8, NO_LIMIT, went_on=True)
    assert before_training == CurveArrival(FIT, 0.0, 0.0)


def test_an_evaluation_at_0_samples_has_no_logarithm_and_changes_nothing() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    at_zero = CurvePoint(step=0, metrics={"accuracy": 0.05}, samples=0, clock_s=0.0, payload_bytes=0)
    assert crossing([at_zero, *curve(values)], "accuracy", 0.35) == crossing(curve(values), "accuracy", 0.35)
    later_than_0_s = arrival_on([at_zero], "accuracy", 0.5, NO_LIMIT, went_on=True)
    assert later_than_0_s == CurveArrival(UNKNOWN)


def test_evaluations_without_the_metric_do_not_count() -> None:
    assert arrival_on([], "accuracy", 0.5, NO_LIMIT, went_on=True) == CurveArrival(UNKNOWN)
    assert arrival_on(curve([0.1, 0.9]), "loss", 0.5, NO_LIMIT, went_on=True) == CurveArrival(UNKNOWN)
    gaps = curve([0.1, None, 0.3, 0.4, 0.5])
    assert crossing(gaps, "accuracy", 0.3) == pytest.approx(3000)


def test_clock_and_payload_are_straight_between_evaluations_and_from_the_start() -> None:
    points = [CurvePoint(step=1, samples=100, clock_s=10.0, payload_bytes=50),
              CurvePoint(step=2, samples=200, clock_s=30.0, payload_bytes=150)]  # fmt: skip
    assert [clock_at(points, at) for at in (0, 50, 100, 150, 200, 900)] == [0.0, 5.0, 10.0, 20.0, 30.0, 30.0]
    assert payload_at(points, 150) == 100.0
    assert payload_at([CurvePoint(step=1, samples=100, clock_s=10.0)], 50) is None
