"""Predictions that are corrected by what finished cells took."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.sweep import plan_sweep
from bwbench.sweep.time_left import USUAL_OVERHEAD_S, TimeLeft
from tests.unit.sweep.studies import write_study


def test_ratio_and_overhead_of_an_arm_else_of_all(tmp_path: Path) -> None:
    items = plan_sweep([write_study(tmp_path)], tmp_path / "results").selected
    rings = [item for item in items if item.cell.arm == "ring"]
    other = next(item for item in items if item.cell.arm == "ddp")
    left = TimeLeft({item.cell.id: 100.0 for item in items})
    assert not left.is_measured and left.cell_s(other) == pytest.approx(100 + USUAL_OVERHEAD_S)
    left.note(rings[0], {"status": "failed", "wall_s": 1.0, "training_clock_s": 0.5})
    assert not left.is_measured
    left.note(rings[0], {"status": "done", "wall_s": 58.0, "training_clock_s": 50.0})
    left.note(rings[1], {"status": "done", "wall_s": 58.0, "training_clock_s": 50.0})
    assert left.is_measured and left.cell_s(rings[2]) == left.cell_s(other) == pytest.approx(58.0)
    left.note(other, {"status": "done", "wall_s": 212.0, "training_clock_s": 200.0})
    assert left.cell_s(other) == pytest.approx(212.0) and left.cell_s(rings[2]) == pytest.approx(58.0)
    for item in (rings[2], rings[3], other):
        left.expect(item)
    left.expect(rings[3], -1)
    assert left.waiting_s() == pytest.approx(270.0)
