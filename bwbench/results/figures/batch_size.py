"""Does a larger batch help on a slow link: samples and time to the target side by side, a row a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import METHOD
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.results import Results, arrivals_by_seed, ends_of, samples_by_seed
from bwbench.results.analysis.statistics import estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels
from bwbench.results.figures.marks import draw_mark, label_log_axis
from bwbench.results.figures.style import INK, SMALL_PT, ArmStyle

_ROW_IN = 0.19
_BESIDE_IN = 1.1  # names on the left
_INTERVAL_SHOWN = 2.5  # of an interval beyond all marks
_ARROW_DECADES = 0.25  # room for an arrow to the right
_NO_LINK = ArmStyle(INK, "s", "none")
# From the slowest to the fastest link: told apart by lightness and by marker.
_LINKS = (
    ArmStyle("#0b3c6f", "o", "none"),
    ArmStyle("#2f7fb8", "^", "none"),
    ArmStyle("#e08a1e", "D", "none"),
    ArmStyle("#b9b9b9", "v", "none"),
)


@dataclass(frozen=True)
class _Line:
    """A row of the picture: one batch of an arm, or its heading where ``rows`` is None."""

    text: str
    rows: pd.DataFrame | None = None


class BatchSize(AbstractFigure):
    """A row a batch below each arm; left the samples to the target, right the time, with a mark for each bandwidth."""

    name = "batch-size"
    compares = frozenset({"batch_size", "accumulate", "link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and one arm with two global batches."""
        if not results.done or results.cells["target_metric"].isna().all():
            return "the cells have no target"
        batches = results.cells.groupby("arm")["global_batch"].nunique()
        return None if batches.max() > 1 else "only one batch size"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, batch size, accumulation and bandwidth; ``time_…`` in seconds, ``samples_…`` to the target.

        Each has ``_value`` (infinite where fewer than half reached it), ``_low``, ``_high``, ``_at_least``; of virtual
        nodes samples alone.
        """
        by = ["arm", "nodes", "batch_size", "accumulate", "bandwidth_bps"]
        rows = []
        for values, part in results.cells.groupby(by, dropna=False, sort=True):
            times = list(arrivals_by_seed(part).values())
            samples = list(samples_by_seed(part).values())
            if not samples or not (times or part["virtual"].any()):
                continue
            time, sample = estimate(times) if times else None, estimate(samples)
            row: Row = dict(zip(by, values, strict=True))
            row |= {"global_batch": int(part["global_batch"].iloc[0]), "num": len(times or samples)}
            row |= {"num_composed": int(part["composed"].sum())}
            row |= ends_of("time", time) | {"time_censored": time.num_censored if time else 0}
            rows.append(row | ends_of("samples", sample) | {"samples_censored": sample.num_censored})
        table = pd.DataFrame(rows)
        ends = [f"{what}_{end}" for what in ("time", "samples") for end in ("low", "high")]
        table[ends] = table[ends].astype(float)
        return table

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        timed = bool(table["time_at_least"].notna().any())
        marks = captions.common_marks(results)
        lines = _lines(table, results, marks)
        links = _links(table)
        what = f"time to {captions.timed_target(results)}" if timed else captions.target_words(results)
        title = f"Samples {'and' if timed else 'to'} {what}{marks.text} by batch"
        setting = captions.setting_line(results, num_runs=table["num"])
        notes = [*_how_to_read(table, links), *results.notes]
        legend = [_handle(rate, style) for rate, style in links.items()] if timed and len(links) > 1 else []
        panels = 2 if timed else 1
        body_in = 0.5 + _ROW_IN * len(lines)
        figure, grid = framed_panels(width_in, body_in, (1, panels), title, setting, notes, legend, share=(False, True))
        axes_of = dict(zip(("samples", "time"), grid[0], strict=False))
        # What is needed hardly depends on the link: the samples of the fastest one stand for all.
        fastest = max((rate for rate in links if not math.isnan(rate)), default=math.nan)
        at_fastest = table[table["bandwidth_bps"].isna() | (table["bandwidth_bps"] == fastest)]
        length_in = (width_in - _BESIDE_IN) / panels - 0.1
        looks = links if timed else dict.fromkeys(links, _NO_LINK)
        _draw_panel(axes_of["samples"], lines, "samples", 1e3, at_fastest.index, looks)
        _finish(axes_of["samples"], at_fastest, "samples", 1e3, length_in)
        axes_of["samples"].set_xlabel("thousand samples")
        if timed:
            unit = captions.time_unit(math.sqrt(table["time_at_least"].max() * table["time_at_least"].min()))
            _draw_panel(axes_of["time"], lines, "time", unit.seconds, table.index, links)
            _finish(axes_of["time"], table, "time", unit.seconds, length_in)
            axes_of["time"].set_xlabel(f"training time ({unit.symbol})")
        _name_rows(axes_of["samples"], lines)
        return figure


def _lines(table: pd.DataFrame, results: Results, marks: captions.CommonMarks) -> list[_Line]:
    """Methods before their limits, each with its batches from the smallest to the largest."""
    found = []
    for arm in sorted(set(table["arm"]), key=lambda arm: (results.roles[arm] != METHOD, arm)):
        of_arm = table[table["arm"] == arm]
        found.append(_Line(marks.label(results, arm)))
        for (_, accumulate, nodes, size), rows in of_arm.groupby(["global_batch", "accumulate", "nodes", "batch_size"]):
            several = of_arm["nodes"].nunique() > 1
            made = f"{size:g}, {accumulate:g} times" if accumulate > 1 else f"{size:g}"
            found.append(_Line(", ".join([made, *([f"{nodes:g} nodes"] if several else [])]), rows))
    return found


def _links(table: pd.DataFrame) -> dict[float, ArmStyle]:
    """How times at each bandwidth look, slowest first, some of them where there are many; NaN is no link."""
    rates = sorted(float(rate) for rate in table["bandwidth_bps"].dropna().unique())
    if len(rates) > len(_LINKS):
        last = len(_LINKS) - 1
        rates = [rates[round(number * (len(rates) - 1) / last)] for number in range(len(_LINKS))]
    styles = _LINKS if len(rates) != 2 else (_LINKS[0], _LINKS[2])
    found = dict(zip(rates, styles, strict=False))
    return found | ({math.nan: _NO_LINK} if table["bandwidth_bps"].isna().any() else {})


def _handle(rate: float, style: ArmStyle) -> Line2D:
    label = "no link" if math.isnan(rate) else BANDWIDTH.format(rate)
    return Line2D([], [], label=label, color=style.color, marker=style.marker, linestyle="none", markersize=4.5)


def _draw_panel(
    axes: Axes, lines: Sequence[_Line], what: str, unit: float, shown: pd.Index, links: Mapping[float, ArmStyle]
) -> None:
    rates = [rate for rate in links if not math.isnan(rate)]
    for position, line in enumerate(lines):
        if line.rows is None:
            continue
        axes.axhline(position, color="#eeeeee", linewidth=0.8, zorder=0)
        for row in line.rows[line.rows.index.isin(shown)].to_dict("records"):
            rate = row["bandwidth_bps"]
            style = _NO_LINK if math.isnan(rate) else links.get(rate)
            if style is None or math.isnan(row[f"{what}_at_least"]):
                continue
            apart = not math.isnan(rate) and what == "time" and len(rates) > 1
            lift = 0.34 * (rates.index(rate) / (len(rates) - 1) - 0.5) if apart else 0.0
            at = (row[f"{what}_at_least"] / unit, position + lift)
            ends = (row[f"{what}_low"] / unit, row[f"{what}_high"] / unit)
            bound = "" if math.isfinite(row[f"{what}_value"]) else ">"
            draw_mark(axes, at, ends, style, bound, size=4.4, sideways=True)


def _finish(axes: Axes, rows: pd.DataFrame, what: str, unit: float, length_in: float) -> None:
    values = rows[f"{what}_at_least"].dropna() / unit
    low = max(rows[f"{what}_low"].min() / unit, values.min() / _INTERVAL_SHOWN)
    high = min(rows[f"{what}_high"].max() / unit, values.max() * _INTERVAL_SHOWN)
    low, high = min(values.min(), low) / 1.1, max(values.max(), high) * 1.1  # NaN, without any interval, comes second
    bounds = rows[rows[f"{what}_value"].map(math.isinf)][f"{what}_at_least"]
    if len(bounds):
        high = max(high, bounds.max() / unit * 10**_ARROW_DECADES)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.grid(True, axis="x")
    label_log_axis(axes.xaxis, low, high, length_in=length_in)


def _name_rows(axes: Axes, lines: Sequence[_Line]) -> None:
    axes.set_ylim(len(lines) - 0.5, -0.7)
    axes.set_yticks([position for position, line in enumerate(lines) if line.rows is not None],
                    [line.text for line in lines if line.rows is not None], fontsize=SMALL_PT)  # fmt: skip
    beside: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
    for position, line in enumerate(lines):
        if line.rows is None:
            axes.annotate(line.text, (0, position), (-4, 0), ha="right", va="center", fontsize=SMALL_PT,
                          weight="bold", **beside)  # fmt: skip
    for one in axes.figure.axes:
        one.tick_params(axis="y", length=0)


def _how_to_read(table: pd.DataFrame, links: Mapping[float, ArmStyle]) -> list[str]:
    several = "Marks: geometric mean; whiskers: 95 % interval (Student's t on logarithms)."
    words = ["Rows: samples of a node in a step."]
    if (table["accumulate"] > 1).any():
        words.append("So many times: accumulated before one average.")
    words.append(captions.on_repeats(table["num"], several))
    if (table["time_censored"] > 0).any() or (table["samples_censored"] > 0).any():
        words.append("Hollow with arrow: fewer than half of the repeats reached the target within the limit.")
    rates = set(table["bandwidth_bps"].dropna())
    if len(rates) > 1:
        words.append("Samples are those at the fastest link; they hardly depend on it.")
    if left_out := sorted(rates - set(links)):
        words.append(f"Not drawn, in the table beside: {', '.join(map(BANDWIDTH.format, left_out))}.")
    return [" ".join(words)]
