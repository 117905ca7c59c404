"""Marks with whiskers and arrows, entries of legends and labels of axes, drawn alike in all figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import Affine2D

from bwbench.results.figures.style import ArmStyle

POINT: Any = {"size": 6.0, "edges": (0.5, 1.0)}  # a larger mark, for pictures in which an arm is one point
_ARROW_PT = 13.0
_DOT_SHARE = 0.07  # radius of the dot in a marker, in times its size
_STAR = 1.4  # times as large: it has little room inside


def arm_handle(style: ArmStyle, label: str, **changes: Any) -> Line2D:
    """A legend's entry for an arm: its line with its marker."""
    look: Any = {"color": style.color, "linestyle": style.line, "marker": style.marker, "markersize": 4.5,
                 "markeredgecolor": "white", "markeredgewidth": 0.4, "linewidth": 1.3}  # fmt: skip
    return Line2D([], [], label=label, **(look | changes))


def draw_mark(
    axes: Axes, at: tuple[float, float], ends: tuple[float | None, float | None], style: ArmStyle, bound: str = "",
    size: float = 5.0, *, hollow: bool = False, sideways: bool = False, edges: tuple[float, float] = (0.4, 0.9),
) -> None:  # fmt: skip
    """One value with its interval. ``bound`` ``>`` makes it a hollow mark with an arrow upwards, ``<`` downwards.

    Args:
        ends: of its interval; None or NaN where it has none.
        edges: width of a full mark's edge, and of a hollow one's.
        sideways: the value stands on the horizontal axis: interval and arrow lie along it.
    """
    (x, y), (low, high) = at, ends
    if low is not None and high is not None and not math.isnan(low) and not math.isnan(high):
        line = ([low, high], [y, y]) if sideways else ([x, x], [low, high])
        axes.plot(*line, color=style.color, linewidth=0.9, marker="|" if sideways else "_", markersize=3.5, zorder=3)
    face = "white" if hollow or bound else style.color
    edge = style.color if hollow or bound else "white"
    size_pt = _STAR * size if style.marker == "*" else size
    axes.plot([x], [y], style.marker, markersize=size_pt, markerfacecolor=face, markeredgecolor=edge, zorder=5,
              markeredgewidth=edges[hollow or bool(bound)])  # fmt: skip
    if bound:
        draw_arrow(axes, at, style.color, bound, sideways=sideways)


def host_bound_look(marker: str, size: float, color: str) -> dict[str, Any]:
    """How host-bound cells are drawn, as settings of a line: ``marker``, hollow with a dot in it. No arm has that."""
    plain = MarkerStyle(marker)
    shape = plain.get_path().transformed(plain.get_transform())
    dot = Path.unit_circle().transformed(Affine2D().scale(_DOT_SHARE))  # all of it is edge
    size_pt = _STAR * size if marker == "*" else size
    return {"marker": Path.make_compound_path(shape, dot), "markersize": size_pt, "markerfacecolor": "white",
            "markeredgecolor": color, "markeredgewidth": 0.7, "linestyle": "none"}  # fmt: skip


def draw_arrow(
    axes: Axes, at: tuple[float, float], color: str, bound: str, *, sideways: bool = False, shrink_pt: float = 2.5
) -> None:
    """An arrow from a mark to where the value lies: ``>`` up or to the right, ``<`` down or to the left."""
    arrow: Any = {"arrowstyle": "<|-", "color": color, "shrinkA": 0, "shrinkB": shrink_pt, "linewidth": 1.0,
                  "mutation_scale": 6}  # fmt: skip
    away = _ARROW_PT if bound == ">" else -_ARROW_PT
    offset = (away, 0) if sideways else (0, away)
    axes.annotate("", at, offset, textcoords="offset points", arrowprops=arrow, zorder=5)


def draw_whiskers(axes: Axes, whiskers: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """Intervals as (x, low, high) in one line with gaps, which is drawn faster than a line each."""
    x = [at for place, _, _ in whiskers for at in (place, place, math.nan)]
    y = [end for _, low, high in whiskers for end in (low, high, math.nan)]
    axes.plot(x, y, marker="_", zorder=3, **look)


_LABEL_IN = 0.307  # between two tick labels of up to four digits
# What is labelled in a decade, and the smallest gap between two of them, in decades.
_SUBS: dict[tuple[float, ...], float] = {(1.0, 2.0, 5.0): math.log10(2.0), (1.0, 3.0): math.log10(3.0), (1.0,): 1.0}


def spread(wanted: Sequence[float], pitch: float | Sequence[float], low: float, high: float) -> list[float]:
    """Positions as near as possible to ``wanted`` that keep apart and, where they fit, lie inside low to high.

    Order is kept; labels that touch form a block, which sits at the mean of what its members want (the least squares
    solution). Returns the positions in the order of ``wanted``.

    Args:
        pitch: distance between neighbours, or the height of each label: neighbours are half of both apart.
    """
    heights = [pitch] * len(wanted) if isinstance(pitch, (int, float)) else list(pitch)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    steps = [(heights[one] + heights[other]) / 2 for one, other in pairwise(order)]
    offsets = list(accumulate(steps, initial=0.0))
    blocks: list[list[float]] = []  # each [sum of wanted offsets, members]
    for rank, index in enumerate(order):
        blocks.append([wanted[index] - offsets[rank], 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, members = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += members
    base = [total / members for total, members in blocks for _ in range(int(members))]
    room = max(low, high - offsets[len(wanted) - 1]) if wanted else low
    positions = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        positions[index] = min(max(base[rank], low), room) + offsets[rank]
    return positions


def label_log_axis(axis: Axis, low: float, high: float, length_in: float) -> None:
    """Plain numbers on a logarithmic axis ``length_in`` long: 1, 2, 5, 10 … where they fit, else 1, 3, 10, or 1, 10.

    Two of them are there at least where the axis spans enough for that: one number says nothing of a scale.
    """
    decade_in = length_in / max(math.log10(high / low), 1e-9)
    fitting = [subs for subs, gap in _SUBS.items() if gap * decade_in >= _LABEL_IN]
    several = [subs for subs in _SUBS if _num_ticks(subs, low, high) > 1]
    subs = next((subs for subs in fitting if subs in several), several[-1] if several else next(iter(_SUBS)))
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)) if len(subs) == 1 else NullLocator())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _num_ticks(subs: Sequence[float], low: float, high: float) -> int:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return sum(low <= sub * 10.0**decade <= high for decade in decades for sub in subs)


def tick_at(axis: Axis, values: Sequence[float]) -> None:
    """Ticks at these values and nowhere else, as plain numbers."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
