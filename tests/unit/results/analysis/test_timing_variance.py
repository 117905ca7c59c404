"""What several timing runs say, beside one."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from bwbench.results.analysis.timing_variance import RunTimes, log_error


def test_one_run_says_nothing_of_others() -> None:
    one = RunTimes([10.0], [(9.5, 10.6)])
    assert (one.between_share, one.within_share, one.interval_s) == (None, None, (9.5, 10.6))


def test_several_runs_have_a_variance_and_an_interval_around_their_geometric_mean() -> None:
    runs = RunTimes([10.0, 10.4, 9.8], [None, None, None])
    logs = [math.log(time_s) for time_s in runs.times_s]
    assert runs.between_share == pytest.approx(statistics.variance(logs))
    assert runs.within_share == 0
    low, high = runs.interval_s
    assert math.sqrt(low * high) == pytest.approx(math.exp(statistics.fmean(logs)))
    assert math.log(high / low) / 2 == pytest.approx(4.303 * statistics.stdev(logs) * math.sqrt(4 / 3), rel=1e-3)


def test_runs_that_agree_by_luck_keep_the_chance_in_their_steps() -> None:
    low, high = RunTimes([10.0, 10.0], [(9.9, 10.1), (9.8, 10.2)]).interval_s
    assert 9.7 < low < 9.95 and 10.05 < high < 10.3
    assert RunTimes([10.0, 10.0], [None, None]).interval_s is None
    assert RunTimes([0.0, 0.0], [None, None]).interval_s is None


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_interval_covers_a_run_that_is_made_whole(runs: int) -> None:
    """Runs differ by 3 %, steps tell 0.5 %: 95 % of 2000 whole runs lie inside, where one run's interval holds few."""
    drawn = random.Random(runs)
    inside = alone = 0
    for _ in range(2000):
        times = [10 * math.exp(drawn.gauss(0, 0.03)) for _ in range(runs)]
        intervals = [(time_s * math.exp(-0.01), time_s * math.exp(0.01)) for time_s in times]
        whole = 10 * math.exp(drawn.gauss(0, 0.03))
        low, high = RunTimes(times, intervals).interval_s
        inside += low <= whole <= high
        alone += intervals[0][0] <= whole <= intervals[0][1]
    assert 0.94 < inside / 2000 < 0.99
    assert alone / 2000 < 0.3


def test_the_error_of_an_interval() -> None:
    assert log_error((math.exp(-0.0196), math.exp(0.0196)), 1.0) == pytest.approx(0.01, rel=1e-3)
    assert log_error(None, 1.0) == 0 and log_error((0.0, 0.0), 1.0) == 0
    assert log_error((0.0, 2.0), 1.0) == pytest.approx(math.log(4) / 3.92, rel=1e-3)
