"""The simulation of coverage: its made-up arms are what it says, its other procedures what they are named for."""

from __future__ import annotations

import math
import random
import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from coverage_parts.made_up import Arm, Setting, arm_of
from coverage_parts.procedures import PROCEDURES, AllArms, ratio_intervals, time_intervals

SETTING = Setting("two kinds", (0.08,) * 6 + (0.30,) * 2)


def made_up(n: int, setting: Setting, seed: int) -> list[Arm]:
    rng = random.Random(seed)
    return [arm_of(n, 1.0, spread, setting, [0.0], rng) for spread in setting.spreads]


def test_seeds_spread_as_asked_and_share_their_timing() -> None:
    quiet = arm_of(4000, 2.0, 0.08, SETTING, [0.0], random.Random(1))
    logs = [math.log(one.or_infinity / 2.0) for one in quiet.values()]
    assert statistics.stdev(logs) == pytest.approx(0.08, rel=0.05)
    assert len({one.timing_variance for one in quiet.values()}) == 1 and quiet[0].timing_freedom == 2


def test_as_many_are_beyond_the_limit_as_asked() -> None:
    late = arm_of(4000, 1.0, 0.2, Setting("late", (0.2,), censored=0.2), [0.0], random.Random(2))
    assert sum(one.time_s is None for one in late.values()) / 4000 == pytest.approx(0.2, abs=0.04)


def test_one_spread_for_all_is_too_narrow_for_the_noisy_arm_and_too_wide_for_the_quiet_one() -> None:
    arms = made_up(12, SETTING, 3)
    everything = AllArms.of(arms)
    quiet, noisy = (time_intervals(arms[number], everything) for number in (0, 7))
    assert width(quiet["pooled"]) > width(quiet["welch"]) and width(noisy["pooled"]) < width(noisy["welch"])
    assert width(noisy["pooled"]) < width(noisy["moderated"]) < width(noisy["welch"])
    assert set(ratio_intervals(arms[0], arms[7], everything)) == set(PROCEDURES)


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]
