"""How each cell of an experiment comes by its time to accuracy: whole, composed, or both to compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composed import runs_whole_anyway
from bwbench.experiment.plan.estimate import estimate_cells
from bwbench.experiment.plan.whole_share import choose_whole

Way = Literal["whole", "composed", "checked"]
WHOLE: Way = "whole"
COMPOSED: Way = "composed"
CHECKED: Way = "checked"  # run whole, and composed as well


def ways(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, Way]:
    """The way of each cell by its id; cells that are not in it run whole.

    The choice depends on the experiment alone, so that a sweep that is interrupted goes on with the same one. Where
    ``whole.time`` limits it, models are described for that.

    Raises:
        ConfigError, LaunchError: a model cannot be described.
    """
    if experiment.mode != "composed":
        return {}
    composable = [cell for cell in cells if not runs_whole_anyway(cell.config)]
    estimates = estimate_cells(composable) if experiment.whole.time_s is not None and composable else {}

    def cost_s(cell: Cell) -> float:
        return estimates[cell.id].predicted_s

    checked = {cell.id for cell in choose_whole(composable, experiment.whole, cost_s if estimates else None)}
    return {cell.id: CHECKED if cell.id in checked else COMPOSED for cell in composable}
