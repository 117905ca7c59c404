"""Lines over the bandwidth of the link, one an arm: drawn alike in every figure, and named so that many stay readable.

Across them run levels: arms that no link concerns, and ideals.

Lines are named at their right ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import HEADROOM, REFERENCE
from bwbench.results.figures.captions import arm_label
from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.marks import draw_whiskers, host_bound_look, spread
from bwbench.results.figures.style import PAGE_IN, SMALL_PT, TEXT_PT, ArmStyle, arm_style

_CROWD = 4  # lines in a narrow picture
_LABEL_GAP_PT = 14.0
_DODGE = 0.012  # decades between neighbouring arms, so that their intervals do not hide each other
_DODGE_SHARE = 0.4  # of the smallest gap between two bandwidths: a mark must still belong to its bandwidth
_DOTS_PT = 5.0  # left of the mark, which would hide them
_TICK_GAP_IN = 0.05


@dataclass(frozen=True)
class Mark:
    """One arm at one bandwidth.

    Attributes:
        low, high: its interval; NaN where there is none.
        repeats: value of each repeat.
        host_bound: drawn hollow with a dot in it.
    """

    bandwidth_bps: float
    value: float
    low: float = math.nan
    high: float = math.nan
    repeats: tuple[float, ...] = ()
    host_bound: bool = False


@dataclass(frozen=True)
class ArmLine:
    """The marks of one arm, rising in bandwidth, and its name in the picture."""

    arm: str
    style: ArmStyle
    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class LineEnd:
    """Where a line ends on the right (``x`` None: at the edge), and how it is named there."""

    x: float | None
    y: float
    label: str
    color: str


def of_arms(
    table: pd.DataFrame,
    roles: Mapping[str, str],
    label: Callable[[str, pd.DataFrame], str],
    mark: Callable[[dict[Hashable, Any]], Mark],
) -> list[ArmLine]:
    """A line an arm, the uppermost at the slowest link first, as they stand there.

    Args:
        table: with arm and bandwidth_bps.
        label: the name of an arm, by its rows.
        mark: what is drawn of one of its rows.
    """
    lines = []
    for arm, rows in table.groupby("arm"):
        marks = tuple(mark(row) for row in rows.sort_values("bandwidth_bps").to_dict("records"))
        lines.append(ArmLine(str(arm), arm_style(str(arm), roles[str(arm)]), label(str(arm), rows), marks))
    return sorted(lines, key=lambda line: (line.marks[0].bandwidth_bps, -line.marks[0].value, line.arm))


def _dodges(lines: Sequence[ArmLine]) -> list[float]:
    """For each line the factor by which its marks are moved along the axis of bandwidths."""
    places = sorted({mark.bandwidth_bps for line in lines for mark in line.marks})
    gap = min((math.log10(high / low) for low, high in pairwise(places)), default=1.0)
    pitch = min(_DODGE, _DODGE_SHARE * gap / max(1, len(lines)))
    return [10 ** (pitch * (number - (len(lines) - 1) / 2)) for number in range(len(lines))]


def draw(figure: Figure, axes: Axes, lines: Sequence[ArmLine], width_in: float) -> list[LineEnd]:
    """Draw all arms; returns where each of them ends."""
    crowded = width_in < PAGE_IN and len(lines) > _CROWD
    return [
        _draw_line(figure, axes, line, dodge, crowded=crowded)
        for line, dodge in zip(lines, _dodges(lines), strict=True)
    ]


def _draw_line(figure: Figure, axes: Axes, line: ArmLine, dodge: float, *, crowded: bool) -> LineEnd:
    """``crowded``: smaller marks, and repeats on the whisker instead of beside it."""
    style = line.style
    x, y = [mark.bandwidth_bps * dodge for mark in line.marks], [mark.value for mark in line.marks]
    size = 3.8 if crowded else 5.0
    axes.plot(x, y, color=style.color, linestyle=style.line, linewidth=1.0 if crowded else 1.4, zorder=3)
    full = {"marker": style.marker, "markersize": size, "color": style.color, "markeredgecolor": "white",
            "markeredgewidth": 0.4, "linestyle": "none"}  # fmt: skip
    dotted = host_bound_look(style.marker, 4.4 if crowded else 5.6, style.color)
    for is_dotted, look in ((False, full), (True, dotted)):
        places = [(at, value) for at, value, mark in zip(x, y, line.marks, strict=True) if mark.host_bound is is_dotted]
        if places:
            axes.plot(*zip(*places, strict=True), zorder=4, **look)
    whiskers = [(mark.bandwidth_bps * dodge, mark.low, mark.high) for mark in line.marks if not math.isnan(mark.low)]
    if whiskers:
        draw_whiskers(axes, whiskers, color=style.color, linewidth=0.7 if crowded else 0.9,
                      markersize=2.6 if crowded else 4)  # fmt: skip
    _draw_repeats(figure, axes, line, dodge, crowded=crowded)
    return LineEnd(x[-1], y[-1], line.label, style.color)


def _draw_repeats(figure: Figure, axes: Axes, line: ArmLine, dodge: float, *, crowded: bool) -> None:
    """Every repeat as a small dot left of its mark; in a crowd on the whisker."""
    shift_pt = 0.0 if crowded else -_DOTS_PT
    beside = axes.transData + ScaledTranslation(shift_pt / 72, 0, figure.dpi_scale_trans)
    several = [mark for mark in line.marks if len(mark.repeats) > 1]  # else the mark says it all
    places = [(mark.bandwidth_bps * dodge, value) for mark in several for value in mark.repeats]
    if places:
        axes.plot(*zip(*places, strict=True), marker="o", markersize=1.6 if crowded else 2.2, color=line.style.color,
                  linestyle="none", markeredgewidth=0, transform=beside, zorder=2.5 if crowded else 3)  # fmt: skip


def bandwidth_axis(axes: Axes, bandwidths: Sequence[float]) -> None:
    """A logarithmic axis with a tick at every bandwidth that was measured; ``thin_ticks`` comes after the layout."""
    scale = next(name for name in reversed(BANDWIDTH.output) if BANDWIDTH.factors[name] <= max(bandwidths[0], 1.0))
    factor = BANDWIDTH.factors[scale]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(bandwidths)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    axes.set_xlabel(f"bandwidth of the link ({scale})")


def thin_ticks(
    figure: Figure, axes: Axes, bandwidths: Sequence[float], above: Mapping[float, str] | None = None
) -> None:
    """Leave the labels out that would touch their neighbours, or whose label ``above`` would; powers of ten stay."""
    lay_out(figure)
    left, right = axes.get_xlim()
    inches = axes.get_window_extent().width / figure.dpi / math.log10(right / left)
    write = axes.xaxis.get_major_formatter()
    kept: list[tuple[float, float]] = []
    labelled = []
    for bps in sorted(bandwidths, key=lambda bps: (not math.isclose(math.log10(bps) % 1.0, 0.0, abs_tol=1e-9), bps)):
        widest = max(
            text_width_in(figure, write(bps), TEXT_PT), text_width_in(figure, (above or {}).get(bps, ""), SMALL_PT)
        )
        at, half = math.log10(bps) * inches, (widest + _TICK_GAP_IN) / 2
        if all(abs(at - other) >= half + width for other, width in kept):
            kept.append((at, half))
            labelled.append(bps)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value) if value in labelled else ""))


def name_ends(
    figure: Figure,
    axes: Axes,
    of_lines: Sequence[LineEnd],
    levels: Sequence[Level] = (),
    size_pt: float = TEXT_PT,
    gap_pt: float = _LABEL_GAP_PT,
) -> None:
    """Every line and level is named at its right end, ``gap_pt`` off the axes; names that touch are moved apart."""
    ends = [*of_lines, *(LineEnd(None, level.y, level.name, level.color) for level in levels)]
    lay_out(figure)
    height_pt = axes.get_window_extent().height / figure.dpi * 72
    upwards = axes.transScale + axes.transLimits  # to shares of the axes, whatever their scale
    wanted = [float(upwards.transform((axes.get_xlim()[0], end.y))[1]) * height_pt for end in ends]
    heights = [size_pt * (1.25 + 1.1 * end.label.count("\n")) for end in ends]
    for at, want, end in zip(spread(wanted, heights, 0.0, height_pt), wanted, ends, strict=True):
        anchor = axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y)))[0] if end.x else 1.0
        beside = ScaledTranslation(gap_pt / 72, (at - want) / 72, figure.dpi_scale_trans)
        line: Any = {"arrowstyle": "-", "color": end.color, "linewidth": 0.6, "shrinkA": 0,
                     "shrinkB": 3 if end.x else 0, "relpos": (0, 0.5)}  # fmt: skip
        axes.annotate(end.label, (anchor, want / height_pt), (1, want / height_pt), xycoords="axes fraction",
                      textcoords=axes.transAxes + beside, va="center", fontsize=size_pt, color=readable(end.color),
                      linespacing=1.0, arrowprops=line, annotation_clip=False)  # fmt: skip


def readable(color: str) -> str:
    """Light colours make poor letters; names in them are written darker, and their line can still be told by it."""
    if color not in ("#f0e442", "#e69f00", "#cc79a7", "#56b4e9", "#44aa99", "#999933"):
        return color
    red, green, blue = (0.55 * share for share in to_rgb(color))
    return to_hex((red, green, blue))


_LIMITS = {REFERENCE: "one node alone", HEADROOM: "computing alone"}  # no link concerns them


@dataclass(frozen=True)
class Level:
    """One horizontal line.

    Attributes:
        low, high: its interval, drawn as a band; NaN where there is none.
        dots: its repeats, drawn at the left edge.
    """

    name: str
    y: float
    color: str
    line: Any
    low: float = math.nan
    high: float = math.nan
    dots: tuple[float, ...] = ()


def limit_name(label: str, arm: str, role: str) -> str:
    """A label of an arm, in which its name says what it is a limit of: ``one node alone (single)``."""
    return label.replace(arm_label(arm, role), f"{_LIMITS[role]} ({arm})")


def draw_level(axes: Axes, level: Level) -> None:
    """The line across the picture, its band and its dots."""
    axes.axhline(level.y, color=level.color, linestyle=level.line, linewidth=1.1, zorder=2)
    if not math.isnan(level.low):
        axes.axhspan(level.low, level.high, color=level.color, alpha=0.1, linewidth=0)
    if len(level.dots) > 1:
        axes.plot([0.012] * len(level.dots), level.dots, "o", transform=axes.get_yaxis_transform(), markersize=2.2,
                  color=level.color, markeredgewidth=0, zorder=3)  # fmt: skip
