"""What is left of a sweep, by predictions that finished cells correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.plan import foresee
from bwbench.records.schema import Status
from bwbench.running.sweep import plan_sweep, time_left
from bwbench.running.sweep.time_left import TimeLeft
from tests.unit.experiment.plan.records import KNOWN, finished
from tests.unit.running.sweep.studies import write_study


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("estimate", "forecast"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [KNOWN] * len(configs))
    return plan_sweep([write_study(tmp_path)], tmp_path / "results").selected


@pytest.mark.parametrize("few", [500, 0])
def test_cells_to_come_are_predicted_anew_when_one_has_finished(items, few: int, monkeypatch) -> None:
    monkeypatch.setattr(time_left, "FEW", few)
    monkeypatch.setattr(time_left, "REFRESHED_S", 0.0)
    foreseen = foresee(items)
    left = TimeLeft(foreseen)
    for item in items:
        left.expect(item)
    before_s = left.waiting_s()
    assert not left.is_measured
    assert before_s == pytest.approx(sum(foreseen.predict(item).total_s for item in items))
    left.expect(items[0], -1)
    assert left.waiting_s() == pytest.approx(before_s - foreseen.predict(items[0]).total_s)
    left.note(items[0], Status(id="0", slug="x", status="failed", wall_s=1.0, training_clock_s=0.5))
    assert not left.is_measured
    left.note(items[0], finished(items[0].cell, foreseen.estimates[items[0].cell.id], starting=3.0))
    assert left.is_measured
    assert left.waiting_s() == pytest.approx(sum(left.cell_s(item) for item in items[1:]))
    assert left.waiting_s() > before_s
    for item in items:
        left.expect(item, -1)
    assert left.waiting_s() == pytest.approx(0, abs=1e-6)
