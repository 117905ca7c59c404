"""What every figure has around its axes: title, setting, notes at the foot; and text that fits into its width."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D

from bwbench.results.figures.style import FAINT, INK, NOTE_PT, SMALL_PT, TITLE_PT

_MARGIN_IN = 0.06
_FOOT_GAP_IN = 0.1
_LEGEND_ROW_IN = 0.13  # of SMALL_PT text with its spacing
_COLUMN_GAP = 1.3  # between columns of the legend, in font sizes
_MOST_COLUMNS = 5
_LEADING = 1.32  # line pitch in font sizes
_PT_PER_IN = 72.0
_LETTER_IN = 0.056  # mean width of SMALL_PT text
_HANDLE_IN = 0.42  # of a legend's entry, with the gaps beside it


_SAID: ContextVar[tuple[str, ...]] = ContextVar("_SAID", default=())


@contextmanager
def said_elsewhere(notes: Collection[str]) -> Iterator[None]:
    """Notes that are among these, or begin like one of them (``†``), are left out meanwhile."""
    token = _SAID.set(tuple(notes))
    try:
        yield
    finally:
        _SAID.reset(token)


def _is_said(note: str) -> bool:
    return note.startswith(_SAID.get())


def framed_axes(
    width_in: float,
    body_in: float,
    title: str,
    setting: str,
    notes: Sequence[str],
    legend: Sequence[Artist] = (),
    legend_columns: int | None = None,
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes under ``title``, ``setting`` and ``legend``, and above ``notes``.

    Args:
        width_in: width of the figure.
        body_in: height left for axes and tick labels; text comes on top of it.
        legend: labelled artists, shown row by row under the title, in ``legend_columns``; None takes as many as fit.
    """
    figure = Figure(figsize=(width_in, body_in), layout="constrained")
    FigureCanvasAgg(figure)
    text_in = width_in - 2 * _MARGIN_IN
    blocks = [
        (wrap(figure, title, TITLE_PT, text_in, bold=True), TITLE_PT, INK, "bold"),
        (wrap(figure, setting, SMALL_PT, text_in), SMALL_PT, FAINT, "normal"),
    ]
    foot = [line for note in notes if not _is_said(note) for line in wrap(figure, note, NOTE_PT, text_in)]
    has_lines = any(isinstance(entry, Line2D) and entry.get_linestyle() != "None" for entry in legend)
    handle = 3.2 if has_lines else 1.1  # a line needs room to show its dashes
    columns = legend_columns or _columns_that_fit(figure, legend, handle, text_in)
    legend_rows = -(-len(legend) // columns)
    legend_in = legend_rows * _LEGEND_ROW_IN + 0.06 if legend_rows else 0.0
    head_in = _MARGIN_IN + sum(_height_in(len(lines), size) for lines, size, _, _ in blocks) + 0.04 + legend_in
    foot_in = _MARGIN_IN + _FOOT_GAP_IN + _height_in(len(foot), NOTE_PT) if foot else _MARGIN_IN
    height_in = head_in + body_in + foot_in
    figure.set_size_inches(width_in, height_in)
    top_in = height_in - _MARGIN_IN
    for lines, size, color, weight in blocks:
        _write(figure, lines, top_in, size, color, weight)
        top_in -= _height_in(len(lines), size)
    if legend:
        corner = (_MARGIN_IN / width_in, (top_in - 0.05) / height_in)
        # matplotlib fills a legend column by column, the first ones fuller; readers go row by row.
        by_row = [legend[index] for column in range(columns) for index in range(column, len(legend), columns)]
        figure.legend(handles=by_row, loc="upper left", bbox_to_anchor=corner,
                      ncols=columns, fontsize=SMALL_PT, handlelength=handle, handleheight=0.9,
                      columnspacing=_COLUMN_GAP, labelspacing=0.35, borderpad=0,
                      borderaxespad=0).set_in_layout(False)  # fmt: skip
    if foot:
        _write(figure, foot, foot_in - _FOOT_GAP_IN, NOTE_PT, FAINT, "normal")
    engine = figure.get_layout_engine()
    assert engine is not None
    rect = (0.0, foot_in / height_in, 1.0, body_in / height_in)
    engine.set(rect=rect, w_pad=_MARGIN_IN, h_pad=_MARGIN_IN)  # type: ignore[call-arg]
    return figure, figure.add_subplot()


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
    """As ``framed_axes``, with ``shape`` (rows, columns) of axes; ``share``: matplotlib's sharex and sharey."""
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


def panel_title(axes: Axes, text: str) -> None:
    """What tells this panel from its neighbours, small and on the left above it."""
    axes.set_title(text, loc="left", fontsize=SMALL_PT, pad=3)


def _columns_that_fit(figure: Figure, legend: Sequence[Artist], handle: float, width_in: float) -> int:
    """As many columns as the entries leave room for, each as wide as its own longest entry."""
    # the handle, the gap after it, the gap between columns
    beside_in = (handle + 0.8 + _COLUMN_GAP) * SMALL_PT / _PT_PER_IN
    widths = [text_width_in(figure, str(entry.get_label()), SMALL_PT) + beside_in for entry in legend]
    for columns in range(min(len(legend), _MOST_COLUMNS), 1, -1):
        if sum(max(widths[column::columns]) for column in range(columns)) <= width_in:
            return columns
    return 1


def wrap(figure: Figure, text: str, size_pt: float, width_in: float, *, bold: bool = False) -> list[str]:
    """``text`` in lines that fit into ``width_in``; breaks at `` · `` before it breaks at blanks."""
    lines: list[str] = []
    for clause in re.split("(?<= ·) ", text):
        words = [clause] if _fits(figure, clause, size_pt, width_in, bold=bold) else re.split(" (?!%)", clause)
        for word in words:
            joined = f"{lines[-1]} {word}" if lines else word
            if lines and _fits(figure, joined, size_pt, width_in, bold=bold):
                lines[-1] = joined
            else:
                lines.append(word)
    return [line.removesuffix(" ·") for line in lines]


def lay_out(figure: Figure) -> None:
    """Give the axes their places, so that their sizes are known, in a part of the time that drawing takes."""
    engine = figure.get_layout_engine()
    if engine is not None:  # a figure of a plugin may do without
        engine.execute(figure)


def text_width_in(figure: Figure, text: str, size_pt: float, *, bold: bool = False) -> float:
    """Width of one line of text as it will be drawn."""
    return _text_width_px(text, size_pt, bold=bold, dpi=figure.dpi) / figure.dpi


@functools.lru_cache(maxsize=10_000)  # pictures of one experiment say much the same
def _text_width_px(text: str, size_pt: float, *, bold: bool, dpi: float) -> float:
    renderer: Any = RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]
    font = FontProperties(size=size_pt, weight="bold" if bold else "normal")
    width, _, _ = renderer.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def _fits(figure: Figure, text: str, size_pt: float, width_in: float, *, bold: bool) -> bool:
    return text_width_in(figure, text, size_pt, bold=bold) <= width_in


def _height_in(num_lines: int, size_pt: float) -> float:
    return num_lines * size_pt * _LEADING / _PT_PER_IN


def _write(figure: Figure, lines: Sequence[str], top_in: float, size_pt: float, color: str, weight: str) -> None:
    width_in, height_in = figure.get_size_inches()
    for number, line in enumerate(lines):
        y = (top_in - _height_in(number, size_pt)) / height_in
        figure.text(_MARGIN_IN / width_in, y, line, fontsize=size_pt, color=color, weight=weight, va="top")  # fmt: skip
