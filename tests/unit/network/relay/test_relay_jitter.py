"""Delays that wander, and delays drawn anew for every frame, in virtual time, however close frames come."""

from __future__ import annotations

import statistics
from functools import cache

import pytest

from bwbench.network.link.chance import INTERVAL_JITTERS, Wander, correlation_s
from tests.unit.network.relay.virtual_relay import Submission, model, run

SMALL_BYTES = 100
LATENCY_S = 0.025


@cache
def delays_s(
    kind: str, jitter_ms: int, gap_s: float, duration_s: float, *, num_bytes: int = SMALL_BYTES
) -> list[float]:
    """Without the serialisations at 1 Gbit/s, or at 20 Mbit/s of full frames."""
    bandwidth_bps = 1e9 if num_bytes == SMALL_BYTES else 20e6
    asked = model(2, bandwidth=f"{bandwidth_bps} bit/s", latency="25 ms", jitter=f"{jitter_ms} ms", jitter_kind=kind)
    frames = [Submission(number * gap_s, 0, 1, num_bytes) for number in range(round(duration_s / gap_s))]
    serialised_s = 2 * num_bytes * 8 / bandwidth_bps
    left = run(asked, frames).left
    assert [number for _, _, number in left] == sorted(number for _, _, number in left)
    return [due_s - frames[number].time_s - serialised_s for due_s, _, number in left]


@pytest.mark.parametrize("jitter_ms", [1, 3, 5])
def test_a_delay_that_wanders_has_the_mean_and_the_deviation_asked(jitter_ms: int) -> None:
    found_s = delays_s("correlated", jitter_ms, 0.01, 400.0)
    assert statistics.fmean(found_s) == pytest.approx(LATENCY_S, abs=0.06e-3 * jitter_ms)
    assert statistics.pstdev(found_s) == pytest.approx(1e-3 * jitter_ms, rel=0.06)


@pytest.mark.parametrize("jitter_ms", [1, 3, 5])
@pytest.mark.parametrize("gap_ms", [0.1, 1])
def test_it_has_them_however_close_frames_come(jitter_ms: int, gap_ms: float) -> None:
    """Held against the same delay seen every 10 ms, which leaves chance out."""
    seen_s, sparse_s = (delays_s("correlated", jitter_ms, gap, 5.0) for gap in (gap_ms * 1e-3, 0.01))
    assert statistics.fmean(seen_s) == pytest.approx(statistics.fmean(sparse_s), abs=0.02e-3 * jitter_ms)
    assert statistics.pstdev(seen_s) == pytest.approx(statistics.pstdev(sparse_s), rel=0.02)


@pytest.mark.parametrize("jitter_ms", [3, 5])
def test_a_link_of_80_percent_load_leaves_it_alone(jitter_ms: int) -> None:
    gap_s = 1514 * 8 / 20e6 / 0.8
    seen_s, sparse_s = (
        delays_s("correlated", jitter_ms, gap_s, 40.0, num_bytes=1514),
        delays_s("correlated", jitter_ms, 0.01, 40.0),
    )
    assert statistics.fmean(seen_s) == pytest.approx(statistics.fmean(sparse_s), abs=0.05e-3 * jitter_ms)
    assert statistics.pstdev(seen_s) == pytest.approx(statistics.pstdev(sparse_s), rel=0.03)


@pytest.mark.parametrize(
    "jitter_ms, later_ms, deviations_ms",
    [(1, (1.23, 0.24, 0.01), (0.58, 0.85, 1.01)), (3, (5.08, 2.05, 0.04), (1.49, 2.10, 2.99)),
     (5, (9.48, 4.57, 0.29), (2.32, 3.22, 4.75))],
)  # fmt: skip
def test_independent_delays_in_order_are_as_the_docs_say_however_close_frames_come(
    jitter_ms: int, later_ms: tuple[float, ...], deviations_ms: tuple[float, ...]
) -> None:
    """The table of docs/links.md: what was asked only where frames are far apart."""
    for gap_s, mean_ms, deviation_ms in zip((1e-4, 1e-3, 1e-2), later_ms, deviations_ms, strict=True):
        found_s = delays_s("independent", jitter_ms, gap_s, 20_000 * gap_s)
        assert (statistics.fmean(found_s) - LATENCY_S) * 1e3 == pytest.approx(mean_ms, abs=0.1 * jitter_ms)
        assert statistics.pstdev(found_s) * 1e3 == pytest.approx(deviation_ms, rel=0.1)


def test_each_pair_of_nodes_wanders_by_itself_and_as_the_seed_says() -> None:
    frames = sorted(Submission(number * 0.01, 0, dst, SMALL_BYTES) for number in range(2000) for dst in (1, 2))

    def seen_s(dst: int, **changes: int) -> list[float]:
        ends_s = run(model(3, latency="25 ms", jitter="2 ms", **changes), frames).ends_s
        return [ends_s[number] - frame.time_s for number, frame in enumerate(frames) if frame.dst == dst]

    assert abs(statistics.correlation(seen_s(1), seen_s(2))) < 0.2
    assert seen_s(1) == seen_s(1) != seen_s(1, seed=2)


def test_it_forgets_what_it_was_in_the_time_that_is_stated() -> None:
    """The integral of the autocorrelation, which ends after two intervals."""
    jitter_s, step_s = 1e-3, 0.5e-3
    wander = Wander("any", INTERVAL_JITTERS * jitter_s)
    values = [wander.at(number * step_s) for number in range(200_000)]
    lags = range(1, int(2 * INTERVAL_JITTERS * jitter_s / step_s))
    together = sum(statistics.fmean(map(float.__mul__, values, values[lag:])) for lag in lags)
    assert (together + 0.5) * step_s == pytest.approx(correlation_s(jitter_s), rel=0.1)
    assert statistics.pstdev(values) == pytest.approx(1.0, rel=0.03)


def test_it_is_a_function_of_time_alone() -> None:
    often, seldom = Wander("any", 0.02), Wander("any", 0.02)
    for number in range(1000):
        often.at(number * 1e-3)
    assert seldom.at(0.999) == often.at(0.999)
