"""The validation metric against the training clock, a line an arm, up to the target."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from bwbench.results.analysis.results import Results
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.curve_lines import Cost, composed_label, draw_curves


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
        timed = not results.times.empty
        label = "training time ({}, evaluation excluded)".format
        cost = Cost("clock_s", label, _unit_of, "time to target" if timed else None)
        labels = _labels(results, sorted(set(results.curves["arm"])))
        return draw_curves(results, results.curves, width_in, "over training time", results.notes, cost, labels)


def _unit_of(longest_s: float) -> tuple[str, float]:
    unit = captions.time_unit(longest_s)
    return unit.symbol, unit.seconds


def _labels(results: Results, arms: list[str]) -> list[tuple[str, str]]:
    """The arms in order of arrival, each with its label: name and time at the target."""
    ordered = results.times.sort_values(["time_s", "at_least_s", "arm"])
    times = {str(row["arm"]): row for row in ordered.to_dict("records")}
    labels = []
    for arm in [arm for arm in times if arm in arms] + sorted(arm for arm in arms if arm not in times):
        label = composed_label(results, arm)
        if row := times.get(arm):
            infinite = math.isinf(row["time_s"])
            label += (
                f": > {captions.seconds(row['at_least_s'])}" if infinite else f": {captions.seconds(row['time_s'])}"
            )
        labels.append((arm, label))
    return labels
