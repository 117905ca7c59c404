"""Progress in a notebook: one output that is replaced, and nothing that asks for ipywidgets."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.cli import notebook_progress
from bwbench.cli.notebook_progress import NotebookProgress, in_notebook
from bwbench.experiment.plan import foresee
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Evaluation, Status
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import TimeLeft
from tests.unit.experiment.plan.records import KNOWN
from tests.unit.running.sweep.studies import write_study


class Shell:
    """What a notebook's kernel has in place of a terminal's shell."""

    kernel = "a kernel"


class Notebook:
    """Keeps what is displayed, as a notebook does: an output a call, replaced by its updates."""

    def __init__(self) -> None:
        self.outputs: list[list[dict[str, str]]] = []

    def display(self, shown: dict[str, str], *, raw: bool, display_id: bool) -> types.SimpleNamespace:
        assert raw and display_id
        drawn = [shown]
        self.outputs.append(drawn)

        def update(newer: dict[str, str], *, raw: bool) -> None:
            assert raw
            drawn.append(newer)

        return types.SimpleNamespace(update=update)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    found = Notebook()
    display = types.SimpleNamespace(display=found.display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=display, get_ipython=Shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook_progress, "EVALUATIONS_EVERY_S", -1.0)
    yield found


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PlannedCell]:
    for module in ("estimate", "calibration"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [KNOWN] * len(configs))
    return list(plan_sweep([write_study(tmp_path)], tmp_path / "results").selected)


def test_a_kernel_is_told_from_a_terminal(monkeypatch: pytest.MonkeyPatch, notebook: Notebook) -> None:
    assert in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object()))
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_one_output_is_replaced_as_cells_run(
    items: list[PlannedCell], notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *others = items
    with NotebookProgress(TimeLeft(foresee(items), items), len(items)) as progress:
        progress.cell_started(first, 1, len(items))
        progress.cell_phase(first.cell, "starting workers")
        target = first.cell.config.target
        metrics = {target.metric if target else "accuracy": 0.5}
        content = {"split": "validation", "step": 3, "samples": 96, "clock_s": 1.5, "mean": metrics}
        progress.cell_event(first.cell, 0, Evaluation.model_validate(content))
        done = {"id": "0", "slug": "x", "status": "done", "time_to_target_s": 2.0, "training_clock_s": 2.5}
        progress.cell_finished(first, Status.model_validate(done))
        progress.cell_skipped(second, "skipped: <b>it failed before</b>")
        progress.cell_elsewhere(others[0], Status.model_validate({**done, "status": "failed"}))
        progress.waiting(others[1:])
        progress.note("the disk is slow")
    (drawn,) = notebook.outputs
    texts = [one["text/plain"] for one in drawn]
    assert any("starting workers" in text for text in texts)
    assert any("0.500" in text and "96 of at most" in text for text in texts)
    assert "target reached after 2 s of training" in texts[-1] and "1 failed elsewhere" in texts[-1]
    assert drawn[-1]["text/html"].startswith("<pre") and "&lt;b&gt;it failed before" in drawn[-3]["text/html"]
    assert "note: the disk is slow" in capsys.readouterr().err


def test_nothing_to_run_shows_nothing(notebook: Notebook) -> None:
    with NotebookProgress(TimeLeft(foresee([]), []), 0):
        pass
    assert notebook.outputs == []
