"""From an experiment to the ordered list of its cells, with what each will send and how long it will take."""

from bwbench.experiment.plan.assess import PlannedCell, assess, doubts
from bwbench.experiment.plan.calibration import Forecast, foresee
from bwbench.experiment.plan.cell import Cell, Plan, build_plan
from bwbench.experiment.plan.estimate import CellEstimate, estimate_cells
from bwbench.records.cell_identity import identity

__all__ = [
    "Cell",
    "CellEstimate",
    "Forecast",
    "Plan",
    "PlannedCell",
    "assess",
    "build_plan",
    "doubts",
    "estimate_cells",
    "foresee",
    "identity",
]
