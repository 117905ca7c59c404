"""Were the links what was asked: goodput and round trip, achieved over asked, of all cells of an experiment."""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from bwbench.base.units import BANDWIDTH
from bwbench.results.analysis.arm_labels import UNLIKE
from bwbench.results.analysis.caveats import AFTER, BEFORE, COMPOSED_MARK, measured_links, measurements_of, pair_errors
from bwbench.results.analysis.cells import setting_of
from bwbench.results.analysis.results import Results, once
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels, panel_title
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, ArmStyle

_LOOKS = {BEFORE: ArmStyle("#0072b2", "o", "-"), AFTER: ArmStyle("#d55e00", "^", (0, (5, 1.5)))}
_COLUMNS = ["id", "arm", "bandwidth_bps", "when", "src", "dst", "over_tcp", "tolerance", "goodput_error", "rtt_error",
            "rtt_off_s"]  # fmt: skip
_TITLES = {"goodput_error": "goodput", "rtt_error": "round trip"}
_SPREAD = 0.13  # of the distance between two bandwidths, over which points of one are strewn
_NO_RATE = math.inf  # of a link without one bandwidth: a trace, or two directions that differ
_MANY = 400  # measurements, above which marks are small
_SMALLEST = 1e-5  # errors below count as this one on the logarithmic axis
_OUTLYING = 4.0  # worst over 95th percentile, beyond which the axis of errors is linear in the middle alone


class LinkAskedAndAchieved(AbstractFigure):
    """Left and middle: every measurement by bandwidth. Below: the share of measurements up to each error."""

    name = "link"
    in_detail = True
    compares = frozenset({"link", "nodes", "batch_size", "accumulate", "model", "dataset", "optimizer", "compute",
                          "evaluate", "target", "stop", "limit"})  # fmt: skip

    def applies(self, results: Results) -> str | None:
        """Needs one link that was measured."""
        return None if len(errors_table(results)) else "no link was measured"

    def table(self, results: Results) -> pd.DataFrame:
        """One row a pair of nodes and measurement."""
        return errors_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        body_in = 4.1 if wide else 3.6
        # A composed time is no part of this picture: what it shows was measured.
        notes = [_in_words(table), *(note for note in results.notes if not note.startswith((COMPOSED_MARK, UNLIKE)))]
        num_links = table["id"].nunique()
        amount = f"{num_links} {'link' if num_links == 1 else 'links'}, {len(table)} measurements"
        setting = captions.setting_line(results, num_runs=amount)
        legend = [
            Line2D([], [], label=f"{when} training", color=look.color, marker=look.marker, markersize=3.5,
                   linestyle=look.line, linewidth=1.2)
            for when, look in _LOOKS.items() if (table["when"] == when).any()
        ]  # fmt: skip
        figure, grid = framed_panels(width_in, body_in, (2, 2), "Links: achieved over asked", setting, notes, legend)
        for column, (error, words) in enumerate(_TITLES.items()):
            _draw_strip(grid[0, column], table, error, wide=wide)
            panel_title(grid[0, column], words)
            _draw_shares(grid[1, column], table, error)
        grid[0, 0].set_ylabel("error")
        grid[1, 0].set_ylabel("share of measurements")
        return figure


@once
def errors_table(results: Results) -> pd.DataFrame:
    """One row a pair of nodes and measurement; errors are achieved over asked, less 1.

    Composed cells of one timing run share its link, which counts once. Where nothing was measured there is no row.

    Returns:
        id (of the first such cell), arm, bandwidth_bps, when (``before``, ``after``), src, dst, over_tcp (between the
        processes of real hosts; else by paced UDP), tolerance, goodput_error, rtt_error, rtt_off_s (seconds that a
        round trip took longer).
    """
    rows = []
    for folder, link in measured_links(results.done):
        bandwidth_bps = setting_of(folder.cell.config).bandwidth_bps
        for when, measured in measurements_of(link):
            over_tcp = "tcp" in (measured.method or "")
            about = (folder.cell.id, folder.cell.arm, bandwidth_bps, when)
            rows += [
                (*about, one.src, one.dst, over_tcp, measured.tolerance, one.goodput, one.rtt, one.rtt_off_s)
                for one in pair_errors(measured)
            ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _draw_strip(axes: Axes, table: pd.DataFrame, error: str, *, wide: bool) -> None:
    asked = [_NO_RATE if pd.isna(rate) else float(rate) for rate in table["bandwidth_bps"]]
    rates = sorted(set(asked))
    places = pd.Series([rates.index(rate) for rate in asked], index=table.index)
    strewn = random.Random(0)
    size, alpha = (1.8, 0.5) if len(table) > _MANY else (3.2, 0.75)
    for number, (when, look) in enumerate(_LOOKS.items()):
        rows = table[(table["when"] == when) & table[error].notna()]
        x = [place + 0.36 * (number - 0.5) + strewn.uniform(-_SPREAD, _SPREAD) for place in places[rows.index]]
        axes.plot(x, 100 * rows[error].astype(float), look.marker, markersize=size, color=look.color, alpha=alpha,
                  markeredgewidth=0, zorder=3)  # fmt: skip
    axes.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    tolerance = table["tolerance"].dropna()
    sizes = [100 * abs(float(size)) for size in table[error].dropna()]
    worst, most = max(sizes, default=0.0), float(np.quantile(sizes, 0.95)) if sizes else 0.0
    # TCP between processes is allowed less than the link: that is no band around it.
    paced = not table["over_tcp"].any()
    if error == "goodput_error" and paced and len(tolerance) and worst > 30 * float(tolerance.max()):
        band = 100 * float(tolerance.max())
        axes.axhspan(-band, band, color="#ececec", linewidth=0, zorder=0)
    if worst > _OUTLYING * max(most, 1e-3):
        linear = max(most, 1e-3)
        axes.set_yscale("symlog", linthresh=linear, linscale=1.5)
        axes.yaxis.set_major_locator(FixedLocator(_ticks_from(linear)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.1)
    axes.yaxis.set_major_formatter(FuncFormatter(_error_label))
    axes.grid(True, axis="y")
    scale = next(name for name in reversed(BANDWIDTH.output) if BANDWIDTH.factors[name] <= max(rates[0], 1.0))
    factor = BANDWIDTH.factors[scale]
    every = max(1, math.ceil(len(rates) * (0.3 if not wide else 0.16)))
    shown = [place for place in range(len(rates)) if place % every == 0 or len(rates) <= 5]
    names = ["varies" if rate == _NO_RATE else f"{rate / factor:.4g}" for rate in rates]
    axes.set_xticks(shown, [names[place] for place in shown])
    axes.set_xlabel(f"{scale} asked")
    axes.set_xlim(-0.6, len(rates) - 0.4)


def _ticks_from(linear: float) -> list[float]:
    """Zero and powers of ten on both sides of it, from where an axis that is linear in its middle has room for them."""
    powers = [10.0**power for power in range(math.ceil(math.log10(linear / 2)), 6)]
    return [*(-size for size in reversed(powers)), 0.0, *powers]


def _draw_shares(axes: Axes, table: pd.DataFrame, error: str) -> None:
    """Which share of the measurements is off by no more than that."""
    for when, look in _LOOKS.items():
        sizes = np.sort(table[(table["when"] == when)][error].dropna().astype(float).abs().to_numpy())
        if len(sizes):
            axes.step(100 * np.maximum(sizes, _SMALLEST), np.arange(1, len(sizes) + 1) / len(sizes), where="post",
                      color=look.color, linestyle=look.line, linewidth=1.3, zorder=3)  # fmt: skip
    axes.axhline(0.95, color=FAINT, linewidth=0.7, linestyle=(0, (3, 2)), zorder=1)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.grid(True)
    left, right = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if right < 20 * left else (1,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_xlabel("size of error (%)", color=INK)


def _in_words(table: pd.DataFrame) -> str:
    words = []
    for error, what in _TITLES.items():
        sizes = table[error].dropna().astype(float).abs()
        if len(sizes):
            found = (float(sizes.median()), float(sizes.quantile(0.95)), float(sizes.max()))
            median, p95, worst = (f"{_percent(100 * value, 2)} %" for value in found)
            words.append(f"{what}: off by {median} (median), {p95} (95th percentile), {worst} at most.")
    text = " ".join(word[0].upper() + word[1:] for word in words)
    over_tcp = sorted(set(table["over_tcp"]))
    how = " or ".join("TCP between hosts" if over else "paced UDP" for over in over_tcp)
    return f"{text} Every mark: one pair of nodes. Goodput: {how}, all nodes at once; round trip: on the idle link."


def _error_label(value: float, position: int | None) -> str:
    return f"{'+' if value > 0 else ''}{_percent(value)} %" if value else "0"


def _percent(value: float, digits: int = 3) -> str:
    """With so many digits, but never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
