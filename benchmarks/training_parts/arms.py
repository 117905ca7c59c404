"""What all benchmarks of training have in common: nodes, seeds, grids of learning rates, one optimizer a method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bwbench.config.load import load_experiment
from bwbench.plan.build import build_plan
from bwbench.plan.cell import Cell

NODES = 4
TUNING_SEED = 1000
SEEDS = (0, 1, 2, 3, 4)
SGD_GRID = (0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
ADAM_GRID = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
ADAM_ARMS = ("qadam", "one-bit-adam")
OWN_MOMENTUM = ("dgc",)  # its momentum is inside the codec


def grid_of(arm: str) -> tuple[float, ...]:
    """Learning rates that are tried: the same for all methods of one optimizer."""
    return ADAM_GRID if is_adam(arm) else SGD_GRID


def best_lr(arm: str, cost: Callable[[float], Any]) -> float:
    """The learning rate of least cost: the middle three of the grid, then outwards as long as the best is outermost.

    The same search for all methods.
    """
    grid = grid_of(arm)
    tried = set(grid[len(grid) // 2 - 1 : len(grid) // 2 + 2])
    while True:
        best = min(sorted(tried), key=cost)
        position = grid.index(best)
        new = {grid[i] for i in (position - 1, position + 1) if 0 <= i < len(grid)} - tried
        if not new:
            return best
        tried |= new


def optimizer_of(arm: str, lr: float) -> str:
    """YAML of the optimizer: the one that the method prescribes, else SGD with momentum."""
    if is_adam(arm):
        return f"{{adam: {{lr: {lr}}}}}"
    momentum = 0.0 if arm in OWN_MOMENTUM else 0.9
    return f"{{sgd: {{lr: {lr}, momentum: {momentum}}}}}"


def is_adam(arm: str) -> bool:
    """Whether a method belongs to Adam; ``adam`` is fp32 Adam, which such a method is compared with."""
    return arm in (*ADAM_ARMS, "adam")


def one_cell(experiment_yaml: str) -> Cell:
    """The only cell of an experiment."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "benchmark.yaml"
        file.write_text(experiment_yaml)
        (cell,) = build_plan(load_experiment(file)).cells
    return cell
