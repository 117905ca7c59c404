"""The error of a mean with several causes."""

from __future__ import annotations

import math

import pytest

from bwbench.results.analysis.student import student_t
from bwbench.results.analysis.welch import GRID, SEEDS, TIMING_RUNS, ErrorPart, MeanError


def test_parts_of_a_fixed_number_of_runs_share_their_degrees_of_freedom() -> None:
    two = MeanError((ErrorPart(TIMING_RUNS, 1.0, 2.0), ErrorPart(TIMING_RUNS, 1.0, 2.0)))
    assert two.freedom == pytest.approx(4.0) and two.half_width() == pytest.approx(math.sqrt(2) * student_t(4.0))


def test_parts_whose_number_of_runs_followed_from_their_variance_keep_their_own() -> None:
    staged = ErrorPart(TIMING_RUNS, 1.0, 2.0, two_stages=True)
    assert MeanError((staged, staged)).half_width() == pytest.approx(math.sqrt(2) * student_t(2.0))
    seeds = ErrorPart(SEEDS, 3.0, 7.0)
    both = MeanError((seeds, staged))
    assert both.quantile() == pytest.approx((3 * student_t(7.0) + student_t(2.0)) / 4)
    assert both.dominant == SEEDS
    nothing = MeanError((seeds, ErrorPart(TIMING_RUNS, 0.0, 2.0, two_stages=True)))
    assert nothing.half_width() == pytest.approx(math.sqrt(3) * student_t(7.0))


def test_what_is_assumed_never_makes_an_interval_narrower() -> None:
    """The rule of Welch and Satterthwaite would: 2.9 degrees of freedom in place of 2, and so a smaller t."""
    seeds, assumed = ErrorPart(SEEDS, 1.0, 2.0), ErrorPart(TIMING_RUNS, 0.2, math.inf)
    both = MeanError((seeds, assumed))
    assert both.half_width() == pytest.approx(math.hypot(student_t(2.0), math.sqrt(0.2) * student_t(math.inf)))
    assert both.half_width() > MeanError((seeds,)).half_width() and both.freedom == 2.0
    assert MeanError((assumed,)).half_width() == pytest.approx(math.sqrt(0.2) * student_t(math.inf))
    assert MeanError((seeds, assumed), floor=9.0).half_width() == pytest.approx(
        math.hypot(9.0, math.sqrt(0.2) * student_t(math.inf))
    )
    assert MeanError((seeds, assumed), floor=9.0).dominant == GRID
    staged = ErrorPart(TIMING_RUNS, 0.5, 2.0, two_stages=True)
    three = MeanError((seeds, assumed, staged))
    assert three.quantile() == pytest.approx(student_t(2.0)), "of both estimated parts alone"
    assert three.half_width() == pytest.approx(
        math.hypot(student_t(2.0) * math.sqrt(1.5), student_t(math.inf) * 0.2**0.5)
    )
    of_timing = math.hypot(student_t(2.0) * math.sqrt(0.5), student_t(math.inf) * math.sqrt(0.2))
    assert MeanError(three.parts, floor=9.0).half_width() == pytest.approx(math.hypot(9.0, of_timing))


def test_what_dominates_is_what_makes_the_interval_wide() -> None:
    """Three seeds that spread by 3 % reach farther than an assumed error of 3 %, whose variance is the larger one."""
    assumed = ErrorPart(TIMING_RUNS, 0.03**2, math.inf)
    assert MeanError((ErrorPart(SEEDS, 0.03**2 / 3, 2.0), assumed)).dominant == SEEDS
    assert MeanError((ErrorPart(SEEDS, 0.02**2 / 3, 2.0), assumed)).dominant == TIMING_RUNS
    assert MeanError((ErrorPart(SEEDS, 0.01**2 / 3, 2.0), assumed), floor=0.06).dominant == GRID
