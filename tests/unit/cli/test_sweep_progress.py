"""What a sweep says while it runs, line by line and as a table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bwbench.cli import sweep_progress
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress, outcome_in_words
from bwbench.experiment.plan import foresee
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Evaluation, Status
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import TimeLeft
from tests.unit.experiment.plan.records import KNOWN
from tests.unit.running.sweep.studies import write_study


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PlannedCell]:
    for module in ("estimate", "calibration"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [KNOWN] * len(configs))
    return list(plan_sweep([write_study(tmp_path)], tmp_path / "results").selected)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    console = Console(file=stream, width=200, highlight=False, markup=False, force_terminal=False)
    monkeypatch.setattr(sweep_progress, "stderr", lambda: console)
    return stream


def tell(progress: PlainProgress | LiveProgress, items: list[PlannedCell]) -> None:
    """Of one cell that reaches its target, one that is skipped, one that ends elsewhere, and one that is waited for."""
    first, *others = items
    progress.cell_started(first, 1, len(items))
    progress.cell_phase(first.cell, "starting workers")
    target = first.cell.config.target
    metrics = {target.metric if target else "accuracy": 0.5}
    content = {"split": "validation", "step": 3, "samples": 96, "clock_s": 1.5, "mean": metrics}
    progress.cell_event(first.cell, 0, Evaluation.model_validate(content))
    progress.cell_event(first.cell, 0, Evaluation.model_validate({**content, "split": "test", "mean": {"loss": 9.0}}))
    progress.cell_phase(first.cell, "training")
    done = {"id": "0", "slug": "x", "status": "done", "time_to_target_s": 2.0, "training_clock_s": 2.5}
    progress.cell_finished(first, Status.model_validate(done))
    progress.cell_skipped(others[0], "skipped: it failed before")
    progress.cell_elsewhere(others[1], Status.model_validate({**done, "status": "failed"}))
    progress.waiting(others[2:])
    progress.note("the disk is slow")


def test_a_line_an_occurrence(items: list[PlannedCell], said: io.StringIO) -> None:
    left = TimeLeft(foresee(items), items)
    with PlainProgress(left, len(items)) as progress:
        tell(progress, items)
    first, skipped, failed, *waiting = (item.cell.slug for item in items)
    lines = said.getvalue().splitlines()
    assert lines[0].startswith(f"[1/{len(items)}] {first}: starts: ") and lines[0].endswith(" left")
    assert lines[1].endswith(" 0.500 after 96 samples, 1.5 s of training")
    assert lines[2:] == [
        f"[1/{len(items)}] {first}: done: target reached after 2 s of training",
        f"{skipped}: skipped: it failed before",
        f"{failed}: failed meanwhile, by another process",
        f"waiting for {len(waiting)} cell(s) that other processes run: {', '.join(waiting[:3])} …",
        "note: the disk is slow",
    ]
    assert left.left_s() == pytest.approx(0, abs=1e-6)


def test_a_table(items: list[PlannedCell], said: io.StringIO) -> None:
    with LiveProgress(TimeLeft(foresee(items), items), len(items)) as progress:
        tell(progress, items)
    shown = said.getvalue()
    assert "note: the disk is slow" in shown and "target reached after 2 s of training" in shown
    assert f"1 done, 1 skipped, 1 failed elsewhere of {len(items)}" in shown
    assert f"waiting for {len(items) - 3} cell(s) that other processes run" in shown


def test_how_virtual_nodes_end_is_told_in_samples() -> None:
    done = Status(status="done", id="0", slug="x", time_to_target_s=2.0, samples_to_target=640, samples=640)
    missed = Status(status="done", id="0", slug="x", censored_at_s=3.0, samples=1280)
    assert outcome_in_words(done, virtual=True) == "target reached after 640 samples"
    assert outcome_in_words(missed, virtual=True) == "target not reached within 1280 samples"
