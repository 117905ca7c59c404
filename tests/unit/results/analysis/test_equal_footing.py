"""Metric at equal samples, at equal time and at the end: only of runs that went on, up to where the shortest came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.equal_footing import equal_footing
from tests.fixtures_records import Study, write_study


def arms(folder: Path, **changes: object) -> dict[str, list[CellFolder]]:
    """Three repeats of two arms; statuses as ``changes`` say."""
    found: dict[str, list[CellFolder]] = {}
    for path in write_study(folder, Study(arms=("ring", "threshold"), limit_s=3.0)):
        status = json.loads((path / "status.json").read_text())
        (path / "status.json").write_text(json.dumps({**status, **changes}))
    for cell in iter_cells(folder):
        found.setdefault(str(cell.cell.arm), []).append(cell)
    return found


def test_all_arms_stand_at_what_the_shortest_run_came_to(tmp_path: Path) -> None:
    found = equal_footing(arms(tmp_path, reason="time", test_metric=0.5))
    ring, threshold = found["ring"], found["threshold"]
    assert ring.samples == threshold.samples and ring.clock_s == threshold.clock_s and ring.metric == "accuracy"
    slower = min(found.values(), key=lambda one: one.at_end.value)
    for one in found.values():
        assert 0.0 < one.at_samples.value <= one.at_end.value <= 1.0 and one.at_end.n == 3
        assert one.at_time.low is not None and one.at_time.low <= one.at_time.value
        assert one.test is not None and (one.test.value, one.test.low) == (0.5, 0.5)
    assert slower.at_time.value <= max(one.at_time.value for one in found.values())


def test_what_ended_at_its_target_says_nothing_of_later(tmp_path: Path) -> None:
    assert equal_footing(arms(tmp_path, reason="target")) == {}


def test_one_arm_alone_is_compared_with_nobody(tmp_path: Path) -> None:
    only = arms(tmp_path, reason="time")
    assert equal_footing({"ring": only["ring"]}) == {}


@pytest.mark.parametrize("test_metric", [None, 0.9])
def test_test_is_known_of_all_repeats_or_not_said(tmp_path: Path, test_metric: float | None) -> None:
    found = equal_footing(arms(tmp_path, reason="time", test_metric=test_metric))
    assert (found["ring"].test is None) == (test_metric is None)
