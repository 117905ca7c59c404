"""Labels that can be read: moved apart where they would overlap, and at round numbers on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

_SAMPLES = 24  # of a line between two of its points
_LABEL_IN = 0.34  # room that a tick label of up to four digits needs along the axis


def spread(wanted: Sequence[float], pitch: float, low: float, high: float) -> list[float]:
    """Positions as near as possible to ``wanted`` that are ``pitch`` apart and, where they fit, inside low to high.

    Order is kept; labels that touch form a block, which sits at the mean of what its members want (the least squares
    solution). Returns the positions in the order of ``wanted``.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[list[float]] = []  # each [sum of wanted offsets, members]
    for rank, index in enumerate(order):
        blocks.append([wanted[index] - rank * pitch, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, members = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += members
    base = [total / members for total, members in blocks for _ in range(int(members))]
    room = max(low, high - pitch * (len(wanted) - 1))
    positions = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        positions[index] = min(max(base[rank], low), room) + rank * pitch
    return positions


def emptiest(
    axes: Axes, places: Sequence[tuple[float, float]], width_px: float, height_px: float, lines: Sequence[Line2D]
) -> int:
    """Which of ``places`` (lower left corners of a text, in pixels) lies on the least of what ``lines`` draw."""

    def covered(place: tuple[float, float]) -> int:
        x, y = place
        inside = (x <= drawn[..., 0]) & (drawn[..., 0] <= x + width_px) & (y <= drawn[..., 1])
        return int(np.sum(inside & (drawn[..., 1] <= y + height_px)))

    parts = np.arange(_SAMPLES)[:, None, None] / _SAMPLES
    sampled = []
    for line in lines:
        xy = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        sampled.append((xy[:-1] + parts * np.diff(xy, axis=0)).reshape(-1, 2))  # gaps stay NaN, which lies nowhere
    drawn = np.concatenate(sampled) if sampled else np.empty((0, 2))
    return min(range(len(places)), key=lambda number: covered(places[number]))


def label_log_axis(axis: Axis, low: float, high: float, length_in: float) -> None:
    """Plain numbers on a logarithmic axis ``length_in`` long: 1, 2, 5, 10 … where they fit, else powers of ten."""
    fine = 3 * math.log10(high / low) * _LABEL_IN <= length_in
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if fine else (1.0,)))
    axis.set_minor_locator(NullLocator() if fine else LogLocator(subs=(2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def tick_at(axis: Axis, values: Sequence[float]) -> None:
    """Ticks at these values and nowhere else, as plain numbers."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
