"""Which methods may be at their target before their nodes have sent one another anything: said before they run.

A time to the target is then that of nodes that train alone (``results/analysis/arrived_alone.py`` says so of records).
A plan knows when a method exchanges something for the first time. When the target will be reached it knows from
finished repeats alone; without any it warns where the first exchange comes late in the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.calibration import Forecast
from bwbench.experiment.plan.estimate import CellEstimate
from bwbench.methods.roles import METHOD

EARLY = 0.1  # of the limit: of 926 published cells that stopped at their target 95 % took 0.22 of it or more


def may_arrive_alone(planned: Iterable[PlannedCell], foreseen: Forecast) -> list[str]:
    """A line for each method among the cells to run whose target may come before its first exchange."""
    found: dict[str, None] = {}
    for item in planned:
        estimate = foreseen.estimates.get(item.cell.id)
        if item.runs and estimate is not None and (why := _why(item, estimate, foreseen)) is not None:
            found[
                f"{item.cell.arm}: nodes send nothing before step {estimate.first_exchange}, {why}. The time to a "
                "target that is reached before is that of nodes that train alone: let them agree more often, or ask "
                "for a harder target"
            ] = None
    return list(found)


def _why(item: PlannedCell, estimate: CellEstimate, foreseen: Forecast) -> str | None:
    """What makes an arrival before the first exchange likely; None where it is not, or where there is no target."""
    config, first = item.cell.config, estimate.first_exchange
    if config.target is None or config.nodes < 2 or first is None or item.cell.role != METHOD:
        return None
    if first > estimate.steps:
        return f"and training ends at its limit, after step {estimate.steps}"
    if math.ceil(config.evaluate.every_samples / config.global_batch) >= first:
        return None  # nobody looks before
    expected = foreseen.calibration.predict(item.cell, stop="target")  # of the cell, composed or not
    if expected.to_target:
        return f"and finished repeats were at the target in step {expected.steps}" if expected.steps < first else None
    if first <= EARLY * estimate.steps:
        return None
    return f"{100 * first / estimate.steps:.0f} % of the limit"
