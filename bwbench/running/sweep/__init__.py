"""A whole matrix, unattended: which cells of which files run, in which order, and the loop that runs them.

The scheduler is not imported here: planning needs neither networks nor launchers.
"""

from bwbench.running.sweep.sweep_plan import Selection, SweepPlan, freeze_sweep, plan_experiments, plan_sweep

__all__ = ["Selection", "SweepPlan", "freeze_sweep", "plan_experiments", "plan_sweep"]
