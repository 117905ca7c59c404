"""The rows of benchmarks/tta.py, from trainings that never were."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.experiment.plan.cell import Cell
from bwbench.records import CellFolder, write_json_atomic
from bwbench.records.schema import Status

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import training_parts.runs as training_runs
import tta
from training_parts.runs import Runs
from training_parts.workloads import QUICK


class Fake(Runs):
    """Composed in 10 s; whole in 8 s, but for seeds that the machine failed in."""

    def __init__(self, results: Path, failed: tuple[int, ...] = ()) -> None:
        super().__init__(QUICK, results)
        self.failed, self.composed_arms = failed, set()

    def composed(self, cell: Cell) -> Any:
        self.composed_arms.add(cell.arm)
        return SimpleNamespace(
            training_clock_s=10.0, steps=100, samples_to_target=12_800, interval_s=(9.0, 11.0), time_to_target_s=10.0
        )

    def whole(self, cell: Cell) -> dict[str, Any]:
        status = "invalid" if cell.config.seed in self.failed else "done"
        return {"status": status, "samples_to_target": 12_800, "wire_bytes_to_target": 7, "time_to_target_s": 8.0}


def rows(runs: Runs, *arms: str, whole_s: float = 60.0) -> list[dict[str, Any]]:
    rates: Any = SimpleNamespace(of=lambda arm: 0.1)
    return list(tta.rows_of(QUICK, list(arms), list(training_runs.LINKS), (0, 1, 2), rates, runs, whole_s))


def test_a_method_is_composed_and_run_whole_where_that_is_short(tmp_path: Path) -> None:
    found = rows(Fake(tmp_path), "ring", "single")
    assert [(row["arm"], row["link"], row["composed"]) for row in found] == [
        ("ring", "unshaped", True), ("ring", "unshaped", False), ("ring", "10 Mbit/s", True),
        ("ring", "10 Mbit/s", False), ("single", "unshaped", True), ("single", "unshaped", False),
    ]  # fmt: skip
    assert found[1]["error_of_composing"] == pytest.approx(0.25)
    assert [row["composed"] for row in rows(Fake(tmp_path), "ring", whole_s=9.0)] == [True, True]
    assert all(tta.shown(row) for row in found)


def test_what_depends_on_the_link_is_run_whole_alone(tmp_path: Path) -> None:
    runs = Fake(tmp_path)
    assert [row["composed"] for row in rows(runs, "async")] == [False, False]
    assert not runs.composed_arms


def test_a_run_that_the_machine_failed_in_is_no_result(tmp_path: Path) -> None:
    found = [row for row in rows(Fake(tmp_path, failed=(1,)), "ring") if not row["composed"]]
    assert [(row["seeds"], row["num_censored"], row["times_s"]) for row in found] == [(2, 0, [8.0, 8.0])] * 2
    assert all(row["composed"] for row in rows(Fake(tmp_path, failed=(0, 1, 2)), "ring"))


def test_a_run_that_failed_is_tried_again_as_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(QUICK, tmp_path)
    cell = runs.cell("ring", 0.1, 0, "10 Mbit/s")
    folder = tmp_path / "whole" / cell.folder_name
    folder.mkdir(parents=True)
    write_json_atomic(
        folder / "status.json", {"id": cell.id, "slug": cell.slug, "status": "failed", "reason": "x", "attempt": 2}
    )
    asked = []

    def run_cell(item: Any, limit_s: float, observer: object) -> Status:
        asked.append(item.attempt)
        status = Status(id=cell.id, slug=cell.slug, status="done", attempt=3)
        write_json_atomic(item.folder / "status.json", status.to_json())
        return status

    monkeypatch.setattr(training_runs, "run_cell", run_cell)
    assert [runs.whole(cell)["status"] for _ in range(2)] == ["done", "done"]
    assert asked == [2] and CellFolder(folder).status == Status(id=cell.id, slug=cell.slug, status="done", attempt=3)
