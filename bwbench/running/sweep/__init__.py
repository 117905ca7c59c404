"""A whole matrix, unattended: which cells of which files run, in which order, and the loop that runs them.

``bwbench.running.sweep.loop`` is not imported here: planning needs neither networks nor launchers.
"""

from bwbench.running.sweep.planned import SweepPlan, freeze_sweep, plan_sweep
from bwbench.running.sweep.selection import Selection

__all__ = ["Selection", "SweepPlan", "freeze_sweep", "plan_sweep"]
