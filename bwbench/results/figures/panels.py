"""Several pairs of axes under one title, and marks with whiskers and arrows that are drawn alike in all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.results.figures import captions
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.style import SMALL_PT, arm_style

_LETTER_IN = 0.056  # mean width of SMALL_PT text
_HANDLE_IN = 0.42  # of a legend's entry, with the gaps beside it
_ARROW_PT = 13


def framed_panels(
    width_in: float,
    body_in: float,
    shape: tuple[int, int],
    title: str,
    setting: str,
    notes: Sequence[str],
    legend: Sequence[Artist] = (),
    share: tuple[bool | str, bool | str] = (False, False),
) -> tuple[Figure, np.ndarray[Any, Any]]:
    """As ``frame.framed_axes``, with ``shape`` (rows, columns) of axes; ``share``: matplotlib's sharex and sharey."""
    columns = legend_columns(width_in, legend)
    figure, axes = framed_axes(width_in, body_in, title, setting, notes, legend, columns)
    axes.remove()
    sharing: Any = {"sharex": share[0], "sharey": share[1]}
    grid: np.ndarray[Any, Any] = figure.subplots(*shape, squeeze=False, **sharing)
    return figure, grid


def legend_columns(width_in: float, legend: Sequence[Artist]) -> int:
    """How many entries of a legend fit beside each other."""
    if not legend:
        return 1
    longest = max(len(str(entry.get_label())) for entry in legend)
    return max(1, min(len(legend), int((width_in - 0.1) / (longest * _LETTER_IN + _HANDLE_IN))))


def arm_handle(arm: str, label: str, **changes: Any) -> Line2D:
    """A legend's entry for an arm: its line with its marker."""
    style = arm_style(arm)
    look: dict[str, Any] = {"color": style.color, "linestyle": style.line, "marker": style.marker, "markersize": 4.5,
                            "markeredgecolor": "white", "markeredgewidth": 0.4, "linewidth": 1.3}  # fmt: skip
    return Line2D([], [], label=label, **(look | changes))


def arm_labels(rows: pd.DataFrame) -> dict[str, str]:
    """Names of the arms of a table with ``num_composed`` and ``num``, marked where they are composed; sorted."""
    sums = rows.groupby("arm")[["num_composed", "num"]].sum()
    return {str(arm): captions.arm_label(str(arm), row["num_composed"], row["num"]) for arm, row in sums.iterrows()}


def label_outer(grid: np.ndarray[Any, Any], below: str, beside: str) -> None:
    """Axis labels below the lowest visible panel of each column, and left of each row."""
    rows, columns = grid.shape
    for column in range(columns):
        visible = [grid[row, column] for row in range(rows) if grid[row, column].get_visible()]
        if visible:
            visible[-1].set_xlabel(below)
            visible[-1].tick_params(axis="x", labelbottom=True)
    for row in range(rows):
        grid[row, 0].set_ylabel(beside)


def draw_mark(
    axes: Axes, at: tuple[float, float], ends: tuple[float | None, float | None], arm: str, bound: str = "",
    size: float = 5.0, hollow: bool = False, marker: str | None = None, sideways: bool = False,
) -> None:  # fmt: skip
    """One value with its interval. ``bound`` ``>`` makes it a hollow mark with an arrow upwards, ``<`` downwards.

    Args:
        marker: in place of the arm's.
        sideways: the value stands on the horizontal axis: interval and arrow lie along it.
    """
    style, (x, y) = arm_style(arm), at
    low, high = ends
    if low is not None and high is not None and not math.isnan(low) and not math.isnan(high):
        line = ([low, high], [y, y]) if sideways else ([x, x], [low, high])
        axes.plot(*line, color=style.color, linewidth=0.9, marker="|" if sideways else "_", markersize=3.5, zorder=3)
    face = "white" if hollow or bound else style.color
    edge = style.color if hollow or bound else "white"
    axes.plot([x], [y], marker or style.marker, markersize=size, markerfacecolor=face, markeredgecolor=edge, zorder=5,
              markeredgewidth=0.9 if hollow or bound else 0.4)  # fmt: skip
    if bound:
        arrow: Any = {"arrowstyle": "<|-", "color": style.color, "shrinkA": 0, "shrinkB": 2.5, "linewidth": 1.0,
                      "mutation_scale": 6}  # fmt: skip
        away = _ARROW_PT if bound == ">" else -_ARROW_PT
        offset = (away, 0) if sideways else (0, away)
        axes.annotate("", (x, y), offset, textcoords="offset points", arrowprops=arrow, zorder=5)


def panel_title(axes: Axes, text: str) -> None:
    """What tells this panel from its neighbours, small and on the left above it."""
    axes.set_title(text, loc="left", fontsize=SMALL_PT, pad=3)
