"""benchmarks/plan_time.py on made-up results: what it reads, and when it is content."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bwbench.records.schema import ComposedFrom
from tests.unit.experiment.plan.records import finished, planned_cells

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import plan_time


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (3.0, 1)])
def test_errors_before_any_run_and_by_half_of_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slower: float, code: int
) -> None:
    cells, estimates = planned_cells(tmp_path, monkeypatch)
    for number, cell in enumerate(cells):
        folder = tmp_path / "results" / "study" / cell.folder_name
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps(cell.to_json()))
        # The first failed, the second stopped at its target, the third is composed.
        steps = 40 if number == 1 else None
        ratios = {"computing": slower, "sending": slower, "evaluating": slower, "starting": slower}
        composed = ComposedFrom(convergence="a", timing="b")
        other = {0: {"status": "failed"}, 2: {"composed": composed}}.get(number, {})
        status = finished(cell, estimates[cell.id], steps, **ratios, attempt=1, **other)
        (folder / "status.json").write_text(json.dumps(status.to_json()))
    report = tmp_path / "out" / "report.json"
    monkeypatch.setattr(sys, "argv", ["plan_time", "--results", str(tmp_path / "results"), "--json", str(report)])
    assert plan_time.main() == code
    content = json.loads(report.read_text())
    assert len(content["rows"]) == len(cells) - 2 and min(row["steps"] for row in content["rows"]) == 40
    assert content["median_error_before"] == pytest.approx(1 - 1 / slower, abs=0.001)
    assert content["median_error_calibrated"] < 0.05
    assert f"{len(cells) - 2} cells: off by" in capsys.readouterr().out


def test_results_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["plan_time", "--results", str(tmp_path / "nowhere")])
    assert plan_time.main() == 2
    assert "nowhere" in capsys.readouterr().err
