"""What all benchmarks of training have in common: nodes, seeds, grids of learning rates, one optimizer a method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan.cell import Cell, build_plan
from bwbench.training.loop.optimizers import Adam, Muon, Sgd

NODES = 4
TUNING_SEED = 1000
SEEDS = (0, 1, 2, 3, 4)
ADAM_ARMS = ("qadam", "one-bit-adam", "des-loc")
MUON_ARMS = ("muloco", "muloco-int2")
SIGNED_ARMS = ("demo",)  # steps of one size, as Adam's nearly are
# Inside the codec; or, as in the papers, none: residuals come late.
NO_MOMENTUM = ("dgc", "dgc-int4", "random-k", "ef-signsgd", "cocktail-sgd", *SIGNED_ARMS)


def grid_of(arm: str) -> tuple[float, ...]:
    """Learning rates that are tried: the same for all methods of one optimizer, and for all of one size of steps."""
    if is_adam(arm) or arm in SIGNED_ARMS:
        return Adam.rates
    return Muon.rates if arm in MUON_ARMS else Sgd.rates


def best_lr(arm: str, cost: Callable[[float], Any]) -> float:
    """The learning rate of least cost: the middle three of the grid, then outwards as long as the best is outermost.

    The same search for all methods: on one seed, for records that were made so. ``bwbench tune`` asks several.
    """
    grid = grid_of(arm)
    costs = {rate: cost(rate) for rate in grid[2:5]}
    while True:
        best = min(costs, key=lambda rate: costs[rate])
        at = grid.index(best)
        new = [rate for rate in grid[max(0, at - 1) : at + 2] if rate not in costs]
        if not new:
            return best
        costs = dict(sorted({**costs, **{rate: cost(rate) for rate in new}}.items()))


def optimizer_of(arm: str, lr: float) -> str:
    """YAML of the optimizer: the one that the method prescribes, else SGD with momentum."""
    if is_adam(arm):
        return f"{{adam: {{lr: {lr}}}}}"
    if arm in MUON_ARMS:
        return f"{{muon: {{lr: {lr}}}}}"
    momentum = 0.0 if arm in NO_MOMENTUM else 0.9
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
