"""What decides whether it is worth it: speed-up over one node alone against S/(B·T), the gradient's time on the link in
steps of computing. All bandwidths and numbers of nodes in one picture."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bwbench.results.analysis.results import Results
from bwbench.results.analysis.speedups import speedup_table
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.nodes import how_to_read, label_speedups, why_no_speedups
from bwbench.results.figures.panels import arm_handle, arm_labels, draw_mark, framed_panels, label_outer, panel_title
from bwbench.results.figures.style import INK, PAGE_IN, arm_style

_CLOSED_FORM = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}


class Viability(AbstractFigure):
    """A panel for each number of nodes on common axes, whatever the batch and the bandwidth."""

    name = "viability"
    summary = "speed-up over one node alone against S/(B·T)"
    compares = frozenset({"nodes", "batch_size", "accumulate", "link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs ``single``, and two values of S/(B·T)."""
        why_not = why_no_speedups(results)
        if why_not is not None:
            return why_not
        loads = speedup_table(results)["load"].dropna()
        apart = len(loads) and loads.max() >= captions.APART * loads.min()
        return None if apart else "S/(B·T) is known at fewer than two values, or they are all but equal"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, number of nodes, bandwidth and batch whose S/(B·T) is known."""
        table = speedup_table(results)
        return table[table["load"].notna()].reset_index(drop=True)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        counts, arms = sorted(table["nodes"].unique()), sorted(table["arm"].unique())
        columns = min(len(counts), 4 if wide else 2)
        shape = (-(-len(counts) // columns), columns)
        switched = set(results.cells["medium"].dropna()) <= {"switched"}
        legend = [arm_handle(arm, label) for arm, label in arm_labels(table).items()]
        if switched:
            legend.append(Line2D([], [], label="fp32 ring, closed form", **_CLOSED_FORM))  # type: ignore[arg-type]
        notes = [_explain(switched), how_to_read(table), *results.notes]
        title = "Speed-up over one node alone by load of the link"
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]))
        body_in = shape[0] * (2.3 if len(counts) > 1 or wide else 2.6) + 0.3
        figure, grid = framed_panels(width_in, body_in, shape, title, setting, notes, legend, share=(True, True))
        limits = (
            max(min(0.5, table["speedup"].min() / 1.3), 0.01),
            max(counts[-1] * 1.15, table["speedup"].max() * 1.3),
        )
        for place, axes in enumerate(grid.flat):
            if place >= len(counts):
                axes.set_visible(False)
                continue
            _draw_panel(axes, table[table["nodes"] == counts[place]], arms, limits)
            if switched:
                _draw_closed_form(axes, counts[place], table["load"])
            panel_title(axes, f"{counts[place]:g} nodes")
        label_outer(
            grid, "S/(B·T): gradient's time on the link" if shape[1] < 2 else "S/(B·T)", "speed-up over one node"
        )
        return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, arms: list[str], limits: tuple[float, float]) -> None:
    axes.set_xscale("log")
    label_speedups(axes, limits)
    for arm in arms:
        style = arm_style(arm)
        for _, line in rows[rows["arm"] == arm].groupby(["batch_size", "accumulate"]):
            line = line.sort_values("load")
            known = line[line["bound"] == ""]
            axes.plot(known["load"], known["speedup"], color=style.color, linestyle=style.line, linewidth=1.0, zorder=3)
            for row in line.to_dict("records"):
                ends = (max(row["low"], limits[0]), min(row["high"], limits[1]))
                draw_mark(axes, (row["load"], row["speedup"]), ends, arm, row["bound"], size=4.2)
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_closed_form(axes: Axes, nodes: float, loads: pd.Series) -> None:
    """N/(1 + 2(N-1)/N·x): a ring of fp32 that waits for the link, without latency, with as few samples as one node."""
    loads_shown = np.geomspace(loads.min() / 1.3, loads.max() * 1.3, 60)
    axes.plot(loads_shown, nodes / (1 + 2 * (nodes - 1) / nodes * loads_shown), **_CLOSED_FORM)  # type: ignore[arg-type]


def _explain(switched: bool) -> str:
    words = (
        "S/(B·T): time of the gradient on the link, in steps of computing. S: bytes of the fp32 gradient, alike for "
        "all arms; B: bandwidth of the link; T: computing of a step."
    )
    if switched:
        words += " Broken line: N/(1 + 2(N−1)/N·S/(BT)), without overlap, latency or more samples for the larger batch."
    return words
