"""The table of accuracies after equal samples: which of a cell's folders it reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.experiment.plan.composing import convergence_config
from bwbench.records.cell_identity import identity

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import equal_samples

EXPERIMENT = """
name: tiny
nodes: 2
link: {bandwidth: 10 Mbit/s}
model: logistic
dataset: digits
batch_size: 32
optimizer: {sgd: {lr: 0.05}}
target: {accuracy: 0.8}
limit: {samples: 1280}
mode: composed
repeats: 2
matrix: {algorithm: [ring, ddp]}
"""


def test_a_cell_that_waits_for_its_timing_run_has_its_training_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(EXPERIMENT)
    cells = build_plan(load_experiment(tmp_path / "tiny.yaml")).cells
    folders = {cell.id: tmp_path / "waits" / cell.id for cell in cells}
    folders |= {identity(convergence_config(cell.config)): tmp_path / f"s{cell.config.seed}" for cell in cells}
    trained = {f"s{seed}": {"accuracy": 0.8 + 0.1 * seed} for seed in range(2)}
    monkeypatch.setattr(equal_samples, "last_test", lambda folder: trained.get(folder.name))
    rows = equal_samples.rows_of(cells, folders, "accuracy", "ring")
    assert {row["arm"]: (row["n"], row["planned"], row["value"]) for row in rows} == {
        "ring": (2, 2, pytest.approx(0.85)),
        "ddp": (2, 2, pytest.approx(0.85)),
    }
