"""Below which bandwidth does the method start to matter: time to accuracy against bandwidth, a line an arm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETUP
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from bwbench.analysis.results import Results
from bwbench.analysis.statistics import Arrival, estimate
from bwbench.analysis.tables import arrivals_by_seed, arrivals_over_bandwidths
from bwbench.figures import captions
from bwbench.figures.base import AbstractFigure
from bwbench.figures.frame import framed_axes
from bwbench.figures.labels import label_log_axis, spread
from bwbench.figures.style import INK, PAGE_IN, TEXT_PT, arm_style
from bwbench.units import BANDWIDTH

LIMITS = ("single", "no-communication")  # no link concerns them: drawn across, as what there is to gain or to lose
_LABEL_GAP_PT = 14.0
_DOTS_PT = 5.0  # left of the mark, which would hide them
_INTERVAL_SHOWN = 4.0  # of an interval beyond all marks; at n = 2 it may span decades
_ARROW_IN = 0.085  # between censored arms at one bandwidth
_DODGE = 0.012  # decades between neighbouring arms, so that their intervals do not hide each other


@dataclass(frozen=True)
class _End:
    """Where a line ends on the right (``x`` None: at the edge), and how it is named there."""

    x: float | None
    y: float
    label: str
    color: str


class TimeToAccuracyByBandwidth(AbstractFigure):
    """Log-log lines with intervals; one node alone and a free network as horizontal limits."""

    name = "bandwidth"
    summary = "time to accuracy against bandwidth"
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and one arm at two bandwidths or more."""
        if not results.done:
            return "no cell is done"
        shaped = [bps for bps in results.bandwidths if bps is not None]
        if len(shaped) < 2:
            return f"only one bandwidth ({BANDWIDTH.format(shaped[0])})" if shaped else "the link is unshaped"
        return "the cells have no target" if results.times.empty else None

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth."""
        return results.times

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        counts = captions.num_runs(table["num"])
        setting = captions.setting_line(results, num_runs=counts, with_bandwidth=False)
        title = f"Time to {captions.target_words(results)} against bandwidth"
        wide = width_in >= PAGE_IN
        body_in = 3.3 if wide else 2.9
        figure, axes = framed_axes(width_in, body_in, title, setting, [*_how_to_read(table), *results.notes])
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(LIMITS)]
        unit = captions.time_unit(float(table["at_least_s"].max()))
        bandwidths = sorted(shaped["bandwidth_bps"].unique())
        arms = sorted(shaped["arm"].unique())
        ends: list[_End] = []
        for number, arm in enumerate(arms):
            dodge = 10 ** (_DODGE * (number - (len(arms) - 1) / 2))
            ends.append(_draw_arm(axes, shaped[shaped["arm"] == arm], str(arm), dodge, unit))
            for bandwidth, part in results.cells[results.cells["arm"] == arm].groupby("bandwidth_bps"):
                repeats = list(arrivals_by_seed(part).values())
                _draw_repeats(figure, axes, float(str(bandwidth)) * dodge, repeats, arm_style(str(arm)).color, unit)
        leftmost = _draw_censored(axes, shaped, unit, width_in)
        ends += [end for arm in LIMITS if (end := _draw_limit(axes, results, arm, unit)) is not None]
        _finish(axes, bandwidths, leftmost, table["at_least_s"] / unit.seconds, unit)
        _labels(figure, axes, ends)
        return figure


def _draw_arm(axes: Axes, rows: pd.DataFrame, arm: str, dodge: float, unit: captions.TimeUnit) -> _End:
    """One arm's line; returns where it ends on the right, its name and its colour."""
    style = arm_style(arm)
    rows = rows.sort_values("bandwidth_bps")
    x, y = rows["bandwidth_bps"] * dodge, rows["at_least_s"] / unit.seconds
    reached = ~rows["time_s"].map(math.isinf)
    axes.plot(x[reached], y[reached], color=style.color, linestyle=style.line, linewidth=1.4, zorder=3)
    axes.plot(x[reached], y[reached], style.marker, color=style.color, markersize=5, zorder=4,
              markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip
    for at, row in zip(x, rows.to_dict("records"), strict=True):
        if not math.isinf(row["time_s"]) and not math.isnan(row["low_s"]):
            ends = [row["low_s"] / unit.seconds, row["high_s"] / unit.seconds]
            axes.plot([at, at], ends, color=style.color, linewidth=0.9, marker="_", markersize=4, zorder=3)
    label = captions.arm_label(arm, rows["num_composed"].sum(), rows["num"].sum())
    return _End(float(x.iloc[-1]), float(y.iloc[-1]), label, style.color)


def _draw_repeats(
    figure: Figure, axes: Axes, x: float, repeats: list[Arrival], color: str, unit: captions.TimeUnit
) -> None:
    """Every repeat as a small dot left of the arm's mark, those that were given up as a caret at their limit."""
    num_given_up = sum(1 for repeat in repeats if repeat.time_s is None)
    if len(repeats) == 1 or num_given_up == len(repeats):
        return  # the mark, or the arrow, says it all
    beside = axes.transData + ScaledTranslation(-_DOTS_PT / 72, 0, figure.dpi_scale_trans)
    for repeat in repeats:
        marker: Any = "o" if repeat.time_s is not None else CARETUP
        axes.plot(x, repeat.at_least / unit.seconds, marker=marker, markersize=2.2, color=color, markeredgewidth=0,
                  transform=beside, zorder=3)  # fmt: skip


def _draw_censored(axes: Axes, shaped: pd.DataFrame, unit: captions.TimeUnit, width_in: float) -> float:
    """Arrows upwards from the limit, side by side: these arms take longer. Returns where the axis must begin."""
    bandwidths = sorted(shaped["bandwidth_bps"].unique())
    decades_per_in = math.log10(bandwidths[-1] / bandwidths[0]) / (width_in - 2.0)  # about 2 in beside the axes
    nearest = min(math.log10(high / low) for low, high in zip(bandwidths, bandwidths[1:], strict=False))
    leftmost = math.inf
    for _, rows in shaped[shaped["time_s"].map(math.isinf)].groupby("bandwidth_bps"):
        pitch = min(_ARROW_IN * decades_per_in, 0.8 * nearest / len(rows))
        for number, row in enumerate(rows.sort_values("arm").to_dict("records")):
            style = arm_style(row["arm"])
            x = row["bandwidth_bps"] * 10 ** (pitch * (number - (len(rows) - 1) / 2))
            leftmost = min(leftmost, x / 10**pitch)
            y = row["at_least_s"] / unit.seconds
            axes.plot(x, y, style.marker, markersize=4.5, markerfacecolor="white", markeredgecolor=style.color,
                      markeredgewidth=0.9, zorder=5)  # fmt: skip
            arrow: Any = {"arrowstyle": "<|-", "color": style.color, "shrinkA": 0, "shrinkB": 2.5, "linewidth": 1.0,
                          "mutation_scale": 7}  # fmt: skip
            axes.annotate("", (x, y), (0, 15), textcoords="offset points", arrowprops=arrow, zorder=5)
    return leftmost


def _draw_limit(axes: Axes, results: Results, arm: str, unit: captions.TimeUnit) -> _End | None:
    """A horizontal line for an arm that no link concerns, with its interval as a band; each seed counts once."""
    cells = results.cells[results.cells["arm"] == arm]
    arrivals = list(arrivals_over_bandwidths(cells).values())
    if not arrivals:
        return None
    style, centre = arm_style(arm), estimate(arrivals)
    level = centre.at_least / unit.seconds
    axes.axhline(level, color=style.color, linestyle=style.line, linewidth=1.1, zorder=2)
    if centre.low is not None and centre.high is not None:
        axes.axhspan(centre.low / unit.seconds, centre.high / unit.seconds, color=style.color, alpha=0.1, linewidth=0)
    if len(arrivals) > 1:
        levels = [arrival.at_least / unit.seconds for arrival in arrivals]
        axes.plot([0.012] * len(levels), levels, "o", transform=axes.get_yaxis_transform(), markersize=2.2,
                  color=style.color, markeredgewidth=0, zorder=3)  # fmt: skip
    label = captions.arm_label(arm, sum(map(bool, cells["composed"])), len(cells))
    return _End(None, level, f"{label}, not reached" if math.isinf(centre.value) else label, style.color)


def _finish(axes: Axes, bandwidths: list[float], leftmost: float, levels: pd.Series, unit: captions.TimeUnit) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True)
    axes.set_xlim(min(bandwidths[0] / 1.3, leftmost), bandwidths[-1] * 1.15)
    low, high = axes.get_ylim()
    low, high = max(low, levels.min() / _INTERVAL_SHOWN), min(high, levels.max() * _INTERVAL_SHOWN)
    axes.set_ylim(low, high * 1.15)
    scale = next(name for name in reversed(BANDWIDTH.output) if BANDWIDTH.factors[name] <= max(bandwidths[0], 1.0))
    factor = BANDWIDTH.factors[scale]
    axes.xaxis.set_major_locator(FixedLocator(bandwidths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=2.5)
    axes.set_xlabel(f"bandwidth of the link ({scale})")
    axes.set_ylabel(f"training time to target ({unit.symbol})")


def _labels(figure: Figure, axes: Axes, ends: list[_End]) -> None:
    """Every line is named at its right end; names that would overlap are moved apart."""
    figure.draw_without_rendering()
    height_pt = axes.get_window_extent().height / figure.dpi * 72
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    wanted = [(math.log10(end.y) - low) / (high - low) * height_pt for end in ends]
    for at, want, end in zip(spread(wanted, TEXT_PT * 1.25, 0.0, height_pt), wanted, ends, strict=True):
        anchor = axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y)))[0] if end.x else 1.0
        beside = ScaledTranslation(_LABEL_GAP_PT / 72, (at - want) / 72, figure.dpi_scale_trans)
        line: Any = {"arrowstyle": "-", "color": end.color, "linewidth": 0.6, "shrinkA": 0,
                     "shrinkB": 3 if end.x else 0, "relpos": (0, 0.5)}  # fmt: skip
        axes.annotate(end.label, (anchor, want / height_pt), (1, want / height_pt), xycoords="axes fraction",
                      textcoords=axes.transAxes + beside, va="center", fontsize=TEXT_PT, color=_readable(end.color),
                      arrowprops=line, annotation_clip=False)  # fmt: skip


def _readable(color: str) -> str:
    """Light colours make poor letters; names in them are written in ink instead."""
    return INK if color in ("#f0e442", "#e69f00", "#cc79a7", "#56b4e9") else color


def _how_to_read(table: pd.DataFrame) -> list[str]:
    words = []
    if (table["num"] > 1).any():
        words.append(
            "Dots: repeats. Marks: geometric mean; whiskers and bands: 95 % interval (Student's t on log time)."
        )
    else:
        words.append("One repeat an arm: no intervals; differences may be chance.")
    if (table["num_censored"] > 0).any():
        words.append("Hollow with arrow: target not reached within the training limit by the median repeat.")
    if (table["bandwidth_bps"].isna() & ~table["arm"].isin(LIMITS)).any():
        words.append("Runs on an unshaped link are not shown.")
    return [" ".join(words)]
