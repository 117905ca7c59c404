"""From an experiment to the ordered list of its cells, with what each will send and how long it will take."""

from bwbench.plan.assess import PlannedCell, assess, freeze_plan
from bwbench.plan.build import Plan, build_plan
from bwbench.plan.cell import Cell, identity
from bwbench.plan.doubts import doubts
from bwbench.plan.estimate import Estimate, estimate_cells
from bwbench.plan.forecast import Forecast, foresee
from bwbench.plan.traffic import Traffic

__all__ = [
    "Cell",
    "Estimate",
    "Forecast",
    "Plan",
    "PlannedCell",
    "Traffic",
    "assess",
    "build_plan",
    "doubts",
    "estimate_cells",
    "foresee",
    "freeze_plan",
    "identity",
]
