"""What every figure has to keep, as a check of one figure: for the tests here and for those of other people."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from bwbench.base.examples import RECORDS
from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.style import WIDTHS_IN


def violations(figure: AbstractFigure, results: Sequence[Results] | None = None) -> list[str]:
    """Everything that a figure does wrong, one sentence each; empty where it keeps the contract.

    Args:
        results: groups of cells that it is drawn of, of those where it applies; None for the example records, six
            methods on four links.
    """
    groups = regrouped(load_results(RECORDS) if results is None else results, figure.compares)
    found: list[str] = []
    num_drawn = 0
    for group in groups:
        why_not = figure.why_not(group)
        if why_not is not None:
            found += _of_reason(why_not)
            continue
        num_drawn += 1
        found += [f"{group.label or group.experiment}: {text}" for text in _of_group(figure, group)]
    if not num_drawn:
        found.append("applies to none of these results, so that nothing was drawn: give it some to which it does")
    return found


def _of_reason(why_not: str) -> Iterator[str]:
    if not why_not.strip() or why_not.endswith("."):
        yield f"says why it does not apply as {why_not!r}; half a sentence is wanted, without a full stop"


def _of_group(figure: AbstractFigure, group: Results) -> Iterator[str]:
    try:
        table, again = figure.table(group), figure.table(group)
    except Exception as error:
        yield f"its table: {type(error).__name__}: {error}"
        return
    if not len(table):
        yield "its table is empty although it applies"
    if not table.equals(again):
        yield "its table is another one the second time: it must not change what it is given"
    for width_in in sorted(WIDTHS_IN.values()):
        yield from (f"{width_in:g} in wide: {text}" for text in _of_picture(figure, group, width_in, table))


def _of_picture(figure: AbstractFigure, group: Results, width_in: float, table: pd.DataFrame) -> Iterator[str]:
    before = dict(matplotlib.rcParams)
    try:
        picture = figure.draw(group, width_in)
        yield from text_problems(picture)
    except Exception as error:
        yield f"cannot be drawn: {type(error).__name__}: {error}"
        return
    if abs(picture.get_size_inches()[0] - width_in) > 1e-6:
        yield f"is {picture.get_size_inches()[0]:g} in wide"
    if dict(matplotlib.rcParams) != before:
        yield "changes matplotlib's settings for others"
    if not table.equals(figure.table(group)):
        yield "drawing changes its table"


def text_problems(picture: Figure) -> list[str]:
    """Text that is cut off by the picture's edge, and texts that lie on top of each other."""
    drawn: list[Text] = []
    draw = Text.draw

    def note(text: Text, renderer: Any) -> None:
        drawn.append(text)  # tick labels outside the axes exist, but are not drawn
        draw(text, renderer)

    with mock.patch.object(Text, "draw", note):
        picture.draw_without_rendering()
    frame, boxes, found = picture.bbox.padded(1), [], []
    for text in {id(text): text for text in drawn if text.get_visible() and text.get_text().strip()}.values():
        box = Text.get_window_extent(text)  # of an annotation without its arrow
        if not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1):
            found.append(f"cut off: {text.get_text()!r}")
        boxes.append((text.get_text(), box.padded(-2)))
    if not boxes:
        found.append("it has no text at all")
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        if first.overlaps(second):
            found.append(f"{one!r} lies on {other!r}")
    return found
