"""The validation metric against the training clock, a line an arm, up to the target."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.results.analysis.results import Results
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.curve_lines import Cost, draw_arm, finish_metric, legend_entries, metric_of, metric_words
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.panels import legend_columns
from bwbench.results.figures.style import PAGE_IN, SMALL_PT

LOG_FROM_RATIO = 10.0  # arms that end this much apart would be a vertical line on a linear axis
LEGEND_ROW_IN = 0.17
MEAN_NOTE = "Bold: where the repeats first met each level, geometric mean. Thin: every run, one a seed."


class AccuracyOverTime(AbstractFigure):
    """Every run as a thin line, and boldly each arm's mean time to every level of the metric."""

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
        curves, metric = results.curves, metric_of(results)
        arms = {str(arm): [run for _, run in part.groupby("id")] for arm, part in curves.groupby("arm")}
        counts = [len(runs) for runs in arms.values()]
        notes = [MEAN_NOTE, *results.notes] if max(counts) > 1 else list(results.notes)
        title = f"{metric_words(metric)} over training time".capitalize()
        setting = captions.setting_line(results, num_runs=captions.num_runs(counts))
        timed = not results.times.empty
        entries = legend_entries(results, _labels(results, list(arms)), timed)
        figure, axes = framed_curves(width_in, title, setting, notes, entries, "time to target" if timed else None)
        ends = curves.groupby("id")["clock_s"].max()
        logarithmic = bool(ends.max() > LOG_FROM_RATIO * max(ends.min(), 1e-9))
        unit = captions.time_unit(math.sqrt(ends.max() * ends.min()) if logarithmic else float(ends.max()))
        for arm, runs in sorted(arms.items()):
            draw_arm(axes, arm, runs, metric, Cost("clock_s", unit.seconds, logarithmic), len(arms))
        finish_metric(axes, results, metric)
        axes.set_xlabel(f"training time ({unit.symbol}, evaluation excluded)")
        if logarithmic:
            axes.set_xscale("log")
            label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=2.7)
        else:
            axes.set_xlim(left=0)
        return figure


def framed_curves(
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
    body_in = max(2.75, LEGEND_ROW_IN * len(entries) + 0.6)
    figure, axes = framed_axes(width_in, body_in, title, setting, notes)
    heading = f"{ranked_by}, least first" if ranked_by else None
    legend = axes.legend(
        handles=entries, title=heading, title_fontsize=SMALL_PT, handlelength=2.6, borderpad=0, loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
    )  # fmt: skip
    legend.set_alignment("left")
    return figure, axes


def composed_label(results: Results, arm: str) -> str:
    """The arm's name, marked where its cells are composed."""
    composed = results.cells[results.cells["arm"] == arm]["composed"]
    return captions.arm_label(arm, int(composed.sum()), len(composed))


def _labels(results: Results, arms: list[str]) -> list[tuple[str, str]]:
    """The arms in order of arrival, each with its label: name and time at the target."""
    ordered = results.times.sort_values(["time_s", "at_least_s", "arm"])
    times = {str(row["arm"]): row for row in ordered.to_dict("records")}
    labels = []
    for arm in [arm for arm in times if arm in arms] + sorted(arm for arm in arms if arm not in times):
        row: dict[Any, Any] = times.get(arm, {})
        label = composed_label(results, arm)
        labels.append((arm, f"{label}: {_reached(row)}" if row else label))
    return labels


def _reached(row: dict[Any, Any]) -> str:
    if math.isinf(row["time_s"]):
        return f"> {captions.seconds(row['at_least_s'])}"
    return captions.seconds(row["time_s"])
