"""The link-bound line: how long the link alone needs for all that an arm sends until it reaches the target."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes

from bwbench.experiment.config.method_names import BASELINES
from bwbench.results.figures.captions import TimeUnit
from bwbench.results.figures.style import SMALL_PT, arm_style

_FROM_RIGHT = 0.66  # of the axes' width, beyond which there is no room for a name on the right


@dataclass(frozen=True)
class LinkBound:
    """Bits that cross the busiest resource until the target, for one arm.

    Attributes:
        bits: sent by a node on a link of its own (the mean over the nodes: the busiest sends no less); by all nodes
            together where they share the air.
        unit: of the time axis.
    """

    arm: str
    bits: float
    unit: TimeUnit

    def at(self, bandwidth_bps: float) -> float:
        """Time on the axis that sending takes at the link's full rate: no run can be shorter."""
        return self.bits / bandwidth_bps / self.unit.seconds


def link_bound_of(cells: pd.DataFrame, unit: TimeUnit) -> LinkBound | None:
    """The bound of the first of ``BASELINES`` that reached the target and whose bytes are known; None without one."""
    for arm in BASELINES:
        rows = cells[(cells["arm"] == arm) & cells["wire_bytes_to_target"].notna() & cells["bandwidth_bps"].notna()]
        sent = [
            8 * float(row["wire_bytes_to_target"]) / (1 if row["medium"] == "shared" else row["nodes"])
            for row in rows.to_dict("records")
        ]
        if sent and min(sent) > 0:
            return LinkBound(arm, statistics.median(sent), unit)
    return None


def draw_link_bound(axes: Axes, bound: LinkBound) -> None:
    """A dotted line down to the right, named where it leaves the picture; limits are final by now."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    color = arm_style(bound.arm).color
    axes.plot([left, right], [bound.at(left), bound.at(right)], color=color, linewidth=0.9, linestyle=(0, (1, 1.6)),
              zorder=2)  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    level = bottom * (top / bottom) ** 0.035  # above the edge, under the lowest level
    at = min(bound.bits / bound.unit.seconds / level, right)
    if at <= left:
        return  # the link is never what bounds this arm
    before = at > left * (right / left) ** _FROM_RIGHT
    axes.annotate(f"link-bound, {bound.arm}", (at, level), (-7 if before else 5, 0), textcoords="offset points",
                  ha="right" if before else "left", va="center", fontsize=SMALL_PT, color=color, zorder=6,
                  path_effects=[patheffects.withStroke(linewidth=2.2, foreground="white")])  # fmt: skip
