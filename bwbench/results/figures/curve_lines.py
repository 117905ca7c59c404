"""Lines of the validation metric against what it cost, in time or in bytes: every run thin, each arm's mean bold.

The mean is taken across, not up: at each level of the metric, the geometric mean over the repeats of the cost at which
they first met it. So the line ends at the target where the other figures say that the arm arrived, and no run that has
ended already is missing from a mean of those that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bwbench.results.analysis.results import CURVE_COLUMNS, Results
from bwbench.results.analysis.trial import DEFAULT_METRICS
from bwbench.results.figures import captions
from bwbench.results.figures.frame import framed_axes, legend_columns
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.marks import arm_handle
from bwbench.results.figures.style import FAINT, PAGE_IN, SMALL_PT, ArmStyle, arm_style

_TARGET_LINE: Any = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}
_NOT_METRICS = frozenset({*CURVE_COLUMNS, "target_met", "wire_bytes", "bytes_from"})
_LOG_FROM_RATIO = 10.0  # arms that end this much apart would be a vertical line on a linear axis
_LEGEND_ROW_IN = 0.17
_MEAN_NOTE = "Bold: where the repeats first met each level, geometric mean. Thin: every run, one a seed."
_MARKS = 4  # along a line, to tell it in grey
_LEVELS = 160  # at which a mean is taken, at most
_FAINT_FROM = 6  # arms: more thin lines than that are drawn fainter


@dataclass(frozen=True)
class Cost:
    """What the horizontal axis shows.

    Attributes:
        column: of the curves.
        label: of the axis, with the symbol of the unit.
        unit_of: symbol of the unit for costs of about this size, and how many of the column's make one of it.
        to_target: what stands after the names in the legend; None: nothing does.
    """

    column: str
    label: Callable[[str], str]
    unit_of: Callable[[float], tuple[str, float]]
    to_target: str | None


def runs_of_arms(curves: pd.DataFrame) -> dict[str, list[pd.DataFrame]]:
    """The evaluations of every run, by arm."""
    return {str(arm): [run for _, run in part.groupby("id")] for arm, part in curves.groupby("arm")}


def draw_curves(
    results: Results, curves: pd.DataFrame, width_in: float, title: str, notes: Sequence[str], cost: Cost,
    labels: Sequence[tuple[str, str]],
) -> Figure:  # fmt: skip
    """The whole picture of one metric against one cost.

    Args:
        curves: evaluations to draw, with ``cost.column``.
        title: what is added to the metric in it.
        notes: beside the one on means.
        labels: arms with what stands in the legend, in its order.
    """
    metric, arms = metric_of(results), runs_of_arms(curves)
    counts = [len(runs) for runs in arms.values()]
    setting = captions.setting_line(results, num_runs=captions.num_runs(counts))
    entries = _legend_entries(results, labels, with_target=cost.to_target is not None)
    shown_notes = [*([_MEAN_NOTE] if max(counts) > 1 else []), *notes]
    words = f"{metric_words(metric)} {title}".capitalize()
    figure, axes = _framed_curves(width_in, words, setting, shown_notes, entries, cost.to_target)
    ends = curves.groupby("id")[cost.column].max()
    logarithmic = bool(ends.max() > _LOG_FROM_RATIO * max(ends.min(), 1e-9))
    symbol, unit = cost.unit_of(math.sqrt(ends.max() * ends.min()) if logarithmic else float(ends.max()))
    for arm, runs in sorted(arms.items()):
        shown = [run[run[cost.column] > 0] if logarithmic else run for run in runs]
        if shown := [run for run in shown if len(run)]:
            alpha = 0.4 if len(arms) < _FAINT_FROM else 0.18
            _draw_arm(axes, arm_style(arm, results.roles[arm]), shown, metric, cost.column, unit, alpha)
    _finish_metric(axes, results, metric)
    axes.set_xlabel(cost.label(symbol))
    if logarithmic:
        axes.set_xscale("log")
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=2.7)
    else:
        axes.set_xlim(left=0)
    return figure


def metric_of(results: Results) -> str:
    """The metric to draw: the target's, else accuracy or loss, else whatever was recorded."""
    target_metric, _ = captions.target(results)
    columns = [column for column in results.curves.columns if column not in _NOT_METRICS]
    return next(metric for metric in (target_metric, *DEFAULT_METRICS, *columns) if metric in columns)


def metric_words(metric: str) -> str:
    """``validation accuracy``, ``validation loss (nats)``."""
    return "validation loss (nats)" if metric == "loss" else f"validation {metric}"


def composed_label(results: Results, arm: str) -> str:
    """The arm's name, marked where its cells are composed."""
    composed = results.cells[results.cells["arm"] == arm]["composed"]
    return captions.arm_label(arm, results.roles[arm], int(composed.sum()), len(composed))


def mean_line(runs: Sequence[pd.DataFrame], metric: str, column: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Costs and levels of the mean of an arm's runs, up to the level that all of them have met.

    Args:
        runs: evaluations of each run, in order; those at a cost of 0 count where they are.
    """
    falls = metric == "loss"
    best = [run[metric].cummin() if falls else run[metric].cummax() for run in runs]
    start = max(values.iloc[0] for values in best) if not falls else min(values.iloc[0] for values in best)
    end = max(values.iloc[-1] for values in best) if falls else min(values.iloc[-1] for values in best)
    levels = np.unique(np.concatenate([values.to_numpy() for values in best]))
    low, high = min(start, end), max(start, end)
    levels = levels[(levels >= low) & (levels <= high)]
    levels = levels[::-1] if falls else levels
    levels = levels[np.unique(np.linspace(0, len(levels) - 1, min(_LEVELS, len(levels))).round().astype(int))]
    costs = []
    for run, values in zip(runs, best, strict=True):
        better = values.diff().fillna(-1.0 if falls else 1.0) != 0  # between two evaluations on a straight line
        sign = -1.0 if falls else 1.0
        costs.append(np.interp(sign * levels, sign * values[better], run[column][better]))
    with np.errstate(divide="ignore"):  # a cost of 0 stays 0
        return np.exp(np.mean(np.log(np.array(costs, dtype=float)), axis=0)), levels


def _framed_curves(
    width_in: float, title: str, setting: str, notes: list[str], entries: list[Line2D], ranked_by: str | None
) -> tuple[Figure, Axes]:
    """Axes with the legend beside them on a page, and above them in a column.

    Args:
        ranked_by: what stands after the names in the legend, smallest first; None: nothing does.
    """
    if width_in < PAGE_IN:
        if ranked_by:
            notes = [f"After the names: {ranked_by}, least first.", *notes]
        return framed_axes(width_in, 2.4, title, setting, notes, entries, legend_columns(width_in, entries))
    body_in = max(2.75, _LEGEND_ROW_IN * len(entries) + 0.6)
    figure, axes = framed_axes(width_in, body_in, title, setting, notes)
    heading = f"{ranked_by}, least first" if ranked_by else None
    legend = axes.legend(
        handles=entries, title=heading, title_fontsize=SMALL_PT, handlelength=2.6, borderpad=0, loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
    )  # fmt: skip
    legend.set_alignment("left")
    return figure, axes


def _draw_arm(
    axes: Axes, style: ArmStyle, runs: Sequence[pd.DataFrame], metric: str, column: str, unit: float, alpha: float
) -> None:
    """One arm: every run thin, the mean bold with the arm's marks, a larger mark where the mean met the target."""
    for run in runs if len(runs) > 1 else ():
        axes.plot(run[column] / unit, run[metric], color=style.color, linewidth=0.5, alpha=alpha, zorder=2)
    costs, levels = mean_line(runs, metric, column)
    step = max(1, len(costs) // _MARKS)
    axes.plot(costs / unit, levels, color=style.color, linestyle=style.line, linewidth=1.4, zorder=3,
              marker=style.marker, markersize=3.2, markevery=(step // 2, step), markeredgecolor="white",
              markeredgewidth=0.3)  # fmt: skip
    arrived = [run[run["target_met"]] for run in runs]
    if all(len(run) for run in arrived):
        at = float(np.exp(np.mean([np.log(run[column].iloc[0]) for run in arrived])))
        level = float(np.mean([run[metric].iloc[0] for run in arrived]))
        axes.plot(at / unit, level, style.marker, color=style.color, markersize=5.5, zorder=5,
                  markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip


def _finish_metric(axes: Axes, results: Results, metric: str) -> None:
    axes.grid(True)
    axes.set_ylabel(metric_words(metric))
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    target_metric, value = captions.target(results)
    if target_metric == metric:
        axes.axhline(value, zorder=1, **_TARGET_LINE)


def _legend_entries(results: Results, labels: Sequence[tuple[str, str]], *, with_target: bool) -> list[Line2D]:
    entries = []
    if with_target:
        words = captions.target_words(results).removesuffix("validation accuracy").strip()
        entries.append(Line2D([], [], label=f"target: {words}", **_TARGET_LINE))
    return [*entries, *(arm_handle(arm_style(arm, results.roles[arm]), label, linewidth=1.5) for arm, label in labels)]
