"""A strip under a picture over bandwidths: where each arm is as fast as the baseline, with the interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.base.units import BANDWIDTH
from bwbench.results.analysis.comparison import CrossoverRow
from bwbench.results.analysis.crossover import Crossover
from bwbench.results.figures.captions import span
from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.lines import ArmLine, readable
from bwbench.results.figures.style import SMALL_PT, ArmStyle

STRIP_ROW_IN = 0.135
_DIGITS = 3  # of a crossover bandwidth
_GAP_PT = 5.0
_HALO = [patheffects.withStroke(linewidth=2.4, foreground="white")]


@dataclass(frozen=True)
class StripRow:
    """One arm and its crossovers, rising; ``texts`` say them, longest first."""

    style: ArmStyle
    found: tuple[Crossover, ...]
    texts: tuple[str, ...]


def shown_crossovers(rows: Sequence[CrossoverRow], lines: Sequence[ArmLine]) -> list[StripRow]:
    """The arms that cross the baseline, from the lowest bandwidth up; among equals in the order of their ``lines``."""
    by_arm = {row.algorithm: row for row in rows if row.crossovers.found}
    crossing = [
        StripRow(line.style, by_arm[line.arm].crossovers.found, _texts(by_arm[line.arm]))
        for line in lines
        if line.arm in by_arm
    ]

    def place(row: StripRow) -> float:
        first = row.found[0]
        return next((end for end in (first.bandwidth_bps, first.low_bps, first.high_bps) if end is not None), math.inf)

    return sorted(crossing, key=place)


def draw_strip(figure: Figure, axes: Axes, rows: Sequence[StripRow], baseline: str) -> None:
    """A row an arm: its mark where the mean crosses, a whisker over the interval, an arrow where that is open."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_title(f"as fast as {baseline} at", loc="left", fontsize=SMALL_PT, pad=2)
    left, right = axes.get_xlim()
    for number, row in enumerate(rows):
        for crossover in row.found:
            _draw_crossover(axes, number, row.style, crossover, (left, right))
    axes.set_xlim(left, right)
    lay_out(figure)
    for number, row in enumerate(rows):
        _name_row(figure, axes, number, row)


def _draw_crossover(axes: Axes, y: float, style: ArmStyle, crossover: Crossover, limits: tuple[float, float]) -> None:
    low, high = _ends(crossover, limits)
    axes.plot([low, high], [y, y], color=style.color, linewidth=1.1, zorder=3, solid_capstyle="butt")
    for end, known, caret in ((low, crossover.low_bps, "<"), (high, crossover.high_bps, ">")):
        if known is not None:
            axes.plot(end, y, "|", color=style.color, markersize=4, zorder=3)
        elif crossover.bandwidth_bps is None or low != high:
            axes.plot(end, y, caret, color=style.color, markersize=3, markeredgewidth=0, zorder=3, clip_on=False)
    if crossover.bandwidth_bps is not None:
        axes.plot(crossover.bandwidth_bps, y, style.marker, color=style.color, markersize=4.5, zorder=4,
                  markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip


def _ends(crossover: Crossover, limits: tuple[float, float]) -> tuple[float, float]:
    """Where the whisker begins and ends; at the edge of the picture where the interval is open."""
    if crossover.bandwidth_bps is not None and crossover.low_bps is None and crossover.high_bps is None:
        return crossover.bandwidth_bps, crossover.bandwidth_bps  # one repeat: no interval at all
    low = limits[0] if crossover.low_bps is None else max(crossover.low_bps, limits[0])
    high = limits[1] if crossover.high_bps is None else min(crossover.high_bps, limits[1])
    return low, high


def _name_row(figure: Figure, axes: Axes, y: float, row: StripRow) -> None:
    """What the row says, right of its whisker where there is room, else left of it; shorter where there is not."""
    limits, box = axes.get_xlim(), axes.get_window_extent()
    ends = [end for crossover in row.found for end in (*_ends(crossover, limits), crossover.bandwidth_bps or limits[0])]
    first = min(end for crossover in row.found for end in _ends(crossover, limits))
    last = max(ends)
    before_in = math.log(first / limits[0]) / math.log(limits[1] / limits[0]) * box.width / figure.dpi - _GAP_PT / 72
    after_in = math.log(limits[1] / last) / math.log(limits[1] / limits[0]) * box.width / figure.dpi - _GAP_PT / 72
    look: Any = {"fontsize": SMALL_PT, "color": readable(row.style.color)}
    for text in row.texts:
        width_in = text_width_in(figure, text, SMALL_PT)
        if width_in <= max(before_in, after_in):
            break
    if width_in > max(before_in, after_in):  # the whisker takes it all: on it, away from the mark
        right = any((one.bandwidth_bps or limits[0]) < math.sqrt(limits[0] * limits[1]) for one in row.found)
        axes.annotate(text, (0.98 if right else 0.02, y), xycoords=axes.get_yaxis_transform(), va="center_baseline",
                      ha="right" if right else "left", path_effects=_HALO, zorder=5, **look)  # fmt: skip
        return
    after = after_in >= before_in or width_in <= after_in
    axes.annotate(text, (last if after else first, y), (_GAP_PT if after else -_GAP_PT, 0), va="center_baseline",
                  textcoords="offset points", ha="left" if after else "right", **look)  # fmt: skip


def _texts(row: CrossoverRow) -> tuple[str, ...]:
    """``ring-fp16 120 Mbit/s (95–160 Mbit/s)``, and shorter."""
    name = row.algorithm
    short = [
        _rate(one.bandwidth_bps) if one.bandwidth_bps is not None else _interval(one) for one in row.crossovers.found
    ]
    long = [
        f"{text} ({_interval(one)})" if one.bandwidth_bps is not None and one.low_bps and one.high_bps else text
        for text, one in zip(short, row.crossovers.found, strict=True)
    ]
    return tuple(dict.fromkeys([f"{name} {', '.join(long)}", f"{name} {', '.join(short)}", name]))


def _interval(crossover: Crossover) -> str:
    if crossover.low_bps is None or crossover.high_bps is None:
        return f"above {_rate(crossover.low_bps)}" if crossover.low_bps else f"below {_rate(crossover.high_bps)}"
    return span(_rate(crossover.low_bps), _rate(crossover.high_bps))


def _rate(bps: float | None) -> str:
    return BANDWIDTH.show(bps, _DIGITS) if bps else "all measured"
