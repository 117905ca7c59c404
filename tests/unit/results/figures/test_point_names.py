"""Names beside points: all there, none on another one, none outside."""

from __future__ import annotations

import itertools
import random

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from bwbench.results.figures.point_names import Named, name_points


def test_crowded_names_do_not_touch() -> None:
    figure = Figure(figsize=(3.4, 3.0))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    strewn = random.Random(3)
    points = [Named(strewn.uniform(0.4, 0.6), strewn.uniform(0.4, 0.6), f"an-arm-{number}") for number in range(14)]
    axes.plot([point.x for point in points], [point.y for point in points], "o")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    name_points(figure, axes, points)
    figure.draw_without_rendering()
    frame = axes.get_window_extent().padded(1)
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without lines to their points
    assert sorted(text.get_text() for text in axes.texts) == sorted(point.text for point in points)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.padded(-1).overlaps(other.padded(-1))
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
