"""Where two arms are equally fast: inside, outside, nowhere, in several places."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.results.analysis.crossover import ABOVE, BELOW, NONE, ONE, SEVERAL, Crossovers, Measured, find_crossovers
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import Arrival

BANDWIDTHS = (1e6, 3e6, 1e7, 3e7, 1e8)


def measured(ratio: Callable[[float], float], n: int = 3, noise: float = 0.01, seed: int = 0) -> list[Measured]:
    """Repeats whose ratio (reference over arm) is ``ratio(bandwidth)`` up to each seed's noise, which links share."""
    rng = random.Random(seed)
    off = {one: math.exp(rng.gauss(0.0, noise)) for one in range(n)}
    return [
        Measured(
            bps, {one: Arrival(100.0) for one in off}, {one: Arrival(100.0 / ratio(bps) * off[one]) for one in off}
        )
        for bps in BANDWIDTHS
    ]


def find(ratio: Callable[[float], float], n: int = 3, noise: float = 0.01) -> Crossovers:
    return find_crossovers(measured(ratio, n, noise))


@given(
    truth=st.floats(1.3e6, 7e7), slope=st.floats(0.3, 1.5), faster_below=st.booleans(), seed=st.integers(0, 10**6),
    n=st.integers(2, 6),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_straight_line_is_crossed_where_it_was_drawn(
    truth: float, slope: float, faster_below: bool, seed: int, n: int
) -> None:
    sign = 1.0 if faster_below else -1.0
    found = find_crossovers(measured(lambda bps: (truth / bps) ** (slope * sign), n, 0.001, seed))
    assert found.kind == ONE and found.num == n
    (one,) = found.found
    assert one.bandwidth_bps == pytest.approx(truth, rel=0.03)
    assert one.arm_faster_below is faster_below
    for end, inside in ((one.low_bps, 1.0), (one.high_bps, -1.0)):
        assert end is None or (end - one.bandwidth_bps) * inside <= 0


@given(scale=st.floats(0.1, 10.0), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_other_units_of_time_change_nothing(scale: float, seed: int) -> None:
    points = measured(lambda bps: (1e7 / bps) ** 0.5, 3, 0.05, seed)
    scaled = [
        Measured(
            one.bandwidth_bps,
            {seed: Arrival(one.reference[seed].or_infinity * scale) for seed in one.reference},
            {seed: Arrival(one.arm[seed].or_infinity * scale) for seed in one.arm},
        )
        for one in points
    ]
    first, second = find_crossovers(points).found[0], find_crossovers(scaled).found[0]
    assert first.bandwidth_bps == pytest.approx(second.bandwidth_bps, rel=1e-6)
    assert first.low_bps == pytest.approx(second.low_bps, rel=1e-6)


@given(seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_with_the_arms_swapped_the_place_is_the_same(seed: int) -> None:
    points = measured(lambda bps: (2e7 / bps) ** 0.7, 4, 0.03, seed)
    swapped = [Measured(one.bandwidth_bps, one.arm, one.reference) for one in points]
    first, second = find_crossovers(points).found[0], find_crossovers(swapped).found[0]
    assert first.bandwidth_bps == pytest.approx(second.bandwidth_bps, rel=1e-6)
    assert first.high_bps == pytest.approx(second.high_bps, rel=1e-6)
    assert first.arm_faster_below is not second.arm_faster_below


def test_more_noise_gives_a_wider_interval() -> None:
    widths = []
    for noise in (0.01, 0.05, 0.1):
        (one,) = find(lambda bps: (1e7 / bps) ** 0.6, 4, noise).found
        assert one.low_bps is not None and one.high_bps is not None
        widths.append(math.log(one.high_bps / one.low_bps))
    assert widths == sorted(widths)


def test_an_interval_may_be_open() -> None:
    (one,) = find(lambda bps: (7e7 / bps) ** 0.3, 3, 0.1).found
    assert one.bandwidth_bps is not None and one.low_bps is not None and one.high_bps is None


def test_one_repeat_crosses_without_an_interval() -> None:
    found = find(lambda bps: (1e7 / bps) ** 0.5, 1, 0.0)
    (one,) = found.found
    assert found.num == 1 and one.bandwidth_bps == pytest.approx(1e7) and one.low_bps is one.high_bps is None


@pytest.mark.parametrize(
    ("ratio", "kind"),
    [
        (lambda bps: 1.2 * (1e8 / bps) ** 0.3, ABOVE),
        (lambda bps: 0.5 * (bps / 1e8) ** 0.3, ABOVE),
        (lambda bps: 0.8 * (1e6 / bps) ** 0.3, BELOW),
        (lambda bps: 2.0 * (bps / 1e6) ** 0.3, BELOW),
        (lambda bps: 2.0, NONE),
    ],
)
def test_outside_of_what_was_measured_the_side_is_said(ratio: Callable[[float], float], kind: str) -> None:
    found = find(ratio)
    assert found.kind == kind
    if kind == ABOVE:
        assert found.found[0].low_bps == pytest.approx(1e8) and found.found[0].bandwidth_bps is None
    elif kind == BELOW:
        assert found.found[0].high_bps == pytest.approx(1e6) and found.found[0].bandwidth_bps is None
    else:
        assert "no trend" in found.why


@pytest.mark.parametrize("rising", [False, True])
def test_certainty_ends_where_the_interval_begins_to_hold_one(rising: bool) -> None:
    """As it can be read off the table: by a straight line between the ends of two neighbouring intervals."""
    points = measured(lambda bps: 1.05 * (1e8 / bps) ** 0.2, noise=0.1)
    if rising:
        points = [Measured(1e14 / one.bandwidth_bps, one.reference, one.arm) for one in reversed(points)]
    found = find_crossovers(points)
    lows = [(math.log(one.bandwidth_bps), ratio_of(one.reference, one.arm)) for one in points]
    ends = [(at, math.log(ratio.low)) for at, ratio in lows if ratio is not None and ratio.low is not None]
    (place,) = [a[0] + (b[0] - a[0]) * a[1] / (a[1] - b[1]) for a, b in pairwise(ends) if a[1] * b[1] < 0]
    (one,) = found.found
    assert found.kind == (BELOW if rising else ABOVE)
    assert (one.high_bps if rising else one.low_bps) == pytest.approx(math.exp(place))


def test_equal_arms_cross_nowhere() -> None:
    rng = random.Random(4)
    points = [
        Measured(
            bps,
            {one: Arrival(100.0) for one in range(5)},
            {
                one: Arrival(100.0 * math.exp(off))
                for one, off in enumerate(rng.sample((-0.1, -0.05, 0.0, 0.05, 0.1), 5))
            },
        )
        for bps in BANDWIDTHS
    ]
    found = find_crossovers(points)
    assert (found.kind, found.found) == (NONE, ()) and "equally fast" in found.why


def test_several_are_all_told() -> None:
    found = find(lambda bps: 2.0 if bps in (1e6, 1e7, 1e8) else 0.5)
    assert found.kind == SEVERAL and len(found.found) == 4
    assert [one.arm_faster_below for one in found.found] == [True, False, True, False]


def test_a_censored_side_leaves_the_gap_between_two_bandwidths() -> None:
    points = measured(lambda bps: (1e7 / bps) ** 0.5 * 0.9)
    never = {seed: Arrival(None, 150.0) for seed in range(3)}  # the baseline never arrives at 1 and 3 Mbit/s
    quick = {seed: Arrival(50.0) for seed in range(3)}
    points[:2] = [Measured(bps, never, quick) for bps in BANDWIDTHS[:2]]
    found = find_crossovers(points)
    (one,) = found.found
    assert found.kind == ONE and one.bandwidth_bps is None and one.arm_faster_below
    assert one.low_bps == pytest.approx(3e6) and one.high_bps is not None and one.high_bps <= 1.01e7


def test_a_bandwidth_with_single_repeats_takes_no_interval_from_the_others() -> None:
    points = measured(lambda bps: (1e7 / bps) ** 0.5)
    points[0] = Measured(BANDWIDTHS[0], {0: Arrival(100.0)}, {1: Arrival(50.0)})
    (one,) = (found := find_crossovers(points)).found
    assert found.num == 3 and one.low_bps is not None and one.high_bps is not None


def test_without_two_ratios_there_is_nothing_to_say() -> None:
    points = measured(lambda bps: 2.0)
    assert find_crossovers(points[:1]).kind == NONE
    assert find_crossovers([]).kind == NONE
    both_late = {seed: Arrival(None, 10.0) for seed in range(3)}
    assert find_crossovers([points[0], Measured(1e7, both_late, both_late)]).kind == NONE


def test_a_crossover_is_read_off_the_printed_ratios() -> None:
    """Where the straight line between two printed ratios is 1, and between the ends of their intervals."""
    points = measured(lambda bps: (1.5e7 / bps) ** 0.5, 4, 0.1)
    lower, upper = (ratio_of(one.reference, one.arm) for one in points[2:4])
    assert lower is not None and upper is not None and lower.value > 1 > upper.value
    weight = math.log(lower.value) / math.log(lower.value / upper.value)
    (one,) = find_crossovers(points).found
    assert one.bandwidth_bps == pytest.approx(1e7 ** (1 - weight) * 3e7**weight)
    assert lower.low is not None and upper.low is not None and lower.low > 1 > upper.low
    start = math.log(lower.low) / math.log(lower.low / upper.low)
    assert one.low_bps == pytest.approx(1e7 ** (1 - start) * 3e7**start)
