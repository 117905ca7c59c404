"""How many times as fast as the usual way, and from which bandwidth on no longer: speed-up against bandwidth.

A strip under the picture shows where each arm is as fast as the baseline, with the interval.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import may_win
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.comparison import Comparison, CrossoverRow, compare_cells
from bwbench.results.analysis.crossover import Crossover, Scale, scale_of
from bwbench.results.analysis.grouping import BANDWIDTH_KEY
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.results import Results, once
from bwbench.results.figures import captions, lines
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.captions import span
from bwbench.results.figures.frame import lay_out, text_width_in
from bwbench.results.figures.marks import arm_handle, label_log_axis
from bwbench.results.figures.style import SMALL_PT, ArmStyle, arm_style

_INTERVAL_SHOWN = 3.0  # of an interval beyond all marks
_BESIDE_IN = 0.8  # of a narrow picture, that its axes do not get


class SpeedUp(AbstractFigure):
    """A line an arm; under it where each line crosses 1, with intervals."""

    name = "speedup"
    in_detail = True
    compares = frozenset({BANDWIDTH_KEY})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and a baseline beside another arm at two bandwidths or more."""
        why_not = captions.too_few_bandwidths(results)
        why_not = why_not or captions.without_times_to_target(results)
        if why_not is None and baseline_of(results) is None:
            return "no arm ran at two bandwidths"
        return why_not or (None if len(self.table(results)) else "no arm shares seeds and bandwidths with the baseline")

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth, with the crossovers of the arm in each."""
        baseline, comparison = compare_with_baseline(results)
        scale = scale_of(results.done)
        crossings = {row.algorithm: row.crossovers for row in comparison.crossovers}
        rows = []
        for row in comparison.rows:
            text = row.condition[BANDWIDTH_KEY]
            if text is None or row.ratio is None:
                continue
            bps, found = BANDWIDTH.parse(text), crossings.get(row.algorithm)
            parts = row.taken_apart
            crossed = [] if found is None else [vars(one) for one in found.found]
            rows.append({
                "arm": row.algorithm, "baseline": baseline, "bandwidth_bps": bps, "s_over_bt": scale.at(bps),
                "speedup": row.ratio.value, "low": row.ratio.low, "high": row.ratio.high, "bound": row.ratio.bound,
                **_factor("step_ratio", parts.step if parts else None),
                **_factor("samples_ratio", parts.samples if parts else None),
                "num": row.num, "num_censored": row.num_censored, "composed": row.composed,
                "host_bound": row.host_bound,
                "crossover": None if found is None else found.kind, "crossovers": crossed,
            })  # fmt: skip
        return pd.DataFrame(rows).astype({"low": float, "high": float}) if rows else pd.DataFrame(rows)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, (baseline, comparison) = self.table(results), compare_with_baseline(results)
        any_composed = table.groupby("arm")["composed"].transform("any")
        arms = lines.of_arms(table.assign(num_composed=any_composed * table["num"]), results, _mark)
        scale, named = scale_of(results.done), results.labels[baseline]
        strip = shown_crossovers(comparison.crossovers, arms)
        title = f"Speed-up over {named} in time to {captions.timed_target(results)}"
        setting = captions.setting_line(results, num_runs=table["num"], with_bandwidth=False)
        notes = [*_how_to_read(table, named, comparison), *results.notes]
        style = arm_style(baseline, results.roles[baseline])
        usual = arm_handle(style, f"{named} (baseline)")
        extra_in = (STRIP_ROW_IN * len(strip) + 0.3 if strip else 0.0) + (0.4 if scale.at(1.0) else 0.0)
        figure, axes = lines.framed(width_in, title, setting, notes, arms, [usual], extra_in)
        below = None
        if strip:
            grid = figure.add_gridspec(2, 1, height_ratios=[2.2, STRIP_ROW_IN * len(strip) + 0.06])
            axes.set_subplotspec(grid[0])
            below = figure.add_subplot(grid[1], sharex=axes)
        bandwidths = sorted(table["bandwidth_bps"].unique())
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhline(1.0, color=style.color, linewidth=1.2, linestyle=style.line, zorder=2.5)
        ends = lines.draw(figure, axes, arms, width_in)
        _finish(axes, table, named)
        lines.bandwidth_axis(axes, bandwidths)
        axes.set_xlim(bandwidths[0] / 1.25, bandwidths[-1] * 1.25)
        _scale_axis(axes, scale, width_in)
        if below is not None:
            lines.bandwidth_axis(below, bandwidths)
            axes.tick_params(labelbottom=False)
            axes.set_xlabel("")
            draw_strip(figure, below, strip, named)
        lines.thin_ticks(figure, axes if below is None else below, bandwidths)
        if lines.named_at_ends(arms, width_in):
            lines.name_ends(figure, axes, ends, [lines.Level(f"{named} (baseline)", 1.0, style.color, style.line)])
        return figure


def baseline_of(results: Results) -> str | None:
    """The arm that others are compared with: the first of ``BASELINES`` at two bandwidths, else the first of all."""
    cells = results.cells[results.cells["bandwidth_bps"].notna()]
    bandwidths = cells.groupby("arm")["bandwidth_bps"].nunique()
    able = [str(arm) for arm, num in bandwidths.items() if num > 1]
    ordered = [arm for arm in BASELINES if arm in able]
    ordered += sorted(arm for arm in able if may_win(results.roles[arm]))
    return next(iter(ordered), None)


def _factor(name: str, ratio: Ratio | None) -> Row:
    """A part of a ratio with its ends, as columns."""
    if ratio is None:
        return {name: math.nan, f"{name}_low": None, f"{name}_high": None, f"{name}_bound": ""}
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high, f"{name}_bound": ratio.bound}


@once
def compare_with_baseline(results: Results) -> tuple[str, Comparison]:
    """``baseline_of``, which there must be, and all arms against it."""
    baseline = baseline_of(results)
    assert baseline is not None
    return baseline, compare_cells(results.done, baseline)


def _mark(row: Mapping[Hashable, Any]) -> lines.Mark:
    ends = (row["low"], row["high"])
    return lines.Mark(row["bandwidth_bps"], row["speedup"], *ends, row["bound"], host_bound=row["host_bound"])


def _finish(axes: Axes, table: pd.DataFrame, baseline: str) -> None:
    low, high = axes.get_ylim()
    low = max(low, table["speedup"].min() / _INTERVAL_SHOWN)
    axes.set_ylim(min(low, 0.9), max(min(high, table["speedup"].max() * _INTERVAL_SHOWN), 1.1))
    axes.grid(True)
    label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=2.0)
    axes.set_ylabel(f"speed-up over {baseline} (times)")


def _scale_axis(axes: Axes, scale: Scale, width_in: float) -> None:
    """The same axis in terms of no machine, on top: S/(B·T)."""
    unit = scale.at(1.0)
    if unit is None:
        return

    def turned(value: Any) -> Any:
        with np.errstate(divide="ignore"):  # matplotlib tries 0 as well
            return unit / np.asarray(value, dtype=float)

    top = axes.secondary_xaxis("top", functions=(turned, turned))
    left, right = axes.get_xlim()
    label_log_axis(top.xaxis, unit / right, unit / left, length_in=max(1.0, width_in - _BESIDE_IN - 2.0))
    top.set_xlabel("S/(B·T): gradient on the link, in steps of computing", fontsize=SMALL_PT)
    top.tick_params(labelsize=SMALL_PT)


def _how_to_read(table: pd.DataFrame, baseline: str, comparison: Comparison) -> list[str]:
    words = [f"Time of {baseline} over time of the arm; above 1 the arm is faster."]
    several = "Marks: ratio of geometric means; whiskers: 95 % interval each (Welch's t on log time)."
    words.append(captions.on_repeats(table["num"], several))
    if (table["bound"] != "").any():
        words.append("Hollow with arrow: one of the two did not reach the target; a bound.")
    if comparison.crossovers:
        words.append("Strip: where lines and the bands between whiskers cross 1; arrows: open.")
    return [" ".join(words), *_without_crossover(comparison, baseline)]


def _without_crossover(comparison: Comparison, baseline: str) -> list[str]:
    """Which arms do not cross, and why: ``faster at all measured bandwidths: diloco, top-k``."""
    whys: dict[str, list[str]] = {}
    for row in comparison.crossovers:
        if not row.crossovers.found:
            why = row.crossovers.why.removesuffix(", and no trend in it")
            whys.setdefault(why, []).append(comparison.labels.get(row.algorithm, row.algorithm))
    parts = [f"{', '.join(sorted(arms))} ({why})" for why, arms in sorted(whys.items())]
    return [f"No crossover with {baseline}: {'; '.join(parts)}."] if parts else []


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


def shown_crossovers(rows: Sequence[CrossoverRow], arms: Sequence[lines.ArmLine]) -> list[StripRow]:
    """The arms that cross the baseline, from the lowest bandwidth up; among equals in the order of ``arms``."""
    by_arm = {row.algorithm: row for row in rows if row.crossovers.found}
    crossing = [
        StripRow(line.style, by_arm[line.arm].crossovers.found, _texts(by_arm[line.arm]))
        for line in arms
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
    look: Any = {"fontsize": SMALL_PT, "color": lines.readable(row.style.color)}
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
