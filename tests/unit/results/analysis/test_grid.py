"""The grid of evaluations belongs into the interval, and intervals hold what they say."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import Arrival, arrival_of, by_seed, estimate

GRIDS = st.floats(0.01, 20.0)
TIMES = st.lists(st.floats(30.0, 300.0), min_size=2, max_size=7)


@given(TIMES, GRIDS)
@settings(deadline=None)
def test_a_grid_never_makes_an_interval_narrower_than_it_leaves_open(times: list[float], grid_s: float) -> None:
    found = estimate([Arrival(time_s, None, grid_s) for time_s in times])
    assert found.low is not None and found.high is not None
    assert 0 < found.low <= found.value <= found.high


@given(TIMES, GRIDS, st.floats(0.01, 100.0))
@settings(deadline=None)
def test_intervals_scale_with_the_unit(times: list[float], grid_s: float, unit: float) -> None:
    first = estimate([Arrival(time_s, None, grid_s) for time_s in times])
    other = estimate([Arrival(time_s * unit, None, grid_s * unit) for time_s in times])
    assert other.low == pytest.approx((first.low or 0) * unit) and other.high == pytest.approx((first.high or 0) * unit)


@given(TIMES, GRIDS)
@settings(deadline=None)
def test_swapped_arms_give_the_inverse(times: list[float], grid_s: float) -> None:
    one = {seed: Arrival(time_s, None, grid_s) for seed, time_s in enumerate(times)}
    other = {seed: Arrival(2 * time_s, None, grid_s / 2) for seed, time_s in enumerate(reversed(times))}
    there, back = ratio_of(one, other), ratio_of(other, one)
    assert there is not None and back is not None and there.low and back.high
    assert there.value * back.value == pytest.approx(1.0) and there.low * back.high == pytest.approx(1.0)


def test_repeats_at_one_evaluation_are_known_to_its_interval() -> None:
    found = estimate([Arrival(100.0, None, 10.0)] * 3)
    assert found.low == pytest.approx(95 * math.exp(-0.475 * 10 / 95))
    assert found.high == pytest.approx(100.0)  # not later than recorded
    without = estimate([Arrival(100.0)] * 3)
    assert without.low == without.high == pytest.approx(100.0)


def test_errors_that_repeats_share_widen_the_interval() -> None:
    spread = [Arrival(time_s, None, 0.0, 0.02**2) for time_s in (99.0, 100.0, 101.0)]
    plain = [Arrival(time_s) for time_s in (99.0, 100.0, 101.0)]
    wide, narrow = estimate(spread), estimate(plain)
    assert wide.low is not None and narrow.low is not None and wide.low < narrow.low
    assert math.log(100.0 / wide.low) > 1.96 * 0.02


@pytest.mark.parametrize(
    ("row", "grid_s"),
    [
        ({"evaluate_every_samples": 640.0, "samples_to_target": 6400, "global_batch": 128}, 10.0),
        ({"evaluate_every_samples": 10.0, "samples_to_target": 6400, "global_batch": 128}, 2.0),  # at most every step
        ({"evaluate_every_samples": 9999.0, "samples_to_target": 6400, "global_batch": 128}, 100.0),
        ({"samples_to_target": 6400}, 0.0),
        ({"evaluate_every_samples": 640.0, "samples_to_target": 0, "global_batch": 128}, 0.0),
    ],
)
def test_the_grid_in_seconds_comes_from_samples(row: dict[str, float], grid_s: float) -> None:
    arrival = arrival_of({"time_to_target_s": 100.0, **row})
    assert arrival is not None and arrival.grid_s == pytest.approx(grid_s)


def test_of_runs_of_one_seed_a_time_stands_before_a_limit_and_the_first_before_others() -> None:
    rows = [
        {"seed": 0, "time_to_target_s": None, "censored_at_s": 5.0},
        {"seed": 0, "time_to_target_s": None, "censored_at_s": 9.0},
        {"seed": 0, "time_to_target_s": 10.0},
        {"seed": 0, "time_to_target_s": 12.0},
        {"seed": 0, "time_to_target_s": None, "censored_at_s": 99.0},
    ]
    assert by_seed(rows[:2])[0].censored_at_s == 9.0
    assert by_seed(rows)[0].time_s == 10.0
    assert by_seed(reversed(rows))[0].time_s == 12.0


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize(("seeds", "own", "grid"), [(0.1, 0.05, 0.03), (0.05, 0.02, 0.03), (0.01, 0.005, 0.03)])
def test_intervals_cover_through_the_grid(n: int, seeds: float, own: float, grid: float) -> None:
    rng = random.Random(f"{n}/{seeds}")
    hits, trials = [0, 0], 800
    for _ in range(trials):
        true = [100.0 * math.exp(rng.uniform(-0.1, 0.1)), 60.0 * math.exp(rng.uniform(-0.1, 0.1))]
        arms: list[dict[int, Arrival]] = [{}, {}]
        for seed in range(n):
            common = rng.gauss(0.0, seeds)
            for arm, middle in zip(arms, true, strict=True):
                exact = middle * math.exp(common + rng.gauss(0.0, own))
                arm[seed] = Arrival(math.ceil(exact / (100 * grid)) * 100 * grid, None, 100 * grid)
        time, ratio = estimate(list(arms[0].values())), ratio_of(*arms)
        assert ratio is not None and ratio.low and ratio.high and time.low and time.high
        hits[0] += time.low <= true[0] <= time.high
        hits[1] += ratio.low <= true[0] / true[1] <= ratio.high
    assert all(hit / trials > 0.925 for hit in hits)


def test_a_fit_that_the_first_evaluation_meets_is_no_later_than_that() -> None:
    row = {"seed": 0, "time_to_target_s": 6.4, "samples_to_target": 2560, "arrival_kind": "fit", "global_batch": 128}
    first, behind = (arrival_of(row | {"evaluate_every_samples": every}) for every in (2520, 2400))
    assert first is not None and first.grid_s == pytest.approx(6.4 * 2520 / 2560)
    assert behind is not None and behind.grid_s == 0.0
