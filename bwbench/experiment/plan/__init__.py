"""From an experiment to the ordered list of its cells, with what each will send and how long it will take."""

from bwbench.experiment.plan.assess import PlannedCell, assess
from bwbench.experiment.plan.build import Plan, build_plan
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.doubts import doubts
from bwbench.experiment.plan.estimate import CellEstimate, estimate_cells
from bwbench.experiment.plan.forecast import Forecast, foresee
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
