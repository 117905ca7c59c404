"""The validation metric against the training clock, a line a run, up to the target."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from bwbench.analysis.results import Results
from bwbench.analysis.tables import CURVE_COLUMNS, arrivals_by_seed
from bwbench.analysis.trial import DEFAULT_METRICS
from bwbench.figures import captions
from bwbench.figures.base import AbstractFigure
from bwbench.figures.frame import framed_axes
from bwbench.figures.labels import label_log_axis
from bwbench.figures.style import FAINT, PAGE_IN, SMALL_PT, arm_style

_TWO_COLUMNS_UP_TO = 28  # letters of the longest name in the legend of a narrow picture
LOG_FROM_RATIO = 20.0  # arms that end this much apart would be a vertical line on a linear axis
_TARGET_LINE: Any = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}


class AccuracyOverTime(AbstractFigure):
    """Every run as a thin line, and boldly each arm's run with the median time to target."""

    name = "accuracy-over-time"
    summary = "validation metric against training time"

    def applies(self, results: Results) -> str | None:
        """Needs one cell that is done and was evaluated after its first step."""
        if not results.done:
            return "no cell is done"
        return None if (results.curves["clock_s"] > 0).any() else "no evaluation was recorded"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of every run."""
        return results.curves

    def _draw(self, results: Results, width_in: float) -> Figure:
        curves, metric = results.curves, _metric(results)
        bold = {arm: _median_run(results, arm) for arm in curves["arm"].unique()}
        counts = [len(part["id"].unique()) for _, part in curves.groupby("arm")]
        notes = list(results.notes)
        if max(counts) > 1:
            notes.insert(0, "Bold: the run with the median time to target. Thin: the other runs, one a seed.")
        title = f"{_metric_words(metric)} over training time".capitalize()
        setting = captions.setting_line(results, num_runs=captions.num_runs(counts))
        entries = _legend_entries(results, list(bold))
        if width_in >= PAGE_IN:
            body_in = max(2.75, 0.17 * len(entries) + 0.6)
            figure, axes = framed_axes(width_in, body_in, title, setting, notes)
            _legend_beside(axes, entries, timed=not results.times.empty)
        else:
            if not results.times.empty:
                notes.insert(0, "After the names: time to target, fastest first.")
            longest = max(len(str(entry.get_label())) for entry in entries)
            columns = 2 if longest <= _TWO_COLUMNS_UP_TO else 1
            figure, axes = framed_axes(width_in, 2.4, title, setting, notes, entries, columns)
        ends = curves.groupby("id")["clock_s"].max()
        unit = captions.time_unit(float(ends.max()))
        logarithmic = ends.max() > LOG_FROM_RATIO * max(ends.min(), 1e-9)
        for (arm, cell_id), run in curves.groupby(["arm", "id"], sort=True):
            _draw_run(axes, run, str(arm), metric, unit, bold[str(arm)] == cell_id, logarithmic)
        _finish(axes, results, metric, unit, logarithmic)
        return figure


def _draw_run(
    axes: Axes, run: pd.DataFrame, arm: str, metric: str, unit: captions.TimeUnit, bold: bool, logarithmic: bool
) -> None:
    style = arm_style(arm)
    run = run[run["clock_s"] > 0] if logarithmic else run  # the evaluation before the first step is at 0 s
    times, values = run["clock_s"] / unit.seconds, run[metric]
    if bold:
        axes.plot(times, values, color=style.color, linestyle=style.line, linewidth=1.6, zorder=3)
    else:
        axes.plot(times, values, color=style.color, linestyle="-", linewidth=0.6, alpha=0.5, zorder=2)
    arrived = run[run["target_met"]]
    if len(arrived):
        at = arrived.iloc[0]
        size = 5.5 if bold else 3.0
        axes.plot(at["clock_s"] / unit.seconds, at[metric], style.marker, color=style.color, markersize=size,
                  markeredgecolor="white", markeredgewidth=0.4, zorder=5 if bold else 4)  # fmt: skip


def _finish(axes: Axes, results: Results, metric: str, unit: captions.TimeUnit, logarithmic: bool) -> None:
    axes.grid(True)
    axes.set_xlabel(f"training time ({unit.symbol}, evaluation excluded)")
    axes.set_ylabel(_metric_words(metric))
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))
    if logarithmic:
        axes.set_xscale("log")
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=2.7)
    else:
        axes.set_xlim(left=0)
    target_metric, value = captions.target(results)
    if target_metric == metric:
        axes.axhline(value, zorder=1, **_TARGET_LINE)


def _legend_entries(results: Results, arms: list[str]) -> list[Line2D]:
    """The target, then the arms in order of arrival, with the time at the target."""
    ordered = results.times.sort_values(["time_s", "at_least_s", "arm"])
    times = {str(row["arm"]): row for row in ordered.to_dict("records")}
    entries = []
    if times:
        words = captions.target_words(results).removesuffix("validation accuracy").strip()
        entries.append(Line2D([], [], label=f"target: {words}", **_TARGET_LINE))
    for arm in [arm for arm in times if arm in arms] + sorted(arm for arm in arms if arm not in times):
        style, row = arm_style(arm), times.get(arm, {})
        label = captions.arm_label(arm, row.get("num_composed", 0), row.get("num", 0))
        label = f"{label}: {_reached(times[arm])}" if arm in times else label
        entries.append(Line2D([], [], label=label, color=style.color, linestyle=style.line, marker=style.marker,
                              markersize=4.5, markeredgecolor="white", markeredgewidth=0.4))  # fmt: skip
    return entries


def _legend_beside(axes: Axes, entries: list[Line2D], timed: bool) -> None:
    legend = axes.legend(
        handles=entries, title="time to target, fastest first" if timed else None, title_fontsize=SMALL_PT,
        handlelength=2.6, borderpad=0, loc="upper left", bbox_to_anchor=(1.01, 1.02),
    )  # fmt: skip
    legend.set_alignment("left")


def _reached(row: dict[Any, Any]) -> str:
    if math.isinf(row["time_s"]):
        return f"> {captions.seconds(row['at_least_s'])}"
    return captions.seconds(row["time_s"])


def _metric(results: Results) -> str:
    target_metric, _ = captions.target(results)
    columns = [c for c in results.curves.columns if c not in (*CURVE_COLUMNS, "target_met")]
    return next(metric for metric in (target_metric, *DEFAULT_METRICS, *columns) if metric in columns)


def _metric_words(metric: str) -> str:
    return "validation loss (nats)" if metric == "loss" else f"validation {metric}"


def _median_run(results: Results, arm: str) -> str:
    """Id of the arm's run with the median time to target; of even numbers the faster of the two in the middle."""
    cells = results.cells[results.cells["arm"] == arm]
    ordered = []
    for row in cells.to_dict("records"):
        arrivals = arrivals_by_seed(pd.DataFrame([row]))
        key = next(
            ((a.or_infinity, a.at_least) for a in arrivals.values()), (math.inf, float(row["training_clock_s"] or 0))
        )
        ordered.append((*key, str(row["id"])))
    return sorted(ordered)[(len(ordered) - 1) // 2][-1]
