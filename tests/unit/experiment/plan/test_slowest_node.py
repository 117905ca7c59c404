"""The slowest of nodes whose step times differ, against the draws themselves."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from bwbench.base.step_time import SteadyStepTime, StepTimeTrace
from bwbench.experiment.plan.slowest_node import expected_slowest_s, mean_step_s, median_slowest_s

DRAWN = SteadyStepTime(0.06, 0.3)
ROUNDS = 4000
CASES = {
    "one": (DRAWN,),
    "four": (DRAWN,) * 4,
    "sixteen": (DRAWN,) * 16,
    "wide": (SteadyStepTime(0.06, 1.0),) * 4,
    "with a slow node": (DRAWN, DRAWN, SteadyStepTime(0.12)),
    "with a node that is hardly slower": (DRAWN, DRAWN, SteadyStepTime(0.07)),
    "of all kinds": (SteadyStepTime(0.05), SteadyStepTime(0.06, 0.1), SteadyStepTime(0.08, 0.5)),
}


def drawn(times: tuple[SteadyStepTime, ...], steps: int) -> list[float]:
    """Of each round the slowest node's mean over its steps."""
    return [
        max(
            statistics.fmean(one.drawn_s(0, rank, steps * number + step) for step in range(steps))
            for rank, one in enumerate(times)
        )
        for number in range(ROUNDS)
    ]


@pytest.mark.parametrize("name", CASES)
def test_where_all_wait_in_every_step(name: str) -> None:
    times = CASES[name]
    found = drawn(times, 1)
    error = statistics.stdev(found) / math.sqrt(ROUNDS)
    assert expected_slowest_s(times) == pytest.approx(statistics.fmean(found), abs=4 * error + 1e-9)
    assert median_slowest_s(times) == pytest.approx(statistics.median(found), rel=0.03)


@pytest.mark.parametrize("steps", [4, 16])
def test_where_they_wait_now_and_then(steps: int) -> None:
    times = CASES["four"]
    assert expected_slowest_s(times, steps) == pytest.approx(statistics.fmean(drawn(times, steps)), rel=0.01)


def test_the_oftener_all_wait_the_longer_it_takes() -> None:
    found = [expected_slowest_s(CASES["four"], steps) for steps in (1, 2, 8, 64, 10_000)]
    assert found == sorted(found, reverse=True) and found[-1] == pytest.approx(0.06, rel=0.005)
    assert expected_slowest_s(CASES["one"]) == pytest.approx(0.06, rel=1e-6)
    assert expected_slowest_s((SteadyStepTime(0.06), SteadyStepTime(0.12))) == 0.12 and expected_slowest_s(()) == 0


def test_traces_are_walked_through(tmp_path: Path) -> None:
    file = tmp_path / "hot.csv"
    file.write_text("time_s,step_time_ms\n0,20\n2,40\n4,100\n")  # 100 steps, then 50, then slow ones
    hot = StepTimeTrace(str(file))
    assert mean_step_s([hot], 50) == pytest.approx(0.02)
    assert mean_step_s([hot], 150) == pytest.approx(4 / 150)
    assert mean_step_s([hot, SteadyStepTime(0.01)], 250) == pytest.approx((4 + 10) / 250)
    assert mean_step_s([hot, SteadyStepTime(0.04)], 150) == pytest.approx((100 * 0.04 + 50 * 0.1) / 150)
    assert mean_step_s([], 10) == 0
