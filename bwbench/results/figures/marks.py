"""Marks with whiskers and arrows, and entries of legends, that are drawn alike in all figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bwbench.results.figures.style import ArmStyle

_ARROW_PT = 13.0


def arm_handle(style: ArmStyle, label: str, **changes: Any) -> Line2D:
    """A legend's entry for an arm: its line with its marker."""
    look: Any = {"color": style.color, "linestyle": style.line, "marker": style.marker, "markersize": 4.5,
                 "markeredgecolor": "white", "markeredgewidth": 0.4, "linewidth": 1.3}  # fmt: skip
    return Line2D([], [], label=label, **(look | changes))


def draw_mark(
    axes: Axes, at: tuple[float, float], ends: tuple[float | None, float | None], style: ArmStyle, bound: str = "",
    size: float = 5.0, *, hollow: bool = False, marker: str | None = None, sideways: bool = False,
) -> None:  # fmt: skip
    """One value with its interval. ``bound`` ``>`` makes it a hollow mark with an arrow upwards, ``<`` downwards.

    Args:
        marker: in place of the arm's.
        sideways: the value stands on the horizontal axis: interval and arrow lie along it.
    """
    (x, y), (low, high) = at, ends
    if low is not None and high is not None and not math.isnan(low) and not math.isnan(high):
        line = ([low, high], [y, y]) if sideways else ([x, x], [low, high])
        axes.plot(*line, color=style.color, linewidth=0.9, marker="|" if sideways else "_", markersize=3.5, zorder=3)
    face = "white" if hollow or bound else style.color
    edge = style.color if hollow or bound else "white"
    axes.plot([x], [y], marker or style.marker, markersize=size, markerfacecolor=face, markeredgecolor=edge, zorder=5,
              markeredgewidth=0.9 if hollow or bound else 0.4)  # fmt: skip
    if bound:
        draw_arrow(axes, at, style.color, bound, sideways=sideways)


def draw_point(
    axes: Axes, at: tuple[float, float], ends: tuple[float, float], style: ArmStyle, *, hollow: bool
) -> None:
    """A larger mark, for pictures in which an arm is one point; ``ends`` NaN where it has no interval."""
    if not math.isnan(ends[0]):
        axes.plot([at[0]] * 2, ends, color=style.color, linewidth=0.9, marker="_", markersize=3.5, zorder=3)
    face, edge = ("white", style.color) if hollow else (style.color, "white")
    axes.plot([at[0]], [at[1]], style.marker, markersize=6, markerfacecolor=face, markeredgecolor=edge, zorder=5,
              markeredgewidth=1.0 if hollow else 0.5)  # fmt: skip


def draw_bound(axes: Axes, at: tuple[float, float], style: ArmStyle, bound: str) -> None:
    """A hollow mark with an arrow to where the value lies."""
    axes.plot(*at, style.marker, markersize=4.5, markerfacecolor="white", markeredgecolor=style.color,
              markeredgewidth=0.9, zorder=5)  # fmt: skip
    draw_arrow(axes, at, style.color, bound, head=7)


def draw_arrow(
    axes: Axes, at: tuple[float, float], color: str, bound: str, *, sideways: bool = False, head: float = 6,
    shrink_pt: float = 2.5,
) -> None:  # fmt: skip
    """An arrow from a mark to where the value lies: ``>`` up or to the right, ``<`` down or to the left."""
    arrow: Any = {"arrowstyle": "<|-", "color": color, "shrinkA": 0, "shrinkB": shrink_pt, "linewidth": 1.0,
                  "mutation_scale": head}  # fmt: skip
    away = _ARROW_PT if bound == ">" else -_ARROW_PT
    offset = (away, 0) if sideways else (0, away)
    axes.annotate("", at, offset, textcoords="offset points", arrowprops=arrow, zorder=5)


def draw_whiskers(axes: Axes, whiskers: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """Intervals as (x, low, high) in one line with gaps, which is drawn faster than a line each."""
    x = [at for place, _, _ in whiskers for at in (place, place, math.nan)]
    y = [end for _, low, high in whiskers for end in (low, high, math.nan)]
    axes.plot(x, y, marker="_", zorder=3, **look)
