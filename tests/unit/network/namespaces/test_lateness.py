"""Lateness of a stretch of time, from what was known before it and after it."""

from __future__ import annotations

from typing import Any

import pytest

from bwbench.network.namespaces.backend import lateness_between, lateness_quantile
from bwbench.network.relay.shared_memory import RelayStatistics


def test_the_difference_of_two_healths_is_what_happened_between_them() -> None:
    statistics = RelayStatistics(2)
    statistics.late([0.05] * 100)  # a probe on a busy machine
    statistics.flush()
    before = statistics.lateness()
    statistics.late([1e-5] * 980 + [9e-4] * 20)
    statistics.flush()
    between = lateness_between(before, statistics.lateness())
    assert between["histogram"] == [[2e-5, 980], [1e-3, 20]]
    assert (between["frames"], between["p50_s"], between["p99_s"], between["max_s"]) == (1000, 2e-5, 1e-3, 1e-3)


@pytest.mark.parametrize("health", [{}, {"lateness_histogram": None}, {"lateness_histogram": []}])
def test_without_frames_there_is_no_lateness(health: dict[str, Any]) -> None:
    nothing = {"frames": 0, "p50_s": None, "p99_s": None, "max_s": None, "histogram": []}
    assert lateness_between(health, health) == nothing
    same = {"lateness_histogram": [[1e-3, 5]]}
    assert lateness_between(same, same) == nothing


def test_a_histogram_from_the_start_needs_no_before() -> None:
    assert lateness_between({}, {"lateness_histogram": [[1e-3, 5]]})["frames"] == 5


@pytest.mark.parametrize("share, edge_s", [(0.0, 0.001), (0.5, 0.001), (0.51, 0.002), (0.99, 0.004), (1.0, 0.004)])
def test_quantiles_are_upper_edges(share: float, edge_s: float) -> None:
    assert lateness_quantile([[0.001, 50], [0.002, 40], [0.003, 0], [0.004, 10]], share) == edge_s
