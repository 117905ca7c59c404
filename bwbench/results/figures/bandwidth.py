"""Below which bandwidth does the method start to matter: time to accuracy against bandwidth, a line an arm.

And speed apart from accuracy: how many samples a second each method trains on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import HEADROOM, REFERENCE
from bwbench.results.analysis.results import Results, arrivals_by_seed, arrivals_over_bandwidths
from bwbench.results.analysis.statistics import estimate, geometric_interval
from bwbench.results.figures import captions, lines
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.marks import BOUND, draw_mark, label_log_axis
from bwbench.results.figures.style import INK, SMALL_PT, arm_style

_INTERVAL_SHOWN = 4.0  # of an interval beyond all marks; at n = 2 it may span decades
_ARROW_IN = 0.085  # between censored arms at one bandwidth
_ROOM_BELOW = 0.17  # of the height of all levels, under the lowest one, where limits are named


class TimeToAccuracyByBandwidth(AbstractFigure):
    """Log-log lines with intervals. Limits: one node alone, computing alone, and what the link's rate alone allows."""

    name = "bandwidth"
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and one arm at two bandwidths or more."""
        return captions.too_few_bandwidths(results) or captions.without_times_to_target(results)

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth."""
        return results.times

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(results.limits)]
        unit = captions.time_unit(float(table["at_least_s"].max()))
        arms = lines.of_arms(shaped, results, lambda row: _mark(results, row, unit))
        bound = link_bound_of(results, unit)
        title = f"Time to {captions.timed_target(results)} against bandwidth"
        setting = captions.setting_line(results, num_runs=table["num"], with_bandwidth=False)
        notes = [*_how_to_read(table, bound, results.limits), *results.notes]
        figure, axes = lines.framed(width_in, title, setting, notes, arms)
        bandwidths = sorted(shaped["bandwidth_bps"].unique())
        lines.bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        ends = lines.draw(figure, axes, arms, width_in, bounds=False)
        leftmost = _draw_censored(axes, shaped, results.roles, unit, width_in)
        limits = {arm: level for arm in results.limits if (level := _limit(results, arm, unit)) is not None}
        for level in limits.values():
            lines.draw_level(axes, level)
        _finish(axes, bandwidths, leftmost, table["at_least_s"] / unit.seconds, unit)
        if lines.named_at_ends(arms, width_in):
            lines.name_ends(figure, axes, ends, list(limits.values()))
        else:
            named = {arm: lines.limit_name(level.name, arm, results.roles[arm]) for arm, level in limits.items()}
            lines.name_levels(figure, axes, [replace(limits[arm], name=name) for arm, name in named.items()])
        lines.thin_ticks(figure, axes, bandwidths)
        if bound is not None:
            draw_link_bound(axes, bound)
        return figure


def _mark(results: Results, row: Mapping[Hashable, Any], unit: captions.TimeUnit) -> lines.Mark:
    cells = results.cells[
        (results.cells["arm"] == row["arm"]) & (results.cells["bandwidth_bps"] == row["bandwidth_bps"])
    ]
    dots = tuple((one.at_least / unit.seconds, one.time_s is None) for one in arrivals_by_seed(cells).values())
    value, low, high = (row[column] / unit.seconds for column in ("at_least_s", "low_s", "high_s"))
    bound = ">" if math.isinf(row["time_s"]) else ""
    return lines.Mark(row["bandwidth_bps"], value, low, high, bound, dots, row["num_host_bound"] > 0)


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
            style = arm_style(row["arm"], roles[row["arm"]])
            draw_mark(axes, (x, row["at_least_s"] / unit.seconds), style=style, bound=">", **BOUND)
    return leftmost


def _limit(results: Results, arm: str, unit: captions.TimeUnit) -> lines.Level | None:
    """The line of an arm that no link concerns; each seed counts once."""
    cells = results.cells[results.cells["arm"] == arm]
    arrivals = list(arrivals_over_bandwidths(cells).values())
    if not arrivals:
        return None
    role = results.roles[arm]
    style, centre = arm_style(arm, role), estimate(arrivals)
    low, high = ((math.nan if end is None else end / unit.seconds) for end in (centre.low, centre.high))
    name = captions.label_of(results, arm, sum(map(bool, cells["composed"])), len(cells))
    name = f"{name}, not reached" if math.isinf(centre.value) else name
    dots = tuple(arrival.at_least / unit.seconds for arrival in arrivals)
    side = lines.BELOW if role == HEADROOM else ""  # nothing is faster than computing alone
    return lines.Level(name, centre.at_least / unit.seconds, style.color, style.line, low, high, dots, side)


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
    words = [captions.on_repeats(table["num"], several)]
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
    unit: captions.TimeUnit

    def at(self, bandwidth_bps: float) -> float:
        """Time on the axis that sending takes at the link's full rate: no run can be shorter."""
        return self.bits / bandwidth_bps / self.unit.seconds


def link_bound_of(results: Results, unit: captions.TimeUnit) -> LinkBound | None:
    """The bound of the first of ``baselines`` that reached the target and whose bytes are known; None without one, and
    between sites, where bytes of a node cross several lines or none."""
    cells = results.cells
    if (cells["num_sites"] > 0).any():
        return None
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


_RATES_INTERVAL_SHOWN = 2.0  # of an interval beyond all marks
_ROOM_ABOVE = 1.5  # over the ideal
_IDEAL: Any = (0, (2, 2))


class Throughput(AbstractFigure):
    """Log-log lines with intervals; as many samples as nodes times one node alone are the ideal."""

    name = "throughput"
    in_detail = True
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs one arm at two bandwidths or more, and a training clock."""
        why_not = captions.too_few_bandwidths(results)
        return why_not or (None if len(_measured(results.cells)) else "no cell says how long it trained")

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth: samples over seconds of training, evaluation excluded."""
        rows = []
        for (arm, bps), part in _measured(results.cells).groupby(["arm", "bandwidth_bps"], dropna=False):
            rates = [float(rate) for rate in part["rate"]]
            value, low, high = geometric_interval(rates)
            rows.append({
                "arm": str(arm), "bandwidth_bps": bps, "nodes": int(part["nodes"].max()), "num": len(rates),
                "samples_per_s": value, "low": low, "high": high, "num_composed": int(part["composed"].sum()),
                "num_host_bound": sum(bound is True for bound in part["host_bound"]), "repeats": rates,
            })  # fmt: skip
        return pd.DataFrame(rows).astype({"low": float, "high": float})

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(results.limits)]
        arms = lines.of_arms(shaped, results, _rate_mark)
        setting = captions.setting_line(results, num_runs=table["num"], with_bandwidth=False)
        title = "Training throughput against bandwidth"
        notes = [_how_to_read_rates(table), *results.notes]
        # Near the limits the fastest arms leave no room for names: those stand in the legend.
        limits = [*_ideal(table, results), *_rate_limits(table, results)]
        entries = [Line2D([], [], label=it.name, color=it.color, linestyle=it.line, linewidth=1.1) for it in limits]
        figure, axes = lines.framed(width_in, title, setting, notes, arms, entries)
        bandwidths = sorted({mark.bandwidth_bps for line in arms for mark in line.marks})
        lines.bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        ends = lines.draw(figure, axes, arms, width_in)
        for level in limits:
            lines.draw_level(axes, level)
        axes.grid(True)
        axes.set_xlim(bandwidths[0] / 1.3, bandwidths[-1] * 1.2)
        low, high = axes.get_ylim()
        rates = [*table["samples_per_s"], *(level.y for level in limits)]
        low, high = max(low, min(rates) / _RATES_INTERVAL_SHOWN), max(rates) * _ROOM_ABOVE
        axes.set_ylim(low, high)
        label_log_axis(axes.yaxis, low, high, length_in=2.3)
        axes.set_ylabel("throughput (samples/s)")
        if lines.named_at_ends(arms, width_in):
            lines.name_ends(figure, axes, ends, limits)
        lines.thin_ticks(figure, axes, bandwidths)
        return figure


def _measured(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that say how many samples they took how long for, with the quotient as ``rate``."""
    if cells.empty:
        return cells
    numbers = cells.assign(
        samples=pd.to_numeric(cells["samples"]), training_clock_s=pd.to_numeric(cells["training_clock_s"])
    )
    known = numbers[(numbers["samples"] > 0) & (numbers["training_clock_s"] > 0)]
    return known.assign(rate=known["samples"] / known["training_clock_s"])


def _rate_mark(row: Mapping[Hashable, Any]) -> lines.Mark:
    dots = tuple((rate, False) for rate in row["repeats"])
    ends = (row["low"], row["high"])
    return lines.Mark(row["bandwidth_bps"], row["samples_per_s"], *ends, "", dots, row["num_host_bound"] > 0)


def _rate_limits(table: pd.DataFrame, results: Results) -> Iterator[lines.Level]:
    """The arms that no link concerns; of one that ran at several bandwidths their geometric mean."""
    for arm in results.limits:
        rows = table[table["arm"] == arm]
        if rows.empty:
            continue
        one = len(rows) == 1
        value = math.exp(rows["samples_per_s"].map(math.log).mean())
        low, high = (float(rows[end].iloc[0]) if one else math.nan for end in ("low", "high"))
        role = results.roles[arm]
        style = arm_style(arm, role)
        label = captions.label_of(results, arm, rows["num_composed"].sum(), rows["num"].sum())
        dots = tuple(rows["repeats"].iloc[0]) if one else tuple(rows["samples_per_s"])
        yield lines.Level(label, value, style.color, style.line, low, high, dots)


def _ideal(table: pd.DataFrame, results: Results) -> Iterator[lines.Level]:
    """As many times one node alone as there are nodes; none without that arm, or where numbers of nodes are mixed."""
    alone = table["arm"].map(results.roles) == REFERENCE
    single, others = table[alone], table[~alone]
    nodes = sorted(set(others["nodes"]))
    if len(single) and len(nodes) == 1:
        rate = nodes[0] * float(single["samples_per_s"].iloc[0])
        yield lines.Level(f"ideal: {nodes[0]} × {single['arm'].iloc[0]}", rate, INK, _IDEAL)


def _how_to_read_rates(table: pd.DataFrame) -> str:
    several = "Dots: repeats. Marks: geometric mean; whiskers and bands: 95 % interval (Student's t on logarithms)."
    repeats = captions.on_repeats(table["num"], several)
    words = f"Samples over training time, evaluation excluded. {repeats}"
    return f"{words} More samples a second are not fewer seconds to a target: see time to accuracy."
