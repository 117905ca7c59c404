"""Lines of the validation metric against what it cost, in time or in bytes: every run thin, each arm's mean bold.

The mean is taken across, not up: at each level of the metric, the geometric mean over the repeats of the cost at which
they first met it. So the line ends at the target where the other figures say that the arm arrived, and no run that has
ended already is missing from a mean of those that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bwbench.results.analysis.results import Results
from bwbench.results.analysis.tables import CURVE_COLUMNS
from bwbench.results.analysis.trial import DEFAULT_METRICS
from bwbench.results.figures import captions
from bwbench.results.figures.style import FAINT, arm_style

TARGET_LINE: Any = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}
NOT_METRICS = frozenset({*CURVE_COLUMNS, "target_met", "wire_bytes", "bytes_from"})
_MARKS = 4  # along a line, to tell it in grey
_LEVELS = 160  # at which a mean is taken, at most
_FAINT_FROM = 6  # arms: more thin lines than that are drawn fainter


@dataclass(frozen=True)
class Cost:
    """What the horizontal axis shows: a column of the curves, and how many of its units make one on the axis."""

    column: str
    unit: float
    logarithmic: bool


def metric_of(results: Results) -> str:
    """The metric to draw: the target's, else accuracy or loss, else whatever was recorded."""
    target_metric, _ = captions.target(results)
    columns = [column for column in results.curves.columns if column not in NOT_METRICS]
    return next(metric for metric in (target_metric, *DEFAULT_METRICS, *columns) if metric in columns)


def metric_words(metric: str) -> str:
    """``validation accuracy``, ``validation loss (nats)``."""
    return "validation loss (nats)" if metric == "loss" else f"validation {metric}"


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


def draw_arm(axes: Axes, arm: str, runs: Sequence[pd.DataFrame], metric: str, cost: Cost, num_arms: int) -> None:
    """One arm: every run thin, the mean bold with the arm's marks, a larger mark where the mean met the target."""
    style = arm_style(arm)
    shown = [run[run[cost.column] > 0] if cost.logarithmic else run for run in runs]
    shown = [run for run in shown if len(run)]
    if not shown:
        return
    if len(shown) > 1:
        alpha = 0.4 if num_arms < _FAINT_FROM else 0.18
        for run in shown:
            axes.plot(
                run[cost.column] / cost.unit, run[metric], color=style.color, linewidth=0.5, alpha=alpha, zorder=2
            )
    costs, levels = mean_line(shown, metric, cost.column)
    step = max(1, len(costs) // _MARKS)
    axes.plot(costs / cost.unit, levels, color=style.color, linestyle=style.line, linewidth=1.4, zorder=3,
              marker=style.marker, markersize=3.2, markevery=(step // 2, step), markeredgecolor="white",
              markeredgewidth=0.3)  # fmt: skip
    arrived = [run[run["target_met"]] for run in shown]
    if all(len(run) for run in arrived):
        at = float(np.exp(np.mean([np.log(run[cost.column].iloc[0]) for run in arrived])))
        level = float(np.mean([run[metric].iloc[0] for run in arrived]))
        axes.plot(at / cost.unit, level, style.marker, color=style.color, markersize=5.5, zorder=5,
                  markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip


def finish_metric(axes: Axes, results: Results, metric: str) -> None:
    """The vertical axis: label, per cents, and a line at the target."""
    axes.grid(True)
    axes.set_ylabel(metric_words(metric))
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    target_metric, value = captions.target(results)
    if target_metric == metric:
        axes.axhline(value, zorder=1, **TARGET_LINE)


def legend_entries(results: Results, labels: Sequence[tuple[str, str]], with_target: bool) -> list[Line2D]:
    """The target, then the arms as (name, label) in the order given."""
    entries = []
    if with_target:
        words = captions.target_words(results).removesuffix("validation accuracy").strip()
        entries.append(Line2D([], [], label=f"target: {words}", **TARGET_LINE))
    for arm, label in labels:
        style = arm_style(arm)
        entries.append(Line2D([], [], label=label, color=style.color, linestyle=style.line, marker=style.marker,
                              markersize=4.5, markeredgecolor="white", markeredgewidth=0.4))  # fmt: skip
    return entries
