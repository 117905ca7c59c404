"""Estimates and finished cells that were made up, for tests of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import Cell, CellEstimate, build_plan, estimate_cells
from bwbench.experiment.plan.described_models import Description
from bwbench.experiment.plan.estimate import num_evaluations
from bwbench.records.schema import Status

KNOWN = Description(650, ((10, 64), (10,)), 0.01, sample_s=1e-4, num_validation=1000, num_test=2000, start_s=2.0)
STUDY = """\
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: mlp
dataset: digits
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 640 samples}
target: {accuracy: 0.9}
limit: {samples: 12800}
repeats: 2
matrix:
  algorithm: [ring, local-sgd]
  link.bandwidth: [1 Mbit/s, 10 Mbit/s, 100 Mbit/s]
"""


def planned_cells(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, text: str = STUDY
) -> tuple[tuple[Cell, ...], dict[str, CellEstimate]]:
    """Cells of a study, and their estimates by what is said of a model, on a machine of two processors."""
    for module in ("estimate", "calibration"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [KNOWN] * len(configs))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path = folder / "study.yaml"
    path.write_text(text)
    cells = build_plan(load_experiment(path, overrides)).cells
    return cells, estimate_cells(cells)


def of(cells: tuple[Cell, ...], arm: str, bandwidth: str, repeat: int = 0) -> Cell:
    """The one cell of an arm on a link."""
    (found,) = [
        cell
        for cell in cells
        if cell.arm == arm and cell.config.link.describe().startswith(bandwidth) and cell.repeat == repeat
    ]
    return found


def finished(
    cell: Cell,
    estimate: CellEstimate,
    steps: int | None = None,
    computing: float = 1.0,
    sending: float = 1.0,
    evaluating: float = 1.0,
    starting: float = 1.0,
    **more: Any,
) -> Status:
    """Status of a cell on a machine that takes so many times as long for each of its parts as was estimated."""
    taken = estimate.steps if steps is None else steps
    compute_s = computing * estimate.unpadded_s
    clock_s = taken * (max(compute_s, estimate.padded_to_s) + sending * estimate.communication_s)
    evaluations = num_evaluations(cell.config, taken)
    evaluation_s = evaluating * (evaluations * estimate.validation_s + estimate.test_s)
    status = Status(
        id=cell.id,
        slug=cell.slug,
        status="done",
        steps=taken,
        training_clock_s=clock_s,
        compute_median_s=compute_s,
        evaluation_s=evaluation_s,
        wall_s=clock_s + evaluation_s + starting * estimate.overhead_s,
        samples_to_target=None,
    )
    return status.model_copy(update=more)
