"""What bytes on the wire buy, an arm a point: time to the target, or accuracy at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.comparison import non_dominated
from bwbench.results.analysis.results import Results, arrivals_by_seed, once
from bwbench.results.analysis.statistics import estimate, number
from bwbench.results.analysis.student import student_t
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import bytes_to_target, metric_words
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.captions import CommonMarks
from bwbench.results.figures.frame import framed_panels
from bwbench.results.figures.marks import POINT, draw_arrow, draw_mark, label_log_axis
from bwbench.results.figures.point_names import Named, name_points, whisker_places
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, arm_style

_ARROWS_PT = ((0.0, 7.0), (0.0, 13.0), (7.0, 0.0), (13.0, 0.0))  # where a point's arrows lie
_FRONT: Any = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2))}


class Pareto(AbstractFigure):
    """The arms that no other one beats in both are full and joined; the others are hollow."""

    name = "pareto"
    in_detail = True

    def applies(self, results: Results) -> str | None:
        """Needs two arms whose bytes were counted."""
        table = pareto_table(results)
        return None if table["wire_bytes"].notna().sum() > 1 else "fewer than two arms have sent anything"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm."""
        return pareto_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        by_time = bool(table["against"].iloc[0] == "time")
        what = metric_words(str(table["metric"].iloc[0]))
        marks = captions.common_marks(results)
        reached = f"Bytes and time to {captions.timed_target(results)}" if by_time else f"Bytes and {what}"
        setting = captions.setting_line(results, num_runs=table["num"])
        sending = table[table["wire_bytes"].notna()]
        better = "another arm is better in both"
        legend = [
            Line2D([], [], label="no other arm is better in both", marker="o", markersize=4.5, **_FRONT),
            Line2D([], [], label=better, marker="o", color=FAINT, markerfacecolor="white", markersize=4.5,
                   linestyle="none"),
        ]  # fmt: skip
        body_in = 3.5 if wide else 3.3
        figure, grid = framed_panels(width_in, body_in, (1, 1), reached + marks.text, setting,
                                     [*_how_to_read(table), *results.notes], legend)  # fmt: skip
        axes: Axes = grid[0, 0]
        bytes_seen = sending["wire_bytes"]
        symbol, unit = captions.bytes_unit(math.sqrt(bytes_seen.max() * bytes_seen.min()))
        time = captions.time_unit(math.sqrt(table["y"].max() * table["y"].min())) if by_time else None
        scale = time.seconds if time else 1.0
        axes.set_xscale("log")
        if by_time:
            axes.set_yscale("log")
        axes.grid(True)
        _draw_points(axes, sending, results.roles, unit, scale)
        for limit in _limits(results, table):
            style = arm_style(limit["arm"], limit["role"])
            axes.axhline(limit["y"] / scale, color=style.color, linestyle=style.line, linewidth=0.9, zorder=1)
        axes.margins(x=0.14, y=0.14)
        axes.autoscale_view()
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=width_in - 1.0)
        if time:
            label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=2.3)
        elif table["metric"].iloc[0] == "accuracy":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
        axes.set_xlabel(f"on the wire, all nodes ({symbol})")
        axes.set_ylabel(f"training time ({time.symbol})" if time else what)
        _name_arms(figure, axes, table, results, marks, unit, scale)
        return figure


@once
def pareto_table(results: Results) -> pd.DataFrame:
    """One row an arm: what it sends and what it gets for it.

    Returns:
        arm; against (``time`` where a repeat of any arm has reached the target, else ``metric``); ``y`` with ``low``,
        ``high``: seconds to the target, geometric mean, or the metric at the end, mean, each with its 95 % interval;
        ``y_bound`` ``>`` where fewer than half reached it; wire_bytes (to the target, or in all; NaN where
        nothing was counted); metric, num, num_censored, num_composed; front: whether no other arm that sends is better
        in both.
    """
    cells = results.cells
    reached = bool(cells["time_to_target_s"].notna().any())
    rows = []
    for arm, part in cells.groupby("arm", sort=True):
        row: Row = {"arm": str(arm), "against": "time" if reached else "metric", "y_bound": "", "num_censored": 0}
        row |= {"metric": _metric(results), "num_composed": int(part["composed"].sum()), "num": len(part)}
        row |= _time(part) if reached else _final(part)
        if number(row["y"]) is not None:
            rows.append(row)
    columns = ["arm", "against", "y", "low", "high", "y_bound", "wire_bytes", "metric", "num", "num_censored",
               "num_composed"]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    numbers = ["y", "low", "high", "wire_bytes"]
    table[numbers] = table[numbers].astype(float)
    # The limits send nothing: no place on the axis of bytes, no rivals of those that do.
    table.loc[~(table["wire_bytes"] > 0) | table["arm"].isin(results.limits), "wire_bytes"] = math.nan
    table["front"] = False
    rivals = table[table["wire_bytes"].notna() & (table["y_bound"] == "")]
    less_is_better = reached or _metric(results) == "loss"
    values = rivals["y"] if less_is_better else -rivals["y"]
    table.loc[rivals.index, "front"] = non_dominated(list(zip(rivals["wire_bytes"], values, strict=True)))
    return table


def _time(part: pd.DataFrame) -> Row:
    arrivals = list(arrivals_by_seed(part).values())
    if not arrivals:
        return {"y": math.nan, "low": None, "high": None, "wire_bytes": math.nan}
    centre = estimate(arrivals)
    bound = ">" if math.isinf(centre.value) else ""
    sent = bytes_to_target(part)[1]
    return {"y": centre.at_least, "low": centre.low, "high": centre.high, "y_bound": bound, "wire_bytes": sent,
            "num": centre.num, "num_censored": centre.num_censored}  # fmt: skip


def _final(part: pd.DataFrame) -> Row:
    finals = part.drop_duplicates("seed")["final_metric"].dropna().astype(float)
    sent = part["wire_bytes"].dropna().astype(float)
    mean = fmean(finals) if len(finals) else math.nan
    half = student_t(len(finals) - 1) * finals.std() / math.sqrt(len(finals)) if len(finals) > 1 else math.nan
    positive = sent[sent > 0]
    spent = math.exp(fmean(positive.map(math.log))) if len(positive) else math.nan
    return {"y": mean, "low": mean - half, "high": mean + half, "wire_bytes": spent, "num": len(finals)}


def _metric(results: Results) -> str:
    target_metric, _ = captions.target(results)
    return target_metric or next((folder.status and folder.status.metric) or "accuracy" for folder in results.done)


def _draw_points(axes: Axes, rows: pd.DataFrame, roles: Mapping[str, str], unit: float, scale: float) -> None:
    front = rows[rows["front"]].sort_values("wire_bytes")
    axes.plot(front["wire_bytes"] / unit, front["y"] / scale, zorder=2, **_FRONT)
    for row in rows.to_dict("records"):
        style, at = arm_style(row["arm"], roles[row["arm"]]), (row["wire_bytes"] / unit, row["y"] / scale)
        bound = bool(row["y_bound"])
        ends = (math.nan, math.nan) if bound else (row["low"] / scale, row["high"] / scale)
        draw_mark(axes, at, ends, style, hollow=not row["front"], **POINT)
        for sideways in (False, True) if bound else ():  # both its time and its bytes are more than that
            draw_arrow(axes, at, style.color, ">", sideways=sideways, shrink_pt=3)


def _limits(results: Results, table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of arms that reach the target and that no link concerns, with their role."""
    shown = table[table["arm"].isin(results.limits) & (table["y_bound"] == "")]
    return shown.assign(role=shown["arm"].map(results.roles)).to_dict("records")


def _how_to_read(table: pd.DataFrame) -> list[str]:
    mean = "geometric mean" if table["against"].iloc[0] == "time" else "mean"
    words = (
        [f"Marks: {mean} of the repeats; whiskers: 95 % interval (Student's t)."] if (table["num"] > 1).any() else []
    )
    if (table["y_bound"] != "").any():
        words.append("With arrows: fewer than half of the repeats reached the target in time; both are more than that.")
    if ((table["num_censored"] > 0) & (table["y_bound"] == "")).any():
        words.append("Where other repeats did not reach it, the mark is that of a censored log-normal fit.")
    silent = [str(arm) for arm in table[table["wire_bytes"].isna()]["arm"]]
    if silent:
        words.append(f"Without bytes: {', '.join(silent)}; lines across.")
    return [" ".join(words)] if words else []


def _name_arms(
    figure: Figure, axes: Axes, table: pd.DataFrame, results: Results, marks: CommonMarks, unit: float, scale: float
) -> None:
    """Names beside the points; those of the limits on their lines, at the right."""
    right = axes.get_xlim()[1]
    avoid = []
    for row in _limits(results, table):
        label = marks.label(results, row["arm"])
        text = axes.annotate(label, (1, row["y"] / scale), (0, 2), xycoords=("axes fraction", "data"), ha="right",
                             textcoords="offset points", fontsize=SMALL_PT, color=FAINT)  # fmt: skip
        text.set_in_layout(False)
        left = axes.get_xlim()[0]
        share = np.linspace(0, 1, 40)
        avoid += [(left ** (1 - at) * right**at, row["y"] / scale) for at in share]
        box = text.get_window_extent()
        inverse = axes.transData.inverted()
        for place in np.linspace(box.x0, box.x1, 12):
            x, y = inverse.transform((place, (box.y0 + box.y1) / 2))
            avoid.append((float(x), float(y)))
    named = []
    for row in table[table["wire_bytes"].notna()].to_dict("records"):
        label = marks.label(results, row["arm"])
        clear_pt, x = _ARROWS_PT if row["y_bound"] else (), row["wire_bytes"] / unit
        named.append(Named(x, row["y"] / scale, label, bold=bool(row["front"]), clear_pt=clear_pt))
        avoid += whisker_places(x, row["low"] / scale, row["high"] / scale)
    name_points(figure, axes, named, [*avoid, *_along_front(table, unit, scale)])


def _along_front(table: pd.DataFrame, unit: float, scale: float) -> list[tuple[float, float]]:
    """Places along the line through the front, in data coordinates."""
    front = table[table["front"]].sort_values("wire_bytes")
    if len(front) < 2:
        return []
    log_y = bool((front["against"] == "time").all())  # as the axis
    x, y = np.log(front["wire_bytes"].to_numpy() / unit), front["y"].to_numpy() / scale
    places = np.linspace(0, len(front) - 1, 24 * (len(front) - 1))
    along_x = np.exp(np.interp(places, np.arange(len(front)), x))
    along_y = np.interp(places, np.arange(len(front)), np.log(y) if log_y else y)
    return list(zip(along_x.tolist(), (np.exp(along_y) if log_y else along_y).tolist(), strict=True))
