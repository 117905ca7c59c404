"""Is it worth more than one node: speed-up over one node alone against the number of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.presets import ALONE
from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.speedups import speedup_table
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.panels import arm_handle, arm_labels, draw_mark, framed_panels, label_outer, panel_title
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, arm_style

_DODGE = 0.012  # decades between neighbouring arms
_LOWEST, _HIGHEST = 0.02, 50.0  # speed-ups beyond are cut off: whiskers at n = 2 may reach anywhere
NOT_WORTH_IT = {"color": "#d9d9d9", "alpha": 0.55, "linewidth": 0, "zorder": 0}


@dataclass(frozen=True)
class Family:
    """Rows in which the batch of a node, or that of all nodes, is held equal."""

    label: str
    rows: pd.DataFrame


class Nodes(AbstractFigure):
    """A panel for each bandwidth, and a row of them for each batch that is held equal; below 1 it is not worth it."""

    name = "nodes"
    summary = "speed-up over one node alone against the number of nodes"
    compares = frozenset({"nodes", "batch_size", "accumulate", "link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs ``single``, and one arm with two numbers of nodes at one batch."""
        return why_no_speedups(results) or (
            None if families(speedup_table(results)) else "only one number of nodes at any one batch"
        )

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, number of nodes, bandwidth and batch."""
        return speedup_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        shown = families(table)
        drawn = pd.concat([family.rows for family in shown])
        bandwidths = sorted(drawn["bandwidth_bps"].dropna().unique()) or [None]
        arms = sorted(drawn["arm"].unique())
        columns = min(len(bandwidths), 4 if wide else 2)
        lines = -(-len(bandwidths) // columns)
        shape = (len(shown) * lines, columns)
        legend = [arm_handle(arm, label) for arm, label in arm_labels(drawn).items()]
        legend.append(Line2D([], [], label="ideal", color=INK, linewidth=0.8, linestyle=(0, (4, 2))))
        notes = [how_to_read(drawn), *results.notes]
        title = "Speed-up over one node alone by number of nodes"
        setting = captions.setting_line(results, num_runs=captions.num_runs(drawn["num"]))
        body_in = shape[0] * (1.65 if wide else 1.4) + 0.35
        figure, grid = framed_panels(width_in, body_in, shape, title, setting, notes, legend, share=(True, True))
        limits = _limits(drawn)
        counts = sorted({1.0, *drawn["nodes"].unique()})
        for number, family in enumerate(shown):
            for place in range(lines * columns):
                axes: Axes = grid[number * lines + place // columns, place % columns]
                if place >= len(bandwidths):
                    axes.set_visible(False)
                    continue
                bandwidth = bandwidths[place]
                here = family.rows["bandwidth_bps"].isna() | (family.rows["bandwidth_bps"] == bandwidth)
                _draw_panel(axes, family.rows[here], arms, counts, limits)
                rate = "" if bandwidth is None else BANDWIDTH.format(bandwidth)
                panel_title(axes, " · ".join(part for part in (rate, family.label) if part))
        label_outer(grid, "nodes", "speed-up over one node" if wide else "speed-up")
        return figure


def why_no_speedups(results: Results) -> str | None:
    """Why nothing can be said of speed-ups over one node alone; None where it can."""
    if not results.done:
        return "no cell is done"
    if results.times.empty:
        return "the cells have no target"
    if not (results.cells["role"] == REFERENCE).any():
        return f"the arm {ALONE!r} is not there to compare with"
    return f"no arm shares a seed with {ALONE!r}" if speedup_table(results).empty else None


def families(table: pd.DataFrame) -> list[Family]:
    """What is held equal while nodes are added: the batch of a node, or that of all nodes; two numbers at least."""
    found = []
    for (batch, times), rows in table.groupby(["batch_size", "accumulate"]):
        words = f"{batch:g} a node" if times == 1 else f"{batch:g}×{times:g} a node"
        found.append(Family(words, rows))
    found += [Family(f"{batch:g} in all", rows) for batch, rows in table.groupby("global_batch")]
    return [family for family in found if family.rows.groupby("arm")["nodes"].nunique().max() > 1]


def how_to_read(rows: pd.DataFrame) -> str:
    """What marks, whiskers and the shaded part mean."""
    words = ["Grey: slower than one node alone, which has the same batch and the same step as each of the nodes."]
    if (rows["num"] > 1).any():
        words.append(
            "Marks: geometric mean of the repeats, paired by seed; whiskers: 95 % interval (Student's t on logs)."
        )
    else:
        words.append("One repeat a mark: no intervals; differences may be chance.")
    if (rows["bound"] != "").any():
        words.append("Hollow with arrow: a bound, since one of the two did not reach the target.")
    return " ".join(words)


def label_speedups(axes: Axes, limits: tuple[float, float]) -> None:
    """The vertical axis of speed-ups: logarithmic, plain numbers, grey below 1."""
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    few = limits[1] / limits[0] > 100
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(True)
    axes.axhspan(limits[0], 1.0, **NOT_WORTH_IT)  # type: ignore[arg-type]
    axes.axhline(1.0, color=FAINT, linewidth=0.8, zorder=1)


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    low = min(0.8, rows["low"].min(), rows["speedup"].min() / 1.15)
    high = max(rows["nodes"].max() * 1.1, rows["high"].max(), rows["speedup"].max() * 1.15)
    least, most = rows["speedup"].min(), rows["speedup"].max()
    return max(low, least / 3, _LOWEST), min(high, max(most * 3, rows["nodes"].max() * 1.1), _HIGHEST)


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, arms: list[str], counts: list[float], limits: tuple[float, float]
) -> None:
    axes.set_xscale("log")
    label_speedups(axes, limits)
    axes.plot([1, counts[-1]], [1, counts[-1]], color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    for position, arm in enumerate(arms):
        dodge = 10 ** (_DODGE * (position - (len(arms) - 1) / 2))
        line = rows[rows["arm"] == arm].sort_values("nodes")
        known = line[line["bound"] == ""]
        style = arm_style(arm)
        axes.plot(known["nodes"] * dodge, known["speedup"], color=style.color, linestyle=style.line, linewidth=1.3,
                  zorder=3)  # fmt: skip
        for row in line.to_dict("records"):
            ends = (max(row["low"], limits[0]), min(row["high"], limits[1]))
            draw_mark(axes, (row["nodes"] * dodge, row["speedup"]), ends, arm, row["bound"], size=4.5)
    axes.set_xlim(0.9, counts[-1] * 1.15)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
