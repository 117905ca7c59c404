"""A map of arms: a row an arm, a column a setting, and in each cell how far the arm is from the fastest one there.

Who may be the fastest stands out in the dark, in grey as well; whoever is behind has a number, and is the paler the
farther behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bwbench.results.analysis.best_set import BestSet
from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.style import FAINT, INK, NOTE_PT, PAGE_IN, SMALL_PT

ROW_IN = 0.19
LINE_IN = 0.1  # more for each further line of a name
_BEST = "#1d3f66"
_NEAR = "#c4d3e4"  # just behind; farther behind is whiter
_FAR = 10.0  # times, from which on a cell is white
_GAP_IN = 0.03  # between a text and the edge of its cell
_BETWEEN = 0.12  # of a column, between groups of them


@dataclass(frozen=True)
class MapCell:
    """One arm at one setting.

    Attributes:
        over: its time over that of the fastest; of an arm that did not arrive its limit over that.
        bound: it did not arrive: it is more than that.
        fitted: some of its repeats did not arrive, and its time is that of a censored fit.
        best: it may be the fastest, which is told from its repeats; ``untold``: nothing tells.
        races: it takes part; who does not has a number and no colour.
    """

    over: float
    bound: bool = False
    fitted: bool = False
    best: bool = False
    untold: bool = False
    races: bool = True

    @property
    def text(self) -> str:
        """``1``, ``1.3``, ``12``, ``>12``, ``~1.3``."""
        over = self.over
        plain = f"{over:.0f}" if over >= 9.95 else f"{over:.1f}" if over >= 0.95 else f"{over:.1g}"
        before = ">" if self.bound else "~" if self.fitted else ""
        return f"{before}{'1' if over == 1.0 else plain}"

    @property
    def fill(self) -> str:
        """Its colour."""
        if self.best:
            return _BEST
        if not self.races or self.untold:
            return "white"
        share = min(1.0, math.log(max(self.over, 1.0)) / math.log(_FAR))
        near, white = np.array(to_rgb(_NEAR)), np.ones(3)
        red, green, blue = near + share * (white - near)
        return to_hex((float(red), float(green), float(blue)))


@dataclass(frozen=True)
class Column:
    """A setting: what stands below it, and below it and its neighbours of the same group."""

    text: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """A row: an arm by ``key``, or the heading of those below where ``key`` is empty."""

    key: str
    text: str


def cells_of(race: BestSet) -> dict[str, MapCell]:
    """A cell an arm of those that race at one setting; none where no arm arrives."""
    if race.first is None:
        return {}
    first_s = race.times[race.first].value
    alone = len(race.times) == 1
    return {
        arm: MapCell(
            time.at_least / first_s,
            math.isinf(time.value),
            fitted=time.num_censored > 0,
            best=arm in race.members and arm not in race.untold and not (arm == race.first and _all_untold(race)),
            untold=not alone and (arm in race.untold or (arm == race.first and _all_untold(race))),
        )
        for arm, time in race.times.items()
    }


def _all_untold(race: BestSet) -> bool:
    """Whether there are others, and nothing tells any of them from the first."""
    return len(race.times) > 1 and len(race.untold) == len(race.times) - 1


def order_of(races: Sequence[BestSet]) -> list[str]:
    """The arms of all races, fastest first: by the mean log of how far each is behind where it ran."""
    logs: dict[str, list[float]] = {}
    for race in races:
        for arm, cell in cells_of(race).items():
            logs.setdefault(arm, []).append(math.log(cell.over))
        if race.first is None:
            for arm in race.times:
                logs.setdefault(arm, [])
    return sorted(logs, key=lambda arm: (math.fsum(logs[arm]) / len(logs[arm]) if logs[arm] else math.inf, arm))


def height_in(rows: Sequence[Row]) -> float:
    """What the rows take."""
    return sum(map(_height_in, rows))


def _height_in(row: Row) -> float:
    return ROW_IN + LINE_IN * row.text.count("\n")


def draw_map(
    figure: Figure, axes: Axes, rows: Sequence[Row], columns: Sequence[Column], cells: Mapping[tuple[str, int], MapCell]
) -> None:
    """Fill the axes.

    Args:
        cells: by the key of a row and the number of a column; those that are missing did not run.
    """
    heights = [_height_in(row) for row in rows]
    tops = [sum(heights[:number]) for number in range(len(rows))]
    lefts = _lefts(columns)
    axes.set_xlim(0, lefts[-1] + 1)
    axes.set_ylim(sum(heights), 0)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_yticks(
        [top + height / 2 for row, top, height in zip(rows, tops, heights, strict=True) if row.key],
        [row.text for row in rows if row.key],
        fontsize=SMALL_PT,
        linespacing=1.15,
    )
    axes.set_xticks([left + 0.5 for left in lefts], [column.text for column in columns], fontsize=SMALL_PT)
    lay_out(figure)
    width_in = axes.get_window_extent().width / figure.dpi / (lefts[-1] + 1)
    _thin_columns(figure, axes, columns, lefts, width_in)
    _name_groups(axes, columns, lefts)
    for row, top, height in zip(rows, tops, heights, strict=True):
        if not row.key:
            axes.annotate(row.text, (0, top + height / 2), (2, 0), textcoords="offset points", va="center",
                          fontsize=NOTE_PT, color=FAINT)  # fmt: skip
        for number, left in enumerate(lefts):
            cell = cells.get((row.key, number)) if row.key else None
            if row.key:
                _draw_cell(figure, axes, (left, top, height), cell, width_in)


def _lefts(columns: Sequence[Column]) -> list[float]:
    """Where each column begins, in widths of one."""
    left, found = 0.0, []
    for number, column in enumerate(columns):
        left += _BETWEEN if number and column.group != columns[number - 1].group else 0.0
        found.append(left)
        left += 1.0
    return found


def _thin_columns(
    figure: Figure, axes: Axes, columns: Sequence[Column], lefts: Sequence[float], width_in: float
) -> None:
    """Leave out names of columns that would touch their neighbours."""
    widest_in = max(text_width_in(figure, column.text, SMALL_PT) for column in columns) + 0.04
    every = max(1, math.ceil(widest_in / width_in))
    axes.set_xticks([left + 0.5 for left in lefts],
                    [column.text if number % every == 0 else "" for number, column in enumerate(columns)],
                    fontsize=SMALL_PT)  # fmt: skip


def _name_groups(axes: Axes, columns: Sequence[Column], lefts: Sequence[float]) -> None:
    """The name of each group under its columns."""
    for group, numbers in groupby(range(len(columns)), lambda number: columns[number].group):
        if group:
            its = [lefts[number] for number in numbers]
            axes.annotate(group, ((its[0] + its[-1] + 1) / 2, 0), (0, -13), xycoords=("data", "axes fraction"),
                          textcoords="offset points", ha="center", va="top", fontsize=SMALL_PT)  # fmt: skip


def _draw_cell(
    figure: Figure, axes: Axes, at: tuple[float, float, float], cell: MapCell | None, width_in: float
) -> None:
    left, top, height = at
    middle = (left + 0.5, top + height / 2)
    look: Any = {"ha": "center", "va": "center", "fontsize": SMALL_PT if figure.get_figwidth() >= PAGE_IN else NOTE_PT}
    if cell is None:
        axes.text(*middle, "·", color=FAINT, **look)
        return
    axes.add_patch(Rectangle((left, top), 1, height, facecolor=cell.fill, edgecolor="white", linewidth=0.8, zorder=1))
    if cell.untold:
        inset = 0.06 * height
        axes.add_patch(Rectangle((left + 0.06, top + inset), 0.88, height - 2 * inset, facecolor="none",
                                 edgecolor=_BEST, linewidth=0.7, zorder=2))  # fmt: skip
    if text_width_in(figure, cell.text, look["fontsize"], bold=cell.best) + _GAP_IN <= width_in:
        color = "white" if cell.best else INK if cell.races else FAINT
        weight, style = "bold" if cell.best else "normal", "normal" if cell.races else "italic"
        axes.text(*middle, cell.text, color=color, weight=weight, style=style, zorder=3, **look)


def how_to_read(cells: Mapping[tuple[str, int], MapCell], where: str) -> str:
    """What numbers and colours mean.

    Args:
        where: the column of a map in words: ``on that link``.
    """
    words = [f"Numbers: time over the shortest {where}."]
    if any(cell.best for cell in cells.values()):
        words.append(
            "Dark: may be the fastest, whatever the number; with 95 % a column the fastest is among those "
            "(one-sided Welch's t on log time against the first, Bonferroni)."
        )
    if not all(cell.races for cell in cells.values()):
        words.append("In italics: for comparison, not ranked.")
    if any(cell.untold for cell in cells.values()):
        words.append("Framed: too few repeats to tell.")
    if any(cell.bound for cell in cells.values()):
        words.append(">: not reached in time.")
    if any(cell.fitted and not cell.bound for cell in cells.values()):
        words.append("~: of a censored log-normal fit, since some repeats did not reach the target.")
    return " ".join(words)


def on_empty(races: Sequence[BestSet], *, missing: bool) -> list[str]:
    """What a cell without a number says, where there is one.

    Args:
        missing: whether any is.
    """
    nobody = any(race.first is None for race in races)
    return [f"·: did not run there{', or nobody arrived' if nobody else ''}."] if missing else []
