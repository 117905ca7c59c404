"""Where the time of a step goes: a stacked bar an arm, from computing to waiting for the link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bwbench.records.schema import PARTS
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.trial import PART_NAMES
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes, lay_out, text_width_in
from bwbench.results.figures.style import INK, PAGE_IN, PART_COLORS, SMALL_PT, TEXT_PT

_ESTIMATED_PARTS = ("compute_s", "peers_s", "link_s", "exposed_s")
_ROW_IN = 0.31
_MANY = 8  # arms, above which rows are lower
_MANY_ROW_IN = 0.24
_TICK_IN = 0.42  # room for a tick label along the axis
_MEDIAN_FROM = 0.05  # a median nearer to the mean would only hide the end of the bar
_SHOWN_FROM = 0.002  # of the longest bar; a thinner part would be an unexplained line


class StepTime(AbstractFigure):
    """Mean seconds of each part over all steps, ranks and runs; means add up, so the bar is the mean step."""

    name = "step-time"
    summary = "where the time of a step goes"

    def applies(self, results: Results) -> str | None:
        """Needs one cell that is done and recorded the ledger of its steps."""
        return "no step was recorded" if results.ledger.empty else None

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
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]))
        parts = [part for part in PARTS if table[part].max() >= _SHOWN_FROM * table["step_s"].max()]
        legend = [Patch(facecolor=PART_COLORS[part], label=PART_NAMES[part]) for part in parts]
        if table["estimated"].any():
            legend.append(Patch(facecolor="#bbbbbb", edgecolor="white", hatch="//////", label="hatched: estimated"))
        row_in = _ROW_IN if len(rows) <= _MANY else _MANY_ROW_IN
        notes = [*_how_to_read(results, table), *results.notes]
        title = "Where the time of a step goes"
        figure, axes = framed_axes(width_in, 0.5 + row_in * len(rows), title, setting, notes, legend)
        unit = captions.time_unit(float(table["step_s"].max()) / 10)  # steps read better as 850 ms than as 0.85 s
        for position, row in enumerate(rows):
            _draw_row(axes, position, row, parts, unit)
        _finish(figure, axes, rows, results.roles, unit)
        _write_inside(figure, axes, rows, parts, unit)
        return figure


def _draw_row(axes: Axes, position: int, row: dict[Any, Any], parts: list[str], unit: captions.TimeUnit) -> None:
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


def _finish(
    figure: Figure, axes: Axes, rows: list[dict[Any, Any]], roles: Mapping[str, str], unit: captions.TimeUnit
) -> None:
    narrow = figure.get_figwidth() < PAGE_IN
    batch = Counter(row["global_batch"] for row in rows).most_common(1)[0][0]
    axes.set_yticks(
        range(len(rows)), [_row_label(row, roles[row["arm"]], batch, narrow=narrow) for row in rows], linespacing=1.0
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(True, axis="x")
    longest = max(max(row["step_s"], row["median_step_s"]) for row in rows) / unit.seconds
    axes.set_xlim(0, 1.16 * longest)
    axes.set_xlabel(f"mean step of {batch:.0f} samples ({unit.symbol})")
    lay_out(figure)
    room = int(axes.get_window_extent().width / figure.dpi / _TICK_IN)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=max(1, min(6, room)), min_n_ticks=2))


def _row_label(row: dict[Any, Any], role: str, usual_batch: float, *, narrow: bool) -> str:
    label = captions.arm_label(row["arm"], role, row["num_composed"], row["num"])
    if narrow and row["global_batch"] == usual_batch:
        return captions.in_two_lines(label)
    return label if row["global_batch"] == usual_batch else f"{label}\nstep of {row['global_batch']:.0f} samples"


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


def _how_to_read(results: Results, table: pd.DataFrame) -> list[str]:
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
