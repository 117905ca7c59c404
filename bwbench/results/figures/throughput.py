"""How many samples a second each method trains on, against the bandwidth of the link: speed apart from accuracy."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.statistics import geometric_interval
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.levels import Level, draw_level, level_entry
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
from bwbench.results.figures.style import INK, arm_style

_INTERVAL_SHOWN = 2.0  # of an interval beyond all marks
_ROOM_ABOVE = 1.5  # over the ideal
_IDEAL: Any = (0, (2, 2))


class Throughput(AbstractFigure):
    """Log-log lines with intervals; as many samples as nodes times one node alone are the ideal."""

    name = "throughput"
    summary = "samples per second against bandwidth"
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
                "repeats": rates,
            })  # fmt: skip
        return pd.DataFrame(rows).astype({"low": float, "high": float})

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(results.limits)]
        lines = arm_lines(shaped, results.roles, _mark)
        levels, ideal = _limits(table, results), _ideal(table, results)
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]), with_bandwidth=False)
        title = "Training throughput against bandwidth"
        notes = [_how_to_read(table), *results.notes]
        # Near the limits the fastest arms leave no room for names: those stand in the legend.
        limits = [*([ideal] if ideal else []), *levels.values()]
        figure, axes = lines_frame(width_in, title, setting, notes, lines, [level_entry(one) for one in limits])
        bandwidths = sorted({mark.bandwidth_bps for line in lines for mark in line.marks})
        bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        ends = draw_lines(figure, axes, lines, width_in)
        for level in limits:
            draw_level(axes, level)
        axes.grid(True)
        axes.set_xlim(bandwidths[0] / 1.3, bandwidths[-1] * 1.2)
        low, high = axes.get_ylim()
        rates = [*table["samples_per_s"], *(level.y for level in limits)]
        low, high = max(low, min(rates) / _INTERVAL_SHOWN), max(rates) * _ROOM_ABOVE
        axes.set_ylim(low, high)
        label_log_axis(axes.yaxis, low, high, length_in=2.3)
        axes.set_ylabel("throughput (samples/s)")
        if named_at_ends(lines, width_in):
            name_ends(figure, axes, [*ends, *(LineEnd(None, one.y, one.name, one.color) for one in limits)])
        thin_ticks(figure, axes, bandwidths)
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


def _mark(row: Mapping[Hashable, Any]) -> Mark:
    dots = tuple((rate, False) for rate in row["repeats"])
    return Mark(row["bandwidth_bps"], row["samples_per_s"], row["low"], row["high"], "", dots)


def _limits(table: pd.DataFrame, results: Results) -> dict[str, Level]:
    """The arms that no link concerns; of one that ran at several bandwidths their geometric mean."""
    levels = {}
    for arm in results.limits:
        rows = table[table["arm"] == arm]
        if rows.empty:
            continue
        one = len(rows) == 1
        value = math.exp(rows["samples_per_s"].map(math.log).mean())
        low, high = (float(rows[end].iloc[0]) if one else math.nan for end in ("low", "high"))
        role = results.roles[arm]
        style, label = (
            arm_style(arm, role),
            captions.arm_label(arm, role, rows["num_composed"].sum(), rows["num"].sum()),
        )
        dots = tuple(rows["repeats"].iloc[0]) if one else tuple(rows["samples_per_s"])
        levels[arm] = Level(label, value, style.color, style.line, low, high, dots)
    return levels


def _ideal(table: pd.DataFrame, results: Results) -> Level | None:
    """As many times one node alone as there are nodes; None without that arm, or where numbers of nodes are mixed."""
    alone = table["arm"].map(results.roles) == REFERENCE
    single, others = table[alone], table[~alone]
    nodes = sorted(set(others["nodes"]))
    if single.empty or len(nodes) != 1:
        return None
    rate = nodes[0] * float(single["samples_per_s"].iloc[0])
    return Level(f"ideal: {nodes[0]} × {single['arm'].iloc[0]}", rate, INK, _IDEAL)


def _how_to_read(table: pd.DataFrame) -> str:
    several = "Dots: repeats. Marks: geometric mean; whiskers and bands: 95 % interval (Student's t on logarithms)."
    repeats = captions.on_repeats(table["num"], several, "One repeat an arm: no intervals.")
    words = f"Samples over training time, evaluation excluded. {repeats}"
    return f"{words} More samples a second are not fewer seconds to a target: see time to accuracy."
