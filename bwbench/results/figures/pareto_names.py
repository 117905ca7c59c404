"""Names in the picture of fast and frugal: beside the points, clear of lines, intervals and arrows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.results.figures import captions
from bwbench.results.figures.point_names import Named, name_points
from bwbench.results.figures.style import FAINT, SMALL_PT

_ARROWS_PT = ((0.0, 7.0), (0.0, 13.0), (7.0, 0.0), (13.0, 0.0))  # where a point's arrows lie


def name_arms(
    figure: Figure, axes: Axes, table: pd.DataFrame, limits: Sequence[dict[Any, Any]], unit: float, scale: float
) -> None:
    """Names beside the points; those of the limits on their lines, at the right."""
    right = axes.get_xlim()[1]
    avoid = []
    for row in limits:
        label = captions.arm_label(row["arm"], row["num_composed"], row["num"], row["role"])
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
    named = [
        Named(row["wire_bytes"] / unit, row["y"] / scale,
              captions.arm_label(row["arm"], row["num_composed"], row["num"]), bold=bool(row["front"]),
              clear_pt=_ARROWS_PT if row["y_bound"] else ())
        for row in table[table["wire_bytes"].notna()].to_dict("records")
    ]  # fmt: skip
    name_points(figure, axes, named, [*avoid, *_whiskers(table, unit, scale), *_along_front(table, unit, scale)])


def _whiskers(table: pd.DataFrame, unit: float, scale: float) -> list[tuple[float, float]]:
    """Places along the intervals, in data coordinates."""
    known = table[table["low"].notna() & table["wire_bytes"].notna()]
    return [
        (row["wire_bytes"] / unit, (row["low"] + share * (row["high"] - row["low"])) / scale)
        for row in known.to_dict("records")
        for share in np.linspace(0, 1, 5)
    ]


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
