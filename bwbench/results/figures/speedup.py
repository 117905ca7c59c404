"""Why is an arm faster than the usual one: does a sample take less time, or does it need fewer of them?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import METHOD
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.results import Results, once
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels
from bwbench.results.figures.marks import draw_mark, label_log_axis
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, ArmStyle

_ROW_IN = 0.2
_LINE_IN = 0.09  # more for each further line of a name
_BESIDE_IN = {True: 2.6, False: 1.75}  # names on the left and ratios on the right, by whether the picture is wide
_INTERVAL_SHOWN = 2.0  # of an interval beyond all marks
_LEAST = 1.5  # times, from 1 to both sides: what is shown of the axis at least
_MARK_PT = 2.0  # rows have names: a mark needs no shape and no colour, and whiskers are to be seen beside it
_LOOK = ArmStyle(INK, "o", "none")
# A step of one node is that of fewer samples: beside arms of several the time of a sample is what counts.
_PARTS = {"step_ratio": "less time\na sample", "samples_ratio": "fewer\nsamples"}


class SpeedUp(AbstractFigure):
    """A row an arm, fastest on top: how much less time a sample takes, how many fewer it needs, and both."""

    name = "speedup"
    in_detail = True

    def applies(self, results: Results) -> str | None:
        """Needs a target, and a baseline beside another arm, both of which say how many samples they took."""
        if why_not := captions.without_times_to_target(results):
            return why_not
        if baseline_of(results) is None:
            return "no arm sends anything"
        table = parts_table(results)
        if table.empty:
            return "no other arm shares the link of the baseline"
        return None if table["step_ratio"].notna().any() else "records do not say how many samples were taken"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm."""
        return parts_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = parts_table(results), width_in >= PAGE_IN
        table = table[table["step_ratio"].notna()].reset_index(drop=True)
        marks = captions.common_marks(results)
        labels = [marks.label(results, arm) for arm in table["arm"]]
        labels = labels if wide else [captions.in_short_lines(label) for label in labels]
        usual = results.labels[str(table["baseline"].iloc[0])]
        title = f"Time to {captions.timed_target(results)}{marks.text}: {usual} over each arm, taken apart"
        setting = captions.setting_line(results, num_runs=table["num"])
        notes = [_how_to_read(table, usual), *results.notes]
        heights_in = [_ROW_IN + _LINE_IN * label.count("\n") for label in labels]
        edges_in = [0.0, *accumulate(heights_in)]
        middles_in = [sum(pair) / 2 for pair in pairwise(edges_in)]
        body_in = 0.75 + edges_in[-1]
        figure, grid = framed_panels(width_in, body_in, (1, 2), title, setting, notes, share=(True, True))
        limits = _limits(table)
        length_in = (width_in - _BESIDE_IN[wide]) / 2
        for axes, (part, what) in zip(grid[0], _PARTS.items(), strict=True):
            _draw_part(axes, table, middles_in, part, limits)
            axes.set_xlabel(what)
            label_log_axis(axes.xaxis, *limits, length_in=length_in)
        first, last = grid[0]
        first.set_yticks(middles_in, labels, linespacing=1.05, fontsize=SMALL_PT)
        first.set_ylim(edges_in[-1], 0.0)
        last.tick_params(axis="y", labelleft=False)
        _name_ratios(last, table, middles_in)
        return figure


def baseline_of(results: Results) -> str | None:
    """The arm that others are compared with: the first of ``BASELINES``, else the first method; None without one."""
    methods = sorted(arm for arm, role in results.roles.items() if role == METHOD)
    return next((arm for arm in (*BASELINES, *methods) if arm in methods), None)


@once
def parts_table(results: Results) -> pd.DataFrame:
    """One row an arm, fastest first; none where nothing can be compared.

    Returns:
        arm, baseline, bandwidth_bps; ``speedup``, ``step_ratio`` and ``samples_ratio``, baseline over arm, each with
        ``low``, ``high`` and ``bound`` (``speedup_low`` …); num, num_censored, composed, host_bound.
    """
    baseline = baseline_of(results)
    assert baseline is not None
    rows: list[Row] = []
    for row in compare_cells(results.done, baseline).rows:
        if row.ratio is None:
            continue
        parts = row.taken_apart
        about: Row = {"arm": row.algorithm, "baseline": baseline}
        about |= _factor("speedup", row.ratio) | _factor("step_ratio", parts.step if parts else None)
        about |= _factor("samples_ratio", parts.samples if parts else None)
        rows.append(about | {"num": row.num, "num_censored": row.num_censored, "composed": row.composed,
                             "host_bound": row.host_bound})  # fmt: skip
    table = pd.DataFrame(rows, columns=None if rows else ["arm", "step_ratio"])
    if table.empty:
        return table
    ends = [f"{name}{end}" for name in ("speedup", *_PARTS) for end in ("", "_low", "_high")]
    table[ends] = table[ends].astype(float)
    return table.sort_values(["speedup", "arm"], ascending=[False, True], kind="stable").reset_index(drop=True)


def _factor(name: str, ratio: Ratio | None) -> Row:
    """A ratio with its ends, as columns."""
    if ratio is None:
        return {name: math.nan, f"{name}_low": None, f"{name}_high": None, f"{name}_bound": ""}
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high, f"{name}_bound": ratio.bound}


def _limits(table: pd.DataFrame) -> tuple[float, float]:
    """Both panels have the same axis, so that lengths in them multiply to the whole."""
    values = table[list(_PARTS)].to_numpy(dtype=float)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    low = float(np.nanmin(table[[f"{part}_low" for part in _PARTS]].to_numpy(dtype=float), initial=least))
    high = float(np.nanmax(table[[f"{part}_high" for part in _PARTS]].to_numpy(dtype=float), initial=most))
    low, high = max(low, least / _INTERVAL_SHOWN), min(high, most * _INTERVAL_SHOWN)
    return min(low / 1.1, 1 / _LEAST), max(high * 1.1, _LEAST)


def _draw_part(
    axes: Axes, table: pd.DataFrame, places: Sequence[float], part: str, limits: tuple[float, float]
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.grid(True, axis="x")
    axes.axvline(1.0, color=INK, linewidth=0.8, zorder=2)
    axes.tick_params(axis="y", length=0)
    for position, row in zip(places, table.to_dict("records"), strict=True):
        axes.plot([1.0, row[part]], [position] * 2, color=FAINT, linewidth=3.0, alpha=0.35, zorder=2.5,
                  solid_capstyle="butt")  # fmt: skip
        ends = (max(row[f"{part}_low"], limits[0]), min(row[f"{part}_high"], limits[1]))
        draw_mark(axes, (row[part], position), ends, _LOOK, row[f"{part}_bound"], size=_MARK_PT, sideways=True)


def _name_ratios(axes: Axes, table: pd.DataFrame, places: Sequence[float]) -> None:
    """Right of each row what both make together."""
    beside: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
    for position, row in zip(places, table.to_dict("records"), strict=True):
        axes.annotate(captions.ratio(row["speedup"], row["speedup_bound"]), (1, position), (5, 0), va="center",
                      fontsize=SMALL_PT, weight="bold", **beside)  # fmt: skip
    axes.annotate("together", (1, 1), (5, 3), xycoords="axes fraction", textcoords="offset points", va="bottom",
                  fontsize=SMALL_PT, color=FAINT, annotation_clip=False)  # fmt: skip


def _how_to_read(table: pd.DataFrame, usual: str) -> str:
    words = [f"Right of 1: less time a sample than {usual}, or fewer samples to the target; the two multiply."]
    several = (
        "Marks: ratio of geometric means; whiskers: 95 % interval each, of a single timing run by what such runs are "
        "taken to differ by."
    )
    words.append(captions.on_repeats(table["num"], several))
    if (table[[f"{name}_bound" for name in ("speedup", *_PARTS)]] != "").any(axis=None):
        words.append("With an arrow, or < and >: one of the two did not reach the target; a bound.")
    return " ".join(words)
