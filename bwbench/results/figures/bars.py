"""An arm a row: who reached the target first, and was it worth several nodes; and where the time of a step goes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bwbench.methods.roles import REFERENCE
from bwbench.records.schema import PARTS
from bwbench.results.analysis.results import Results, arrivals_by_seed
from bwbench.results.analysis.statistics import Arrival
from bwbench.results.analysis.trial import PART_NAMES
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes, lay_out, text_width_in
from bwbench.results.figures.marks import label_log_axis
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, PART_COLORS, SMALL_PT, TEXT_PT, arm_style

LOG_FROM_RATIO = 20.0  # beyond it bars would vanish; on a log axis points stand in for bars, which have no zero there
_ROW_IN = 0.31
_MANY = 8  # arms, above which rows are lower
_MANY_ROW_IN = 0.27
_BESIDE_IN = 2.3  # names on the left, figures on the right
_HALO = [patheffects.withStroke(linewidth=2.4, foreground="white")]  # a whisker must show on a black bar too


class TimeToAccuracy(AbstractFigure):
    """A bar an arm, fastest on top, with every repeat, its interval, and the speed-up over one node alone."""

    name = "time-to-accuracy"

    def applies(self, results: Results) -> str | None:
        """Needs a target and one cell that is done, of nodes that have times."""
        return captions.without_times_to_target(results)

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm."""
        return results.times.sort_values(["time_s", "at_least_s", "arm"], kind="stable").reset_index(drop=True)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        table["role"] = table["arm"].map(results.roles)
        table["label"] = table["arm"].map(results.labels)
        rows = table.to_dict("records")
        setting = captions.setting_line(results, num_runs=table["num"])
        title = f"Time to {captions.timed_target(results)}"
        body_in = 0.75 + (_ROW_IN if len(rows) <= _MANY else _MANY_ROW_IN) * len(rows)
        figure, axes = framed_axes(width_in, body_in, title, setting, [*_how_to_read(results, table), *results.notes])
        times, single = table["at_least_s"], table[table["role"] == REFERENCE]
        alone = len(single) == 1 and len(table) > 1 and not math.isinf(single.iloc[0]["time_s"])
        logarithmic = bool(times.max() > LOG_FROM_RATIO * times.min())
        single_s = float(single.iloc[0]["time_s"]) if alone else None
        scale = _Scale(captions.time_unit(float(times.max())), logarithmic, single_s)
        for position, row in enumerate(rows):
            arrivals = arrivals_by_seed(results.cells[results.cells["arm"] == row["arm"]])
            _draw_row(axes, position, row, [arrival for _, arrival in sorted(arrivals.items())], scale)
        _finish(axes, rows, scale, width_in)
        _columns(axes, rows, wide=width_in >= PAGE_IN)
        return figure


@dataclass(frozen=True)
class _Scale:
    """How times are laid out: unit, linear or logarithmic, and where one node alone stands (None: nowhere)."""

    unit: captions.TimeUnit
    logarithmic: bool
    single_s: float | None


def _draw_row(axes: Axes, position: int, row: dict[Any, Any], repeats: list[Arrival], scale: _Scale) -> None:
    seconds = scale.unit.seconds
    if scale.logarithmic:
        _draw_point(axes, position, row, scale)
    else:
        color, censored = arm_style(row["arm"], row["role"]).color, math.isinf(row["time_s"])
        axes.barh(position, row["at_least_s"] / seconds, height=0.62, facecolor=color, alpha=0.35 if censored else 0.8,
                  edgecolor=color, hatch="////" if censored else None, linewidth=0.8, zorder=2)  # fmt: skip
    if not math.isnan(row["low_s"]):
        ends = [row["low_s"] / seconds, row["high_s"] / seconds]
        axes.plot(
            ends, [position] * 2, color=INK, linewidth=1.0, marker="|", markersize=5, zorder=4, path_effects=_HALO
        )
    for number, repeat in enumerate(repeats):
        time_s = repeat.at_least
        spread = 0.0 if len(repeats) == 1 else 0.32 * (number / (len(repeats) - 1) - 0.5)
        if repeat.time_s is None:
            arrow: Any = {"arrowstyle": "<|-", "color": INK, "shrinkA": 0, "shrinkB": 0, "linewidth": 0.9,
                          "mutation_scale": 6}  # fmt: skip
            axes.annotate("", (time_s / seconds, position + spread), (13, 0), textcoords="offset points",
                          arrowprops=arrow, zorder=6, annotation_clip=False)  # fmt: skip
        elif len(repeats) > 1:
            axes.plot(time_s / seconds, position + spread, "o", markersize=2.6, zorder=6,
                      markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.6)  # fmt: skip


def _draw_point(axes: Axes, position: int, row: dict[Any, Any], scale: _Scale) -> None:
    """A point, on a stem from one node alone: on a logarithmic axis its length is the speed-up."""
    style, at = arm_style(row["arm"], row["role"]), row["at_least_s"] / scale.unit.seconds
    axes.axhline(position, color="#eeeeee", linewidth=0.8, zorder=0)
    if scale.single_s is not None:
        stem = [scale.single_s / scale.unit.seconds, at]
        axes.plot(stem, [position] * 2, color=style.color, linewidth=3.5, alpha=0.45, solid_capstyle="butt", zorder=2)
    if not math.isinf(row["time_s"]):
        axes.plot(at, position, style.marker, color=style.color, markersize=7, zorder=5,
                  markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip


def _finish(axes: Axes, rows: list[dict[Any, Any]], scale: _Scale, width_in: float) -> None:
    named = ((captions.arm_label(row["label"], row["role"], row["num_composed"], row["num"]), row) for row in rows)
    names = [captions.host_bound_marked(name, row["num_host_bound"]) for name, row in named]
    if width_in < PAGE_IN:
        names = [captions.in_two_lines(name) for name in names]
    axes.set_yticks(range(len(rows)), names, linespacing=1.0)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # fastest on top
    axes.grid(True, axis="x")
    axes.set_xlabel(f"training time to target ({scale.unit.symbol})")
    if scale.logarithmic:
        axes.set_xscale("log")
        axes.margins(x=0.12)
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=width_in - _BESIDE_IN)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3))
        ends = [row["at_least_s"] if math.isnan(row["high_s"]) else min(row["high_s"], 3 * row["at_least_s"])
                for row in rows]  # fmt: skip
        axes.set_xlim(0, 1.07 * max(ends) / scale.unit.seconds)
    if scale.single_s is not None:  # arms right of this line are slower than one node alone
        axes.axvline(scale.single_s / scale.unit.seconds, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=3)


def _columns(axes: Axes, rows: list[dict[Any, Any]], *, wide: bool) -> None:
    """Time and speed-up in figures, right of the bars; intervals under them."""
    has_speedup = any(not math.isnan(row["speedup"]) for row in rows)
    step_pt = 62 if wide else 43
    for position, row in enumerate(rows):
        infinite = math.isinf(row["time_s"])
        time = f"> {captions.seconds(row['at_least_s'])}" if infinite else captions.seconds(row["time_s"])
        _entry(axes, position, 6, time, _interval(row["low_s"], row["high_s"], captions.seconds))
        if has_speedup:
            below = _interval(row["speedup_low"], row["speedup_high"], captions.ratio)
            if row["role"] == REFERENCE:
                _entry(axes, position, 6 + step_pt, "1×", "")
            elif math.isnan(row["speedup"]):
                _entry(axes, position, 6 + step_pt, "–", "")
            else:
                _entry(axes, position, 6 + step_pt, captions.ratio(row["speedup"], row["speedup_bound"]), below)
    heading = "speed-up over single" if wide else "speed-up\nover single"
    headings = [(6, "time")] + ([(6 + step_pt, heading)] if has_speedup else [])
    for offset_pt, text in headings:
        axes.annotate(text, (1, 1), (offset_pt, 3), xycoords="axes fraction", textcoords="offset points",
                      fontsize=SMALL_PT, color=FAINT, va="bottom", annotation_clip=False)  # fmt: skip


def _entry(axes: Axes, position: int, offset_pt: float, text: str, below: str) -> None:
    anchor: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
    lift = 0.5 if below else 0
    axes.annotate(text, (1, position), (offset_pt, lift), va="bottom" if below else "center", fontsize=TEXT_PT,
                  weight="bold", **anchor)  # fmt: skip
    if below:
        axes.annotate(below, (1, position), (offset_pt, -0.5), va="top", fontsize=SMALL_PT - 1, color=FAINT, **anchor)


def _interval(low: float, high: float, write: Any) -> str:
    if math.isnan(low) or math.isnan(high):
        return ""
    return captions.span(str(write(low)).removesuffix("×"), str(write(high)))


def _how_to_read(results: Results, table: pd.DataFrame) -> list[str]:
    several = "Dots: repeats. Bars or large marks: geometric mean; whiskers: 95 % interval (Student's t on log time)."
    words = [captions.on_repeats(table["num"], several), *captions.on_first_crossings(results, table["num"])]
    if (table["num_censored"] > 0).any():
        words.append("Arrows: fewer than half of the repeats reached the target within the training limit; a bound.")
    if table["speedup_num"].max() > 1:
        words.append("Dashed line: one node alone.")
    elif table["speedup"].notna().any():
        words.append("Dashed line: one node alone.")
    return [" ".join(words)]


_ESTIMATED_PARTS = ("compute_s", "peers_s", "link_s", "exposed_s")
_MANY_STEPS_ROW_IN = 0.24
_TICK_IN = 0.42  # room for a tick label along the axis
_MEDIAN_FROM = 0.05  # a median nearer to the mean would only hide the end of the bar
_SHOWN_FROM = 0.002  # of the longest bar; a thinner part would be an unexplained line


class StepTime(AbstractFigure):
    """Mean seconds of each part over all steps, ranks and runs; means add up, so the bar is the mean step."""

    name = "step-time"
    in_detail = True

    def applies(self, results: Results) -> str | None:
        """Needs one cell that is done and recorded the ledger of its steps, of nodes that have times."""
        return captions.without_times(results) or ("no step was recorded" if results.ledger.empty else None)

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, shortest step first: mean seconds of each part, of the step, and the median step."""
        ledger = results.ledger
        grouped = ledger.groupby("arm")
        table = grouped[[*PARTS, "step_s", "median_step_s"]].mean()
        table["num"] = grouped.size()
        table["global_batch"] = grouped["global_batch"].max()
        table["estimated"] = grouped["estimated"].any()
        table["num_composed"] = grouped["composed"].sum()
        return table.sort_values(["step_s"], kind="stable").reset_index()

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        rows = table.to_dict("records")
        setting = captions.setting_line(results, num_runs=table["num"])
        parts = [part for part in PARTS if table[part].max() >= _SHOWN_FROM * table["step_s"].max()]
        legend = [Patch(facecolor=PART_COLORS[part], label=PART_NAMES[part]) for part in parts]
        if table["estimated"].any():
            legend.append(Patch(facecolor="#bbbbbb", edgecolor="white", hatch="//////", label="hatched: estimated"))
        row_in = _ROW_IN if len(rows) <= _MANY else _MANY_STEPS_ROW_IN
        notes = [*_how_to_read_steps(results, table), *results.notes]
        title = "Where the time of a step goes"
        figure, axes = framed_axes(width_in, 0.5 + row_in * len(rows), title, setting, notes, legend)
        unit = captions.time_unit(float(table["step_s"].max()) / 10)  # steps read better as 850 ms than as 0.85 s
        for position, row in enumerate(rows):
            _draw_step(axes, position, row, parts, unit)
        _finish_steps(figure, axes, rows, results, unit)
        _write_inside(figure, axes, rows, parts, unit)
        return figure


def _draw_step(axes: Axes, position: int, row: dict[Any, Any], parts: list[str], unit: captions.TimeUnit) -> None:
    left = 0.0
    for part in parts:
        length = max(0.0, row[part]) / unit.seconds  # an estimated part may come out a little below zero
        hatch = "////" if row["estimated"] and part in _ESTIMATED_PARTS and length > 0 else None
        axes.barh(position, length, left=left, height=0.64, facecolor=PART_COLORS[part], edgecolor="white",
                  linewidth=0.5, hatch=hatch, zorder=2)  # fmt: skip
        left += length
    if _median_shows(row):
        axes.plot(row["median_step_s"] / unit.seconds, position, "D", markersize=3.4, zorder=5,
                  markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.6)  # fmt: skip
    end = max(left, row["median_step_s"] / unit.seconds if _median_shows(row) else 0.0)
    axes.annotate(captions.seconds(row["step_s"]), (end, position), (5, 0),
                  textcoords="offset points", va="center", weight="bold", fontsize=TEXT_PT)  # fmt: skip


def _median_shows(row: dict[Any, Any]) -> bool:
    return bool(abs(row["median_step_s"] - row["step_s"]) > _MEDIAN_FROM * row["step_s"])


def _finish_steps(
    figure: Figure, axes: Axes, rows: list[dict[Any, Any]], results: Results, unit: captions.TimeUnit
) -> None:
    narrow = figure.get_figwidth() < PAGE_IN
    batch = Counter(row["global_batch"] for row in rows).most_common(1)[0][0]
    labels = []
    for row in rows:
        label = captions.label_of(results, row["arm"], row["num_composed"], row["num"])
        if row["global_batch"] != batch:
            label = f"{label}\nstep of {row['global_batch']:.0f} samples"
        elif narrow:
            label = captions.in_two_lines(label)
        labels.append(label)
    axes.set_yticks(range(len(rows)), labels, linespacing=1.0)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(True, axis="x")
    longest = max(max(row["step_s"], row["median_step_s"]) for row in rows) / unit.seconds
    axes.set_xlim(0, 1.16 * longest)
    axes.set_xlabel(f"mean step of {batch:.0f} samples ({unit.symbol})")
    lay_out(figure)
    room = int(axes.get_window_extent().width / figure.dpi / _TICK_IN)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=max(1, min(6, room)), min_n_ticks=2))


def _write_inside(
    figure: Figure, axes: Axes, rows: list[dict[Any, Any]], parts: list[str], unit: captions.TimeUnit
) -> None:
    lay_out(figure)
    inches_per_unit = axes.get_window_extent().width / figure.dpi / axes.get_xlim()[1]
    for position, row in enumerate(rows):
        left = 0.0
        for part in parts:
            length = max(0.0, row[part]) / unit.seconds
            text = captions.digits(length)
            if length * inches_per_unit > text_width_in(figure, text, SMALL_PT) + 0.1:
                red, green, blue = to_rgb(PART_COLORS[part])
                light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.52
                box = {"boxstyle": "round,pad=0.12", "facecolor": PART_COLORS[part], "edgecolor": "none"}
                axes.text(left + length / 2, position, text, ha="center", va="center", fontsize=SMALL_PT,
                          color=INK if light else "white", zorder=4, bbox=box)  # fmt: skip
            left += length


def _how_to_read_steps(results: Results, table: pd.DataFrame) -> list[str]:
    ledger = results.ledger
    notes = ["Mean over all steps, ranks and runs."]
    if any(_median_shows(row) for row in table.to_dict("records")):
        notes[0] += " Diamond: median step, where it differs by more than 5 %."
    if ledger["estimated"].any():
        notes[0] += " Hatched: torch's own DDP hides its waiting; estimated against steps without communication."
    reasons = sorted({str(reason) for reason in ledger["peers_reason"].dropna()})
    if reasons:
        notes.append(f"Waiting is not split into peers and link: {'; '.join(reasons)}.")
    off = ledger[~ledger["adds_up"]]
    if len(off):
        arms = ", ".join(sorted(set(off["arm"])))
        notes.append(f"Parts differ from the step by up to {100 * off['additivity_error'].max():.1f} % in {arms}.")
    return notes
