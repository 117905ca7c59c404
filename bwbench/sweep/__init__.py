"""A whole matrix, unattended: which cells of which files run, in which order, and the loop that runs them.

``bwbench.sweep.loop`` is not imported here: planning needs neither networks nor launchers.
"""

from bwbench.sweep.planned import SweepPlan, freeze_sweep, plan_sweep
from bwbench.sweep.selection import Selection

__all__ = ["Selection", "SweepPlan", "freeze_sweep", "plan_sweep"]
