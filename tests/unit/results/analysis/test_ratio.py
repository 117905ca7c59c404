"""Ratios of two arms: unpaired by Welch's rule, paired within kin alone, bounds where one of them does not arrive."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import Arrival, estimate
from bwbench.results.analysis.taken_apart import take_apart
from bwbench.results.analysis.welch import SEEDS, TIMING_RUNS, ErrorPart, MeanError

Arm = dict[int, Arrival]


def arm(*times_s: float | None, kin: str = "", **about: float) -> Arm:
    """By seed; None: not reached within 50 s."""
    return {
        seed: Arrival(time_s, 50.0 if time_s is None else None, kin=kin, **about) for seed, time_s in enumerate(times_s)
    }


def test_welch_has_the_degrees_of_freedom_that_its_parts_can_bear() -> None:
    """Welch's own example has no table here: equal parts of 4 add up to 8, and a part that is nothing to its own."""
    equal = MeanError((ErrorPart(SEEDS, 1.0, 4.0), ErrorPart(SEEDS, 1.0, 4.0)))
    assert equal.freedom == pytest.approx(8.0)
    assert MeanError((ErrorPart(SEEDS, 1.0, 4.0), ErrorPart(SEEDS, 0.0, 2.0))).freedom == pytest.approx(4.0)
    assert math.isinf(MeanError((ErrorPart(TIMING_RUNS, 1.0, math.inf),)).freedom)


def test_a_ratio_of_two_arms_is_that_of_their_means_whatever_their_seeds_are_called() -> None:
    other = {seed + 7: one for seed, one in arm(5.0, 10.0, 20.0).items()}
    ratio = ratio_of(arm(10.0, 20.0, 40.0), other)
    assert ratio is not None and ratio.value == pytest.approx(2.0) and not ratio.paired and ratio.num == 3
    spread = math.log(2) * math.sqrt(2 / 3)
    assert ratio.low == pytest.approx(2.0 * math.exp(-2.7764 * spread), rel=1e-4)  # 4 degrees of freedom, not 2


def test_kin_are_paired_and_what_seeds_share_cancels() -> None:
    ratio = ratio_of(arm(10.0, 20.0, 40.0, kin="mean"), arm(5.0, 10.0, 20.0, kin="mean"))
    assert ratio is not None and ratio.paired and ratio.num == 3
    assert ratio.low == pytest.approx(2.0) and ratio.high == pytest.approx(2.0)
    stranger = ratio_of(arm(10.0, 20.0, 40.0, kin="mean"), arm(5.0, 10.0, 20.0, kin="other"))
    assert stranger is not None and not stranger.paired and stranger.low is not None and stranger.low < 0.5


def test_timing_runs_of_both_arms_are_in_the_interval_of_kin() -> None:
    ratio = ratio_of(
        arm(10.0, 20.0, 40.0, kin="mean", timing_variance=0.03**2),
        arm(5.0, 10.0, 20.0, kin="mean", timing_variance=0.04**2),
    )
    assert ratio is not None and ratio.dominant == TIMING_RUNS
    assert ratio.high == pytest.approx(2.0 * math.exp(1.95996 * 0.05), rel=1e-4)


def test_a_noisy_arm_is_not_hidden_by_a_quiet_one() -> None:
    """With equal numbers the noisy arm's own degrees of freedom count, not those of both."""
    rng = random.Random(3)
    hits = 0
    for _ in range(2000):
        sides = [{seed: Arrival(math.exp(rng.gauss(0.0, spread))) for seed in range(5)} for spread in (0.30, 0.05)]
        ratio = ratio_of(*sides)
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        hits += ratio.low <= 1.0 <= ratio.high
    assert hits / 2000 > 0.935


def test_swapped_arms_give_the_inverse() -> None:
    one, other = arm(10.0, 12.0, None, 15.0), arm(7.0, 8.0, 10.0)
    there, back = ratio_of(one, other), ratio_of(other, one)
    assert there is not None and back is not None and there.kind == "censored fit" and there.num_censored == 1
    assert there.value * back.value == pytest.approx(1.0) and there.low is not None and back.high is not None
    assert there.low * back.high == pytest.approx(1.0)


def test_one_repeat_has_no_interval() -> None:
    ratio = ratio_of(arm(10.0), arm(5.0, 6.0))
    assert ratio is not None and ratio.low is None and ratio.num == 1 and ratio.ends(0.9) is None


def test_an_arm_that_does_not_arrive_leaves_a_bound() -> None:
    late = ratio_of(arm(10.0), arm(None))
    assert late is not None and (late.bound, late.value, late.kind) == ("<", pytest.approx(0.2), "bound")
    several = arm(10.0, 12.0, 14.0)
    late, slowest = ratio_of(several, arm(None)), estimate(list(several.values())).high
    assert late is not None and slowest is not None and late.value == pytest.approx(slowest / 50.0), "less for certain"
    reference_late = ratio_of(arm(None), arm(20.0))
    assert reference_late is not None and (reference_late.bound, reference_late.value) == (">", pytest.approx(2.5))
    assert ratio_of(arm(None, None), arm(None)) is None
    assert ratio_of({}, arm(1.0)) is None


def test_a_bound_takes_the_end_of_the_other_arms_interval() -> None:
    ratio = ratio_of(arm(None, None, None), arm(9.0, 10.0, 11.0))
    assert ratio is not None and ratio.bound == ">" and ratio.value < 50.0 / 10.0


def test_more_confidence_is_wider() -> None:
    ratio = ratio_of(arm(10.0, 12.0, 11.0), arm(5.0, 7.0, 6.0))
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    usual, together = ratio.ends(0.95), ratio.ends(0.99)
    assert usual == pytest.approx((ratio.low, ratio.high)) and together is not None
    assert together[0] < ratio.low and together[1] > ratio.high


def cells(times_s: tuple[float | None, ...], samples: tuple[float, ...], **about: float) -> Arm:
    return {
        seed: Arrival(time_s, 50.0 if time_s is None else None, samples=taken, **about)
        for seed, (time_s, taken) in enumerate(zip(times_s, samples, strict=True))
    }


def test_a_ratio_is_step_time_times_samples() -> None:
    reference = cells((10.0, 14.0, 12.0), (1000.0, 1400.0, 1150.0), timing_variance=0.01)
    other = cells((6.0, 5.0, 8.0), (2000.0, 1700.0, 2500.0))
    ratio, parts = ratio_of(reference, other), take_apart(reference, other)
    assert ratio is not None and parts is not None
    assert parts.step.value * parts.samples.value == pytest.approx(ratio.value)
    assert parts.step.dominant == TIMING_RUNS and parts.samples.dominant == SEEDS
    assert parts.step.low is not None and parts.samples.low is not None


def test_step_times_of_repeats_that_did_not_arrive_are_known() -> None:
    parts = take_apart(cells((None, None), (500.0, 500.0)), cells((10.0, 10.0), (200.0, 210.0)))
    assert parts is not None and not parts.step.bound and parts.step.value == pytest.approx(2.05, rel=0.01)
    assert parts.samples.bound == ">"


def test_without_samples_nothing_is_taken_apart() -> None:
    assert take_apart(arm(10.0, 11.0), arm(5.0, 6.0)) is None


def test_where_a_pilot_said_how_many_there_are_its_spread_alone_counts() -> None:
    times_s = (10.0, 12.0, 9.0, 11.0, 5.0, 25.0)
    all_count = {seed: Arrival(time_s) for seed, time_s in enumerate(times_s)}
    by_pilot = {seed: Arrival(time_s, of_pilot=seed < 4) for seed, time_s in enumerate(times_s)}
    one, other = estimate(list(all_count.values())), estimate(list(by_pilot.values()))
    assert one.value == other.value and one.error is not None and other.error is not None
    spread = statistics.variance(math.log(time_s) for time_s in times_s[:4])
    assert other.error.parts[0] == ErrorPart(SEEDS, pytest.approx(spread / 6), 3.0)
    assert one.error.parts[0].freedom == 5.0
