"""Horizontal limits of a picture over bandwidths: arms that no link concerns, and ideals, named at their lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from bwbench.methods.roles import HEADROOM, REFERENCE
from bwbench.results.figures.captions import arm_label
from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.labels import emptiest
from bwbench.results.figures.style import INK, SMALL_PT

_LIMITS = {REFERENCE: "one node alone", HEADROOM: "computing alone"}  # no link concerns them
ABOVE, BELOW = "above", "below"
_HALO = [patheffects.withStroke(linewidth=2.2, foreground="white")]


@dataclass(frozen=True)
class Level:
    """One horizontal line.

    Attributes:
        low, high: its interval, drawn as a band; NaN where there is none.
        dots: its repeats, drawn at the left edge.
        side: of its name, ABOVE or BELOW the line; empty where the least is in the way.
    """

    name: str
    y: float
    color: str
    line: Any
    low: float = math.nan
    high: float = math.nan
    dots: tuple[float, ...] = ()
    side: str = ""


def limit_name(label: str, arm: str, role: str) -> str:
    """A label of an arm, in which its name says what it is a limit of: ``one node alone (single)``."""
    return label.replace(arm_label(arm, role), f"{_LIMITS[role]} ({arm})")


def long_name(arm: str, role: str, level: Level) -> Level:
    """The same line with the name of ``limit_name``."""
    return replace(level, name=limit_name(level.name, arm, role))


def level_entry(level: Level) -> Line2D:
    """A legend's entry for it."""
    return Line2D([], [], label=level.name, color=level.color, linestyle=level.line, linewidth=1.1)


def draw_level(axes: Axes, level: Level) -> None:
    """The line across the picture, its band and its dots."""
    axes.axhline(level.y, color=level.color, linestyle=level.line, linewidth=1.1, zorder=2)
    if not math.isnan(level.low):
        axes.axhspan(level.low, level.high, color=level.color, alpha=0.1, linewidth=0)
    if len(level.dots) > 1:
        axes.plot([0.012] * len(level.dots), level.dots, "o", transform=axes.get_yaxis_transform(), markersize=2.2,
                  color=level.color, markeredgewidth=0, zorder=3)  # fmt: skip


def name_levels(figure: Figure, axes: Axes, levels: Sequence[Level]) -> None:
    """Write the names into the picture, near its left or right edge; limits of the axes are final by now."""
    lay_out(figure)
    drawn = [line for line in axes.get_lines() if np.size(line.get_xdata()) > 1 and line.get_linestyle() != "None"]
    drawn = [line for line in drawn if line.get_transform() == axes.transData]
    drawn += [Line2D(axes.get_xlim(), (level.y, level.y)) for level in levels]
    box, px_per_pt = axes.get_window_extent(), figure.dpi / 72
    taken: list[Bbox] = []  # by names written before
    for level in levels:
        width, height = text_width_in(figure, level.name, SMALL_PT) * figure.dpi, SMALL_PT * px_per_pt
        line_px = axes.transData.transform((1.0, level.y))[1]
        sides = {ABOVE: line_px + 2 * px_per_pt, BELOW: line_px - 3 * px_per_pt - height}
        near, far = box.x0 + 0.03 * box.width, box.x1 - 0.03 * box.width - width
        places = [(x, y) for side, y in sides.items() if level.side in ("", side) for x in (near, far)]
        boxes = [Bbox.from_bounds(x, y, width, height) for x, y in places]
        free = [at for at, one in zip(places, boxes, strict=True) if not any(one.overlaps(other) for other in taken)]
        places = free or places
        x, y = places[emptiest(axes, places, width, height, drawn)]
        taken.append(Bbox.from_bounds(x, y, width, height))
        axes.annotate(level.name, ((x - box.x0) / box.width, (y - box.y0) / box.height), xycoords="axes fraction",
                      fontsize=SMALL_PT, color=INK, path_effects=_HALO, zorder=6)  # fmt: skip
