"""benchmarks/repeats.py: the arms that it makes up, and the ways of deciding."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import repeats


def test_all_repeats_of_a_composed_arm_share_its_timing_runs() -> None:
    arm = repeats.Arm((0.1, -0.1, 0.0), (0.0, 0.3, 0.3, 0.2))
    found = arm.arrivals(2, 4, pilot=None)
    assert [math.log(one.time_s) for one in found.values()] == pytest.approx([0.3, 0.1])
    assert {one.timing_freedom for one in found.values()} == {3.0}
    by_pilot = arm.arrivals(3, 4, pilot=2)
    assert [one.timing_variance for one in by_pilot.values()] == pytest.approx([0.03 / 4] * 3)
    assert {one.timing_freedom for one in by_pilot.values()} == {2.0}
    assert [one.of_pilot for one in by_pilot.values()] == [True, True, False]


def test_a_way_adds_what_the_pilot_asks_for_and_no_more_than_the_most() -> None:
    trial = repeats.made_up(random.Random(0), (0.05, 0.3), 0.03)
    found = repeats.two_stages(trial, 8, by_pilot=True)
    assert 16 < found.repeats <= 48 and 6 <= found.timing_runs <= 48
