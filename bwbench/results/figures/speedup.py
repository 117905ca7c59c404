"""How many times as fast as the usual way, and from which bandwidth on no longer: speed-up against bandwidth."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import may_win
from bwbench.results.analysis.comparison import Comparison, CrossoverRow, compare_cells
from bwbench.results.analysis.crossover import Scale, scale_of
from bwbench.results.analysis.grouping import BANDWIDTH_KEY
from bwbench.results.analysis.results import Results, once
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.crossover_strip import STRIP_ROW_IN, draw_strip, shown_crossovers
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.lines import (
    LineEnd,
    Mark,
    arm_lines,
    bandwidth_axis,
    draw_lines,
    lines_frame,
    name_ends,
    named_at_ends,
    thin_ticks,
)
from bwbench.results.figures.marks import arm_handle
from bwbench.results.figures.style import SMALL_PT, arm_style

_INTERVAL_SHOWN = 3.0  # of an interval beyond all marks
_BESIDE_IN = 0.8  # of a narrow picture, that its axes do not get


class SpeedUp(AbstractFigure):
    """A line an arm, paired by seed; under it where each line crosses 1, with intervals."""

    name = "speedup"
    summary = "speed-up over ddp against bandwidth, and where it ends"
    compares = frozenset({BANDWIDTH_KEY})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and a baseline beside another arm at two bandwidths or more."""
        why_not = captions.too_few_bandwidths(results)
        if why_not is None and results.times.empty:
            return "the cells have no target"
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
            crossed = [] if found is None else [vars(one) for one in found.found]
            rows.append({
                "arm": row.algorithm, "baseline": baseline, "bandwidth_bps": bps, "s_over_bt": scale.at(bps),
                "speedup": row.ratio.value, "low": row.ratio.low, "high": row.ratio.high, "bound": row.ratio.bound,
                "num": row.num_pairs, "num_censored": row.num_censored, "composed": row.composed,
                "crossover": None if found is None else found.kind, "crossovers": crossed,
            })  # fmt: skip
        return pd.DataFrame(rows).astype({"low": float, "high": float}) if rows else pd.DataFrame(rows)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, (baseline, comparison) = self.table(results), compare_with_baseline(results)
        any_composed = table.groupby("arm")["composed"].transform("any")
        lines = arm_lines(table.assign(num_composed=any_composed * table["num"]), results.roles, _mark)
        scale = scale_of(results.done)
        strip = shown_crossovers(comparison.crossovers, lines)
        title = f"Speed-up over {baseline} in time to {captions.target_words(results)}"
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]), with_bandwidth=False)
        notes = [*_how_to_read(table, baseline, comparison), *results.notes]
        style = arm_style(baseline, results.roles[baseline])
        usual = arm_handle(style, f"{baseline} (baseline)")
        extra_in = (STRIP_ROW_IN * len(strip) + 0.3 if strip else 0.0) + (0.4 if scale.at(1.0) else 0.0)
        figure, axes = lines_frame(width_in, title, setting, notes, lines, [usual], extra_in)
        below = None
        if strip:
            grid = figure.add_gridspec(2, 1, height_ratios=[2.2, STRIP_ROW_IN * len(strip) + 0.06])
            axes.set_subplotspec(grid[0])
            below = figure.add_subplot(grid[1], sharex=axes)
        bandwidths = sorted(table["bandwidth_bps"].unique())
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhline(1.0, color=style.color, linewidth=1.2, linestyle=style.line, zorder=2.5)
        ends = draw_lines(figure, axes, lines, width_in)
        _finish(axes, table, baseline)
        bandwidth_axis(axes, bandwidths)
        axes.set_xlim(bandwidths[0] / 1.25, bandwidths[-1] * 1.25)
        _scale_axis(axes, scale, width_in)
        if below is not None:
            bandwidth_axis(below, bandwidths)
            axes.tick_params(labelbottom=False)
            axes.set_xlabel("")
            draw_strip(figure, below, strip, baseline)
        thin_ticks(figure, axes if below is None else below, bandwidths)
        if named_at_ends(lines, width_in):
            name_ends(figure, axes, [*ends, LineEnd(None, 1.0, f"{baseline} (baseline)", style.color)])
        return figure


def baseline_of(results: Results) -> str | None:
    """The arm that others are compared with: the first of ``BASELINES`` at two bandwidths, else the first of all."""
    cells = results.cells[results.cells["bandwidth_bps"].notna()]
    bandwidths = cells.groupby("arm")["bandwidth_bps"].nunique()
    able = [str(arm) for arm, num in bandwidths.items() if num > 1]
    ordered = [arm for arm in BASELINES if arm in able]
    ordered += sorted(arm for arm in able if may_win(results.roles[arm]))
    return next(iter(ordered), None)


@once
def compare_with_baseline(results: Results) -> tuple[str, Comparison]:
    """``baseline_of``, which there must be, and all arms against it."""
    baseline = baseline_of(results)
    assert baseline is not None
    return baseline, compare_cells(results.done, baseline)


def _mark(row: Mapping[Hashable, Any]) -> Mark:
    return Mark(row["bandwidth_bps"], row["speedup"], row["low"], row["high"], row["bound"])


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
    words = [f"Time of {baseline} over time of the arm, paired by seed; above 1 the arm is faster."]
    several = "Marks: geometric mean; whiskers: 95 % interval (Student's t)."
    one = "One repeat an arm: no intervals; differences may be chance."
    words.append(captions.on_repeats(table["num"], several, one))
    if (table["bound"] != "").any():
        words.append("Hollow with arrow: one of the two did not reach the target; a bound.")
    if comparison.crossovers:
        words.append("Strip: where lines cross 1, with 95 % intervals; arrows: open.")
    return [" ".join(words), *_without_crossover(comparison.crossovers, baseline)]


def _without_crossover(rows: Sequence[CrossoverRow], baseline: str) -> list[str]:
    """Which arms do not cross, and why: ``faster at all measured bandwidths: diloco, top-k``."""
    whys: dict[str, list[str]] = {}
    for row in rows:
        if not row.crossovers.found:
            why = row.crossovers.why.removesuffix(", and no trend in it")
            whys.setdefault(why, []).append(row.algorithm)
    parts = [f"{', '.join(sorted(arms))} ({why})" for why, arms in sorted(whys.items())]
    return [f"No crossover with {baseline}: {'; '.join(parts)}."] if parts else []
