"""What is left of a sweep, by predictions that finished cells correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.plan import foresee
from bwbench.records.schema import Status
from bwbench.running.sweep import account, plan_sweep
from bwbench.running.sweep.account import TimeLeft
from tests.unit.experiment.plan.records import KNOWN, finished
from tests.unit.running.sweep.studies import write_study

TARGET = "target: {accuracy: 0.9}\n"


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("estimate", "calibration"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [KNOWN] * len(configs))
    return plan_sweep([write_study(tmp_path)], tmp_path / "results").selected


@pytest.mark.parametrize("few", [500, 0])
def test_cells_to_come_are_predicted_anew_when_one_has_finished(items, few: int, monkeypatch) -> None:
    monkeypatch.setattr(account, "FEW", few)
    monkeypatch.setattr(account, "REFRESHED_S", 0.0)
    foreseen = foresee(items)
    left = TimeLeft(foreseen, items)
    before_s = left.left_s()
    assert not left.is_measured
    assert before_s == pytest.approx(sum(foreseen.predict(item).total_s for item in items))
    left.drop(items[0])
    assert left.left_s() == pytest.approx(before_s - foreseen.predict(items[0]).total_s)
    left.finish(items[0], Status(id="0", slug="x", status="failed", wall_s=1.0, training_clock_s=0.5))
    assert not left.is_measured
    left.finish(items[0], finished(items[0].cell, foreseen.estimates[items[0].cell.id], starting=3.0))
    assert left.is_measured
    assert left.left_s() == pytest.approx(sum(left.cell_s(item) for item in items[1:]))
    assert left.left_s() > before_s
    for item in items:
        left.drop(item)
    assert left.left_s() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("more", "sooner"), [("", False), (TARGET, True), (f"{TARGET}stop: limit\n", False)])
def test_a_cell_that_stops_at_a_target_may_end_sooner(items, tmp_path: Path, more: str, sooner: bool) -> None:
    file = write_study(tmp_path, "other")
    file.write_text(more + file.read_text())
    planned = plan_sweep([file], tmp_path / "results").selected
    left = TimeLeft(foresee(planned), planned)
    assert left.may_end_sooner is sooner
    for item in planned[1:]:
        left.drop(item)
    left.start(planned[0])
    assert left.may_end_sooner is sooner
    left.finish(planned[0], Status(id="0", slug="x", status="failed"))
    assert not left.may_end_sooner


def test_cells_that_run_side_by_side_share_what_is_to_come(items, monkeypatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(account.time, "monotonic", lambda: now_s)
    left = TimeLeft(foresee(items), items)
    whole_s = [left.cell_s(item) for item in items]
    for item in items[:2]:
        left.start(item)
    assert left.left_s() == pytest.approx(sum(whole_s) / 2)
    now_s += max(whole_s)
    assert left.left_s() == pytest.approx(sum(whole_s[2:]) / 2)
    for item in items:
        left.drop(item)
    assert left.left_s() == pytest.approx(0, abs=1e-6)
