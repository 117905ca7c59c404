"""Below which bandwidth does the method start to matter: time to accuracy against bandwidth, a line an arm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import HEADROOM
from bwbench.results.analysis.results import Results, arrivals_by_seed, arrivals_over_bandwidths
from bwbench.results.analysis.statistics import estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.captions import TimeUnit
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.levels import BELOW, Level, draw_level, long_name, name_levels
from bwbench.results.figures.lines import (
    LineEnd,
    Mark,
    arm_lines,
    bandwidth_axis,
    draw_lines,
    lines_frame,
    name_ends,
    named_at_ends,
    thin_ticks,
)
from bwbench.results.figures.marks import draw_bound
from bwbench.results.figures.style import SMALL_PT, arm_style

_INTERVAL_SHOWN = 4.0  # of an interval beyond all marks; at n = 2 it may span decades
_ARROW_IN = 0.085  # between censored arms at one bandwidth
_ROOM_BELOW = 0.17  # of the height of all levels, under the lowest one, where limits are named


class TimeToAccuracyByBandwidth(AbstractFigure):
    """Log-log lines with intervals. Limits: one node alone, computing alone, and what the link's rate alone allows."""

    name = "bandwidth"
    summary = "time to accuracy against bandwidth"
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and one arm at two bandwidths or more."""
        return captions.too_few_bandwidths(results) or ("the cells have no target" if results.times.empty else None)

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth."""
        return results.times

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(results.limits)]
        unit = captions.time_unit(float(table["at_least_s"].max()))
        lines = arm_lines(shaped, results.roles, lambda row: _mark(results, row, unit))
        bound = link_bound_of(results, unit)
        title = f"Time to {captions.target_words(results)} against bandwidth"
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]), with_bandwidth=False)
        notes = [*_how_to_read(table, bound, results.limits), *results.notes]
        figure, axes = lines_frame(width_in, title, setting, notes, lines)
        bandwidths = sorted(shaped["bandwidth_bps"].unique())
        bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        ends = draw_lines(figure, axes, lines, width_in, bounds=False)
        leftmost = _draw_censored(axes, shaped, results.roles, unit, width_in)
        limits = {arm: level for arm in results.limits if (level := _limit(results, arm, unit)) is not None}
        for level in limits.values():
            draw_level(axes, level)
        _finish(axes, bandwidths, leftmost, table["at_least_s"] / unit.seconds, unit)
        if named_at_ends(lines, width_in):
            name_ends(figure, axes, [*ends, *(LineEnd(None, one.y, one.name, one.color) for one in limits.values())])
        else:
            name_levels(figure, axes, [long_name(arm, results.roles[arm], level) for arm, level in limits.items()])
        thin_ticks(figure, axes, bandwidths)
        if bound is not None:
            draw_link_bound(axes, bound)
        return figure


def _mark(results: Results, row: Mapping[Hashable, Any], unit: captions.TimeUnit) -> Mark:
    cells = results.cells[
        (results.cells["arm"] == row["arm"]) & (results.cells["bandwidth_bps"] == row["bandwidth_bps"])
    ]
    dots = tuple((one.at_least / unit.seconds, one.time_s is None) for one in arrivals_by_seed(cells).values())
    value, low, high = (row[column] / unit.seconds for column in ("at_least_s", "low_s", "high_s"))
    return Mark(row["bandwidth_bps"], value, low, high, ">" if math.isinf(row["time_s"]) else "", dots)


def _draw_censored(
    axes: Axes, shaped: pd.DataFrame, roles: Mapping[str, str], unit: captions.TimeUnit, width_in: float
) -> float:
    """Arrows upwards from the limit, side by side: these arms take longer. Returns where the axis must begin."""
    bandwidths = sorted(shaped["bandwidth_bps"].unique())
    decades_per_in = math.log10(bandwidths[-1] / bandwidths[0]) / max(1.0, width_in - 2.0)  # 2 in beside the axes
    nearest = min(math.log10(high / low) for low, high in pairwise(bandwidths))
    leftmost = math.inf
    for _, rows in shaped[shaped["time_s"].map(math.isinf)].groupby("bandwidth_bps"):
        pitch = min(_ARROW_IN * decades_per_in, 0.8 * nearest / len(rows))
        for number, row in enumerate(rows.sort_values("arm").to_dict("records")):
            x = row["bandwidth_bps"] * 10 ** (pitch * (number - (len(rows) - 1) / 2))
            leftmost = min(leftmost, x / 10**pitch)
            draw_bound(axes, (x, row["at_least_s"] / unit.seconds), arm_style(row["arm"], roles[row["arm"]]), ">")
    return leftmost


def _limit(results: Results, arm: str, unit: captions.TimeUnit) -> Level | None:
    """The line of an arm that no link concerns; each seed counts once."""
    cells = results.cells[results.cells["arm"] == arm]
    arrivals = list(arrivals_over_bandwidths(cells).values())
    if not arrivals:
        return None
    role = results.roles[arm]
    style, centre = arm_style(arm, role), estimate(arrivals)
    low, high = ((math.nan if end is None else end / unit.seconds) for end in (centre.low, centre.high))
    name = captions.arm_label(arm, role, sum(map(bool, cells["composed"])), len(cells))
    name = f"{name}, not reached" if math.isinf(centre.value) else name
    dots = tuple(arrival.at_least / unit.seconds for arrival in arrivals)
    side = BELOW if role == HEADROOM else ""  # nothing is faster than computing alone
    return Level(name, centre.at_least / unit.seconds, style.color, style.line, low, high, dots, side)


def _finish(axes: Axes, bandwidths: list[float], leftmost: float, levels: pd.Series, unit: captions.TimeUnit) -> None:
    axes.grid(True)
    axes.set_xlim(min(bandwidths[0] / 1.3, leftmost), bandwidths[-1] * 1.2)
    low, high = axes.get_ylim()
    low, high = max(low, levels.min() / _INTERVAL_SHOWN), min(high, levels.max() * _INTERVAL_SHOWN)
    axes.set_ylim(min(low, levels.min() * (levels.min() / high) ** _ROOM_BELOW), high * 1.15)
    label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=2.5)
    axes.set_ylabel(f"training time to target ({unit.symbol})")


def _how_to_read(table: pd.DataFrame, bound: LinkBound | None, limits: Sequence[str]) -> list[str]:
    several = "Dots: repeats. Marks: geometric mean; whiskers and bands: 95 % interval (Student's t on log time)."
    one = "One repeat an arm: no intervals; differences may be chance."
    words = [captions.on_repeats(table["num"], several, one)]
    words += captions.on_censored(table["time_s"], table["num_censored"])
    if bound is not None:
        words.append(f"Link-bound: what {bound.arm} sends until the target, at the full rate of the link.")
    if (table["bandwidth_bps"].isna() & ~table["arm"].isin(limits)).any():
        words.append("Runs on an unshaped link are not shown.")
    return [" ".join(words)]


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
    color: str
    bits: float
    unit: TimeUnit

    def at(self, bandwidth_bps: float) -> float:
        """Time on the axis that sending takes at the link's full rate: no run can be shorter."""
        return self.bits / bandwidth_bps / self.unit.seconds


def link_bound_of(results: Results, unit: TimeUnit) -> LinkBound | None:
    """The bound of the first of ``baselines`` that reached the target and whose bytes are known; None without one."""
    cells = results.cells
    for arm in BASELINES:
        rows = cells[(cells["arm"] == arm) & cells["wire_bytes_to_target"].notna() & cells["bandwidth_bps"].notna()]
        sent = [
            8 * float(row["wire_bytes_to_target"]) / (1 if row["medium"] == "shared" else row["nodes"])
            for row in rows.to_dict("records")
        ]
        if sent and min(sent) > 0:
            return LinkBound(arm, arm_style(arm, results.roles[arm]).color, statistics.median(sent), unit)
    return None


def draw_link_bound(axes: Axes, bound: LinkBound) -> None:
    """A dotted line down to the right, named where it leaves the picture; limits are final by now."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    axes.plot([left, right], [bound.at(left), bound.at(right)], color=bound.color, linewidth=0.9,
              linestyle=(0, (1, 1.6)), zorder=2)  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    level = bottom * (top / bottom) ** 0.035  # above the edge, under the lowest level
    at = min(bound.bits / bound.unit.seconds / level, right)
    if at <= left:
        return  # the link is never what bounds this arm
    before = at > left * (right / left) ** _FROM_RIGHT
    axes.annotate(f"link-bound, {bound.arm}", (at, level), (-7 if before else 5, 0), textcoords="offset points",
                  ha="right" if before else "left", va="center", fontsize=SMALL_PT, color=bound.color, zorder=6,
                  path_effects=[patheffects.withStroke(linewidth=2.2, foreground="white")])  # fmt: skip
