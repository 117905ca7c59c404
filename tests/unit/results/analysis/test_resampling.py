import random
import statistics

import pytest

from bwbench.results.analysis.compose import Sample, autocorrelation, interval_of_sum


def drifting(count: int, generator: random.Random, memory: float) -> list[float]:
    """Durations whose deviations fade by ``memory`` a step."""
    values, deviation = [], 0.0
    for _ in range(count):
        deviation = memory * deviation + generator.gauss(0, 0.1)
        values.append(1 + deviation)
    return values


def test_neighbours_that_agree_are_drawn_together() -> None:
    generator = random.Random(0)
    assert Sample(drifting(60, generator, 0.0), 500).block == 1
    assert Sample(drifting(60, generator, 0.9), 500).block > 1
    assert Sample([1.0, 1.1, 1.2, 1.3], 500).block == 1


def test_autocorrelation() -> None:
    assert autocorrelation([1.0, 1.0, 1.0]) == 0
    assert autocorrelation([1.0, 2.0] * 20) < -0.9
    assert autocorrelation([float(value) for value in range(50)]) > 0.8


@pytest.mark.parametrize(("count", "memory"), [(5, 0.0), (8, 0.0), (24, 0.0), (60, 0.0), (60, 0.6)])
def test_coverage(count: int, memory: float) -> None:
    """Of the sum of 300 further values. That of neighbours that agree is lower: few values hold few blocks."""
    generator = random.Random(count)
    inside = 0
    for trial in range(100):
        timed = drifting(count, generator, memory)
        truth = sum(drifting(300, generator, memory))
        low, high = interval_of_sum([Sample(timed, 300)], 300 * statistics.fmean(timed), trial)
        inside += low <= truth <= high
    assert inside >= (89 if memory == 0 else 80)


def test_what_is_not_summed_or_was_timed_once_adds_nothing() -> None:
    assert interval_of_sum([Sample([1.0, 2.0], 0), Sample([1.0], 5), Sample([], 3)], 5.0, 0) is None
    low, high = interval_of_sum([Sample([1.0, 2.0, 1.5], 4), Sample([9.0], 5)], 51.0, 0)
    assert low < 51 < high


def test_a_time_is_never_below_zero() -> None:
    low, _ = interval_of_sum([Sample([0.0, 10.0, 0.0], 4)], 13.0, 0)
    assert low == 0
