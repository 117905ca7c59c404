"""Does a larger batch help on a slow link: samples and time to the target against the samples of one step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.base.units import BANDWIDTH
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.results import Results, arrivals_by_seed, ends_of, samples_by_seed
from bwbench.results.analysis.statistics import estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels, panel_title
from bwbench.results.figures.marks import arm_handle, draw_mark, label_log_axis, tick_at
from bwbench.results.figures.style import INK, PAGE_IN, ArmStyle, arm_style

_PANEL_IN = {True: 2.3, False: 1.75}  # height by whether the picture is wide
_DODGE = 0.018  # decades between neighbouring arms
_ACCUMULATED: Any = (0, (2, 1.3))


class BatchSize(AbstractFigure):
    """A panel for samples to the target and one for the time at each bandwidth; batches of their own with full marks,
    accumulated ones with hollow marks on a broken line."""

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
        table, wide = self.table(results), width_in >= PAGE_IN
        bandwidths: list[float | None] = sorted(table["bandwidth_bps"].dropna().unique()) or [None]
        timed = bool(table["time_at_least"].notna().any())
        num_panels = 1 + (len(bandwidths) if timed else 0)
        columns = min(num_panels, 3 if wide else 1)
        rows = -(-num_panels // columns)
        accumulated = bool((table["accumulate"] > 1).any())
        notes = [*_how_to_read(table), *results.notes]
        what = f"and time to {captions.timed_target(results)}" if timed else f"to {captions.target_words(results)}"
        title = f"Samples {what} by batch"
        setting = captions.setting_line(results, num_runs=table["num"])
        labels = captions.labels_of(table, results)
        styles = {arm: arm_style(arm, results.roles[arm]) for arm in labels}
        legend = [arm_handle(styles[arm], label, linestyle="-") for arm, label in labels.items()]
        if accumulated:
            legend.append(
                Line2D([], [], label="batch of its own", color=INK, linewidth=1.2, marker="o", markersize=4.5)
            )
            legend.append(Line2D([], [], label="accumulated", color=INK, linestyle=_ACCUMULATED, linewidth=1.2,
                                 marker="o", markersize=4.5, markerfacecolor="white"))  # fmt: skip
        body_in = rows * _PANEL_IN[wide] + 0.2
        figure, grid = framed_panels(width_in, body_in, (rows, columns), title, setting, notes, legend)
        panels: list[Axes] = list(grid.flat)
        for unused in panels[num_panels:]:
            unused.remove()
        # What is needed hardly depends on the link: the samples of the fastest one stand for all.
        fastest = table[table["bandwidth_bps"].isna() | (table["bandwidth_bps"] == bandwidths[-1])]
        _draw_panel(panels[0], fastest, "samples", 1e3, styles)
        panel_title(panels[0], "samples to target")
        panels[0].set_ylabel("thousand samples")
        times = table["time_at_least"].dropna()
        unit = captions.time_unit(math.sqrt(times.max() * times.min()) if timed else 1.0)
        for axes, bandwidth in zip(panels[1:num_panels], bandwidths, strict=False):
            here = table[table["bandwidth_bps"].isna() | (table["bandwidth_bps"] == bandwidth)]
            _draw_panel(axes, here, "time", unit.seconds, styles)
            panel_title(
                axes, "time to target" if bandwidth is None else f"time to target at {BANDWIDTH.format(bandwidth)}"
            )
            axes.set_ylabel(f"training time ({unit.symbol})")
        for axes in panels[2:num_panels]:
            axes.sharey(panels[1])
        batches = sorted({float(batch) for batch in table["global_batch"]})
        body = _PANEL_IN[wide] - 0.7
        for axes in panels[:num_panels]:
            _finish(axes, batches, width_in / columns - 0.8, body)
        return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, what: str, unit: float, styles: Mapping[str, ArmStyle]) -> None:
    for position, (arm, style) in enumerate(styles.items()):
        dodge = 10 ** (_DODGE * (position - (len(styles) - 1) / 2))
        for accumulated, line in _lines(rows[rows["arm"] == arm]):
            line = line.sort_values("global_batch")
            reached = line[line[f"{what}_value"].map(math.isfinite)]
            axes.plot(reached["global_batch"] * dodge, reached[f"{what}_value"] / unit, color=style.color, zorder=2,
                      linewidth=1.2, linestyle=_ACCUMULATED if accumulated else "-")  # fmt: skip
            for row in line.to_dict("records"):
                if accumulated and row["accumulate"] == 1:
                    continue  # drawn by the line of batches of its own
                at = (row["global_batch"] * dodge, row[f"{what}_at_least"] / unit)
                ends = (row[f"{what}_low"] / unit, row[f"{what}_high"] / unit)
                bound = "" if math.isfinite(row[f"{what}_value"]) else ">"
                draw_mark(axes, at, ends, style, bound, hollow=accumulated, size=4.5)


def _lines(rows: pd.DataFrame) -> Iterator[tuple[bool, pd.DataFrame]]:
    """Batches of their own, then for each batch that is accumulated that batch and its multiples."""
    yield False, rows[rows["accumulate"] == 1]
    for batch in sorted(rows[rows["accumulate"] > 1]["batch_size"].unique()):
        yield True, rows[rows["batch_size"] == batch]


def _finish(axes: Axes, batches: list[float], width_in: float, height_in: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True)
    axes.margins(x=0.08, y=0.12)
    # The batches whose labels fit beside each other; the ends always do.
    decades = math.log10(batches[-1] / batches[0]) if len(batches) > 1 else 1.0
    shown = batches[:1]
    for batch in batches[1:]:
        if math.log10(batch / shown[-1]) / decades * width_in >= 0.3:
            shown.append(batch)
    tick_at(axes.xaxis, shown)
    label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=height_in)
    axes.set_xlabel("samples of a step, all nodes")


def _how_to_read(table: pd.DataFrame) -> list[str]:
    several = "Marks: geometric mean; whiskers: 95 % interval (Student's t on logarithms)."
    words = [captions.on_repeats(table["num"], several)]
    if (table["time_censored"] > 0).any():
        words.append("Hollow with arrow: fewer than half of the repeats reached the target within the limit.")
    if table["bandwidth_bps"].nunique() > 1:
        words.append("Samples are those at the fastest link; they hardly depend on it.")
    return [" ".join(words)]
