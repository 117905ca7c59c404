"""What the relay counts, and how the agent sees it."""

from __future__ import annotations

import json

import pytest

from bwbench.network.namespaces.backend import PairCounter
from bwbench.network.relay.shared_memory import RelayStatistics


def send(statistics: RelayStatistics, src: int, dst: int, frames: int, num_bytes: int, is_ack: bool = False) -> None:
    tally = statistics.tally(src, dst)
    tally.add(frames, num_bytes, is_ack=is_ack)
    if not tally.changed:
        statistics.touch(tally)


def test_what_entered_the_link_is_seen_once_it_is_flushed() -> None:
    statistics = RelayStatistics(3)
    send(statistics, 0, 2, 10, 15_140)
    send(statistics, 0, 2, 1, 66, is_ack=True)
    send(statistics, 2, 1, 1, 66, is_ack=True)
    statistics.lost(2, 1, 1, 66, is_ack=True, entered=False)
    assert statistics.counters().pairs == {}
    statistics.flush()
    assert statistics.counters().pairs == {
        (0, 2): PairCounter(11, 15_206, 1, 66, 0),
        (2, 1): PairCounter(0, 0, 0, 0, 1),
    }
    send(statistics, 0, 2, 1, 1514)
    statistics.flush()
    assert statistics.counters().pairs[0, 2] == PairCounter(12, 16_720, 1, 66, 0)


def test_a_pair_is_written_once_however_often_it_changed() -> None:
    statistics = RelayStatistics(2)
    tally = statistics.tally(0, 1)
    assert tally is statistics.tally(0, 1) and tally.dst == 1 and not tally.changed
    tally.add(2, 3028, is_ack=False)
    statistics.touch(tally)
    statistics.lost(0, 1, 1, 66, is_ack=True, entered=True)
    statistics.flush()
    assert not tally.changed
    assert statistics.counters().pairs == {(0, 1): PairCounter(2, 3028, 0, 0, 1)}


def test_lateness_quantiles() -> None:
    statistics = RelayStatistics(2)
    assert statistics.lateness()["lateness_p50_s"] is None
    assert statistics.lateness()["lateness_histogram"] == []
    statistics.late([number * 1e-5 for number in range(1000)])
    statistics.late([0.5])
    statistics.flush()
    health = statistics.lateness()
    assert health["lateness_p50_s"] == pytest.approx(0.005, abs=3e-5)
    assert health["lateness_p99_s"] == pytest.approx(0.0099, abs=3e-5)
    assert health["lateness_max_s"] == pytest.approx(0.5)
    assert health["lateness_mean_s"] == pytest.approx((999 * 500e-5 + 0.5) / 1001, rel=1e-3)


def test_the_histogram_is_compact_and_holds_every_frame() -> None:
    statistics = RelayStatistics(2)
    lateness_s = [-1e-4, 0.0, 1.5e-5, 3e-5, 1e-3, 0.0999, 0.15, 0.7, 3.0, 100.0]
    statistics.late(lateness_s)
    statistics.late([number * 1e-5 for number in range(10_000)])
    statistics.flush()
    histogram = json.loads(json.dumps(statistics.lateness()["lateness_histogram"]))
    edges = [edge_s for edge_s, _ in histogram]
    assert edges == sorted(edges) and len(edges) <= 25 and edges[-1] == 10.0
    assert sum(frames for _, frames in histogram) == len(lateness_s) + 10_000
    assert dict(histogram[-3:]) == {0.2: 1, 1.0: 1, 10.0: 2}
    assert dict(histogram)[2e-5] == 3 + 2  # early counts as not late
    assert max(later / earlier for earlier, later in zip(edges[1:-4], edges[2:-3], strict=True)) < 1.7


def test_work_and_faults_are_told() -> None:
    statistics = RelayStatistics(2)
    statistics.overrun(3)
    statistics.unsent()
    statistics.used(10)
    statistics.used(5)
    health = statistics.lateness()
    assert (health["overruns"], health["unsent"], health["wake_ups"]) == (3, 1, 15)
    assert health["cpu_user_s"] > 0 and health["cpu_system_s"] >= 0
