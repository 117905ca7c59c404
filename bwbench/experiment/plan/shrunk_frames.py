"""By how much frames make steps of a shrunk cell too long: said before it runs.

``shrink: K`` divides the rates of a link, and frames stay as long as they are. So each takes K times as long on the
wire, to the other side and again from there, and whoever waits for messages one after the other waits that much longer
for each. A ring of forty nodes waits for 78 a bucket. Larger buckets have fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bwbench.experiment.config.cell_dilation import TOLERANCE
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.estimate import CellEstimate


def too_long_by_frames(planned: Iterable[PlannedCell], estimates: Mapping[str, CellEstimate]) -> list[str]:
    """A line of the cell among those to run whose steps frames make longest, where that is beyond the tolerance."""
    found = []
    for item in planned:
        estimate = estimates.get(item.cell.id)
        if item.runs and estimate is not None and estimate.step_s > 0:
            found.append((estimate.frames_s / estimate.step_s, item.cell))
    share, cell = max(found, key=lambda one: one[0], default=(0.0, None))
    if cell is None or share <= TOLERANCE:
        return []
    return [
        f"shrink: a frame takes {cell.config.shrink:g} times as long on a link that is divided by it, and nodes wait "
        f"for many messages one after the other; steps of {cell.slug} come out up to {100 * share:.2g} % too long for "
        "it. Shrink it less, or ask for larger buckets (bucket)"
    ]
