"""Cells to be run, made from an experiment that nobody will run."""

from __future__ import annotations

from pathlib import Path

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.running.sweep import plan_sweep

STUDY = """
name: study
nodes: 2
link: {bandwidth: 100 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
algorithm: ring
optimizer: {sgd: {lr: 0.05}}
"""


def planned_cells(results: Path, number: int) -> list[PlannedCell]:
    """So many cells, in running order, of which nothing is recorded in ``results``."""
    results.parent.mkdir(parents=True, exist_ok=True)
    file = results.parent / "study.yaml"
    file.write_text(f"{STUDY}repeats: {number}\n")
    return list(plan_sweep([file], results).selected)
