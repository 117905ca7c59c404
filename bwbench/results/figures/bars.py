"""An arm a row: who reached the target first, and was it worth several nodes; and where the time of a step goes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.markers import CARETRIGHT
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
from bwbench.results.figures.marks import draw_mark, label_log_axis
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, PART_COLORS, SMALL_PT, TEXT_PT, arm_style

_ROW_IN = 0.31
_MANY = 8  # arms, above which rows are lower
_MANY_ROW_IN = 0.27
_BESIDE_IN = 2.3  # names on the left, figures on the right
_SPAN = 3.0  # times: what the axis of times spans at least
_INTERVAL_SHOWN = 3.0  # of an interval beyond all marks
_OPEN = 0.28  # of the axis, in decades, that is left for arrows to the right
_REPEATS_BELOW = 0.28  # of a row, under its middle


class TimeToAccuracy(AbstractFigure):
    """A mark an arm, fastest on top, with every repeat, its interval, and the speed-up over one node alone.

    Times stand on a logarithmic axis, always: equal lengths are equal factors, and nothing grows out of a zero that no
    training has. An arm that did not arrive has a hollow mark at its limit, and an arrow on from there.
    """

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
        rows = table.to_dict("records")
        marks = captions.common_marks(results)
        setting = captions.setting_line(results, num_runs=table["num"])
        title = f"Time to {captions.timed_target(results)}{marks.text}"
        body_in = 0.75 + (_ROW_IN if len(rows) <= _MANY else _MANY_ROW_IN) * len(rows)
        figure, axes = framed_axes(width_in, body_in, title, setting, [*_how_to_read(results, table), *results.notes])
        single = table[table["role"] == REFERENCE]
        alone = len(single) == 1 and len(table) > 1 and not math.isinf(single.iloc[0]["time_s"])
        unit = captions.time_unit(math.sqrt(table["at_least_s"].max() * table["at_least_s"].min()))
        for position, row in enumerate(rows):
            arrivals = arrivals_by_seed(results.cells[results.cells["arm"] == row["arm"]])
            repeats = [arrival for _, arrival in sorted(arrivals.items())]
            _draw_row(axes, position, row, repeats, unit.seconds)
        if alone:  # arms right of this line are slower than one node alone
            at = float(single.iloc[0]["time_s"]) / unit.seconds
            axes.axvline(at, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        names = [marks.label(results, row["arm"]) for row in rows]
        _finish(axes, names if width_in >= PAGE_IN else [captions.in_short_lines(name) for name in names])
        _name_times(axes, table, unit, width_in)
        _columns(axes, rows, wide=width_in >= PAGE_IN)
        return figure


def _draw_row(axes: Axes, position: int, row: dict[Any, Any], repeats: list[Arrival], unit_s: float) -> None:
    """The arm's mark with its interval in the middle of the row, and below them each repeat."""
    style, bound = arm_style(row["arm"], row["role"]), ">" if math.isinf(row["time_s"]) else ""
    axes.axhline(position, color="#eeeeee", linewidth=0.8, zorder=0)
    ends = (row["low_s"] / unit_s, row["high_s"] / unit_s)
    draw_mark(axes, (row["at_least_s"] / unit_s, position), ends, style, bound, size=6.0, sideways=True)
    if len(repeats) > 1:
        below = position + _REPEATS_BELOW
        for arrived, marker in ((True, "o"), (False, CARETRIGHT)):
            times = [one.at_least / unit_s for one in repeats if (one.time_s is not None) is arrived]
            axes.plot(times, [below] * len(times), marker=marker, markersize=2.6, color=INK, linestyle="none",
                      markeredgewidth=0, alpha=0.7, zorder=4)  # fmt: skip


def _finish(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, linespacing=1.0)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)  # fastest on top
    axes.grid(True, axis="x")


def _name_times(axes: Axes, table: pd.DataFrame, unit: captions.TimeUnit, width_in: float) -> None:
    """The axis of times: as far as marks go, and intervals that are not much wider."""
    times = table["at_least_s"] / unit.seconds
    low = max(table["low_s"].min() / unit.seconds, times.min() / _INTERVAL_SHOWN)
    high = min(table["high_s"].max() / unit.seconds, times.max() * _INTERVAL_SHOWN)
    low, high = min(times.min(), low) / 1.1, max(times.max(), high) * 1.1  # NaN, without any interval, comes second
    if high < _SPAN * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(_SPAN), middle * math.sqrt(_SPAN)
    longest = max((row["at_least_s"] for row in table.to_dict("records") if math.isinf(row["time_s"])), default=0.0)
    high = max(high, longest / unit.seconds * 10**_OPEN)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    label_log_axis(axes.xaxis, low, high, length_in=width_in - _BESIDE_IN)
    axes.set_xlabel(f"training time ({unit.symbol})")


def _columns(axes: Axes, rows: list[dict[Any, Any]], *, wide: bool) -> None:
    """Time and speed-up in figures, right of the marks; intervals under them."""
    has_speedup = any(not math.isnan(row["speedup"]) for row in rows)
    step_pt = 62 if wide else 43
    for position, row in enumerate(rows):
        infinite = math.isinf(row["time_s"])
        time = f"> {captions.seconds(row['at_least_s'])}" if infinite else captions.seconds(row["time_s"])
        arrived = f"{row['num'] - row['num_censored']:.0f} of {row['num']:.0f}"
        below = arrived if infinite else _interval(row["low_s"], row["high_s"], captions.seconds)
        _entry(axes, position, 6, time, below)
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
    several = "Marks: geometric mean, and 95 % interval (Student's t on log time); dots below: repeats."
    words = [captions.on_repeats(table["num"], several), *captions.on_first_crossings(results, table["num"])]
    if table["time_s"].map(math.isinf).any():
        words.append("Hollow with arrow: fewer than half of the repeats arrived (how many: under the time); a bound.")
    if ((table["num_censored"] > 0) & (table["num"] > 1)).any():
        words.append("Small triangles: repeats that were given up there.")
    if table["speedup"].notna().any():
        words.append("Dashed line: one node alone.")
    return [" ".join(words)]


_ESTIMATED_PARTS = ("compute_s", "peers_s", "link_s", "exposed_s")
_MANY_STEPS_ROW_IN = 0.24
_TICK_IN = 0.42  # room for a tick label along the axis
_MEDIAN_FROM = 0.05  # a median nearer to the mean would only hide the end of the bar
_DIAMOND_IN = 0.05  # half of it
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
        notes = [*_how_to_read_steps(results, table), *captions.without_first_crossings(results.notes)]
        marks = captions.common_marks(results)
        title = f"Where the time of a step goes{marks.text}"
        figure, axes = framed_axes(width_in, 0.5 + row_in * len(rows), title, setting, notes, legend)
        unit = captions.time_unit(float(table["step_s"].max()) / 10)  # steps read better as 850 ms than as 0.85 s
        for position, row in enumerate(rows):
            _draw_step(axes, position, row, parts, unit)
        _finish_steps(figure, axes, rows, [marks.label(results, row["arm"]) for row in rows], unit)
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
    figure: Figure, axes: Axes, rows: list[dict[Any, Any]], names: list[str], unit: captions.TimeUnit
) -> None:
    narrow = figure.get_figwidth() < PAGE_IN
    batch = Counter(row["global_batch"] for row in rows).most_common(1)[0][0]
    labels = []
    for row, label in zip(rows, names, strict=True):
        if row["global_batch"] != batch:
            labels.append(f"{label}\nstep of {row['global_batch']:.0f} samples")
        else:
            labels.append(captions.in_short_lines(label) if narrow else label)
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
            half = text_width_in(figure, text, SMALL_PT) / 2 + _DIAMOND_IN
            median = (row["median_step_s"] / unit.seconds - left - length / 2) * inches_per_unit
            hidden = _median_shows(row) and abs(median) < half  # by the diamond
            if not hidden and length * inches_per_unit > text_width_in(figure, text, SMALL_PT) + 0.1:
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
