"""Names beside points: as near as possible, none on another one, on a point or outside the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.style import INK, SMALL_PT

_DISTANCES_PT = (6.0, 8.0, 12.0, 17.0, 23.0, 30.0, 38.0, 48.0, 60.0, 74.0)
_DIRECTIONS = 16
_LINE_FROM_PT = 9.0  # a name that far away is joined to its point
_GAP_PT = 3.0  # between two names on one line
_CROWDED_PT = 10.0  # points that near: a name must be joined to its own, and so stand that far away
_MARK_PT = 3.6  # half the side of a mark


@dataclass(frozen=True)
class Named:
    """A point in data coordinates, and what to write beside it.

    Attributes:
        clear_pt: places that no name may cover either, in points from this one: its arrows.
    """

    x: float
    y: float
    text: str
    bold: bool = False
    clear_pt: tuple[tuple[float, float], ...] = ()


def name_points(figure: Figure, axes: Axes, points: Sequence[Named], avoid: Sequence[tuple[float, float]] = ()) -> None:
    """Write the names; limits and scales of the axes must be set by now.

    Args:
        avoid: further places, in data coordinates, that no name may cover.
    """
    lay_out(figure)
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    marks = axes.transData.transform([(point.x, point.y) for point in points] + list(avoid))
    taken = [_box(float(x), float(y), _MARK_PT * scale, _MARK_PT * scale) for x, y in marks]
    for point, (x, y) in zip(points, marks, strict=False):
        places = [(float(x) + dx * scale, float(y) + dy * scale) for dx, dy in point.clear_pt]
        taken += [_box(*place, _MARK_PT * scale, _MARK_PT * scale) for place in places]
    for point, (x, y) in sorted(zip(points, marks, strict=False), key=lambda pair: (-pair[1][1], pair[1][0])):
        width = text_width_in(figure, point.text, SMALL_PT, bold=point.bold) * figure.dpi + _GAP_PT * scale
        height = SMALL_PT * 1.15 * scale
        others = [other for other in marks[: len(points)] if 0 < math.dist((x, y), other) < _CROWDED_PT * scale]
        away = sum(float(x - other[0]) for other in others), sum(float(y - other[1]) for other in others)
        first = math.atan2(away[1], away[0])  # to the right of a point that stands alone
        least = _LINE_FROM_PT if others else 0.0
        distance, angle, box = _place((float(x), float(y)), (width, height), scale, frame, taken, least, first)
        taken.append(box)
        facing = (0.5 - 0.5 * math.cos(angle), 0.5 - 0.5 * math.sin(angle))  # the side of the name towards its point
        line: Any = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2.5,
                     "relpos": facing}  # fmt: skip
        centre = ((box.x0 + box.x1) / 2 - x, (box.y0 + box.y1) / 2 - y)
        note = axes.annotate(
            point.text, (point.x, point.y), (centre[0] / scale, centre[1] / scale), textcoords="offset points",
            ha="center", va="center", fontsize=SMALL_PT, color=INK, zorder=7, annotation_clip=False,
            weight="bold" if point.bold else "normal", arrowprops=line if distance > _LINE_FROM_PT else None,
        )  # fmt: skip
        if note.arrow_patch is not None:
            note.arrow_patch.set_zorder(2)
        note.set_in_layout(False)


def whisker_places(x: float, low: float, high: float) -> list[tuple[float, float]]:
    """Places along a whisker that no name may cover; none where it has no ends."""
    return [] if math.isnan(low) else [(x, low + share * (high - low)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


def _place(
    point: tuple[float, float],
    size: tuple[float, float],
    scale: float,
    frame: Bbox,
    taken: Sequence[Bbox],
    least: float,
    first: float,
) -> tuple[float, float, Bbox]:
    """Distance in points, direction, and box in pixels of the nearest free place; the least crowded one if none is.

    Args:
        least: distance in points; first: the direction to look in first, then more and more to both sides of it.
    """
    (x, y), (width, height) = point, size
    best: tuple[float, float, float, Bbox] | None = None
    for distance in (distance for distance in _DISTANCES_PT if distance >= least):
        for number in range(_DIRECTIONS):
            turn = (number + 1) // 2 * (1 if number % 2 else -1)
            angle = first + 2 * math.pi * turn / _DIRECTIONS
            dx, dy = math.cos(angle), math.sin(angle)
            middle = (x + dx * (distance * scale + width / 2), y + dy * (distance * scale + height / 2))
            box = _box(*middle, width / 2, height / 2)
            outside = not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)
            covered = sum(_shared_area(box, other) for other in taken)
            if not outside and covered == 0:
                return distance, angle, box
            cost = covered + (1e6 if outside else 0)
            if best is None or cost < best[0]:
                best = (cost, distance, angle, box)
    assert best is not None
    return best[1:]


def _box(x: float, y: float, half_width: float, half_height: float) -> Bbox:
    return Bbox.from_extents(x - half_width, y - half_height, x + half_width, y + half_height)


def _shared_area(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))
