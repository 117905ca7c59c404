"""What fewer bytes cost in accuracy: the metric less that of fp32 at equal samples, against bytes on the wire."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bwbench.base.plain_data import JsonObject, list_at
from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import averages_gradients
from bwbench.results.analysis.results import Results, with_wire_bytes
from bwbench.results.analysis.statistics import student_t
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import one_link
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.curve_lines import metric_of
from bwbench.results.figures.frame import framed_panels
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.marks import draw_point
from bwbench.results.figures.point_names import Named, name_points, whisker_places
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, arm_style

_REFERENCES = ("ring", "torch", "scatter-gather", "parameter-server")  # the first one there is, else any other


def losses(results: Results, metric: str) -> pd.DataFrame:
    """One row an arm that averages gradients in every step, the fp32 reference among them.

    Compared is the last evaluation at or before the number of samples that all of these runs have seen.

    Returns:
        arm; codec: its codecs in short (``top-k 1 %``); pair: equal for arms that differ in the residual alone;
        residual (True, False; None where the codec has none to keep); samples; ``value``: mean of the metric;
        ``lost``: mean over the seeds of its difference to the reference's, ``low``, ``high`` its 95 % interval
        (Student's t, NaN for one seed); wire_bytes until then, all nodes, mean; num: pairs; is_reference.
        Empty where there is no fp32 reference.
    """
    cells = results.cells
    every_step = cells[cells["algorithm"].map(averages_gradients)] if len(cells) else cells
    curves = results.curves
    if every_step.empty or metric not in curves:
        return pd.DataFrame(columns=["arm", "is_reference"])
    sent = with_wire_bytes(curves[curves["id"].isin(every_step["id"])], every_step)
    equal = int(sent.groupby("id")["samples"].max().min())
    last = sent[sent["samples"] <= equal].sort_values("samples").groupby("id").tail(1)
    codecs = {
        str(folder.cell.arm): [codec for codec in list_at(folder.cell.config, "compression") if isinstance(codec, dict)]
        for folder in results.done
    }
    fp32 = every_step[every_step["compression"] == "none"]
    ways = (*_REFERENCES, *fp32["collective"])  # all of them send fp32 gradients and get their exact mean
    reference = next((str(arm) for way in ways for arm in fp32[fp32["collective"] == way]["arm"]), None)
    if reference is None:
        return pd.DataFrame(columns=["arm", "is_reference"])
    by_arm = {str(arm): part.set_index("seed") for arm, part in last.groupby("arm")}
    rows = []
    for arm, part in by_arm.items():
        differences = (part[metric] - by_arm[reference][metric]).dropna()
        if differences.empty:
            continue
        mean, num = statistics.fmean(differences), len(differences)
        half = student_t(num - 1) * statistics.stdev(differences) / math.sqrt(num) if num > 1 else math.nan
        kept = [codec["error_feedback"] for codec in codecs[arm] if codec.get("error_feedback") is not None]
        others = [{key: value for key, value in codec.items() if key != "error_feedback"} for codec in codecs[arm]]
        rows.append({
            "arm": arm, "codec": short_name(codecs[arm]), "pair": json.dumps(others),
            "residual": any(kept) if kept else None,
            "samples": equal, "value": float(part[metric].mean()), "lost": mean, "low": mean - half,
            "high": mean + half, "wire_bytes": float(part["wire_bytes"].mean()), "num": num,
            "is_reference": arm == reference,
        })  # fmt: skip
    table = pd.DataFrame(rows)
    composed = cells.groupby("arm")["composed"].sum()
    table["num_composed"] = [int(composed[arm]) for arm in table["arm"]]
    return table.sort_values("wire_bytes", ascending=False, kind="stable").reset_index(drop=True)


def stops_at_target(results: Results) -> bool:
    """Whether runs ended where they met their target: then nobody knows what more samples would have given them, and
    those that a lucky evaluation ended would look better than they are."""
    configs = [folder.cell.config for folder in results.done]
    return any(config.get("target") and config.get("stop", "target") == "target" for config in configs)


def short_name(codecs: Sequence[JsonObject]) -> str:
    """``fp32``, ``top-k 1 %``, ``int4``, ``top-k 1 % + int8``; a residual is not mentioned."""
    words = []
    for codec in codecs:
        name, ratio = str(codec.get("name", "none")), codec.get("ratio")
        words.append(f"{name} {100 * float(ratio):g} %" if isinstance(ratio, (int, float)) else name)
    return "fp32" if words in ([], ["none"]) else " + ".join(words)


_WITHOUT = "no residual"


class Precision(AbstractFigure):
    """A point an arm; with and without a residual are joined by a line, and the one without is hollow."""

    name = "precision"
    summary = "accuracy lost to compression against bytes"
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs fp32 gradients averaged in every step, and another precision of them."""
        if not (results.curves["clock_s"] > 0).any():
            return "no evaluation was recorded"
        table = self.table(results)
        if len(table) and stops_at_target(results):
            return "runs ended at the target, not at equal samples (stop: limit)"
        if not table["is_reference"].any():
            return "no arm averages fp32 gradients in every step"
        others = table[~table["is_reference"].astype(bool)]
        if not len(others[others["codec"] != "fp32"]):
            return "no arm compresses gradients in every step"
        counted = (table["wire_bytes"] > 0).all()  # NaN is no more than 0
        return None if counted else "bytes were not counted"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm."""
        return losses(one_link(results), metric_of(results))

    def _draw(self, results: Results, width_in: float) -> Figure:
        shown, metric = one_link(results), metric_of(results)
        table, wide = self.table(results), width_in >= PAGE_IN
        scale, what = (100.0, "accuracy") if metric == "accuracy" else (1.0, metric)
        title = f"Validation {what} less that of fp32 against bytes on the wire"
        setting = captions.setting_line(shown, num_runs=captions.num_runs(table["num"]))
        marks: Any = {"color": INK, "marker": "o", "markersize": 4.5, "linestyle": "none"}
        legend = [Line2D([], [], label="residual kept, or none needed", **marks)]
        if (table["residual"] == False).any():  # noqa: E712 (of three values)
            legend.append(Line2D([], [], label=_WITHOUT, markerfacecolor="white", **marks))
        notes = [_how_to_read(table, metric), *shown.notes]
        if shown is not results:
            rate = BANDWIDTH.format(float(shown.cells["bandwidth_bps"].dropna().iloc[0]))
            notes.insert(1, f"Runs at {rate}; neither bytes nor accuracy hang on the link.")
        figure, grid = framed_panels(width_in, 3.3 if wide else 3.1, (1, 1), title, setting, notes, legend)
        axes: Axes = grid[0, 0]
        symbol, unit = captions.bytes_unit(math.sqrt(table["wire_bytes"].max() * table["wire_bytes"].min()))
        axes.set_xscale("log")
        axes.grid(True)
        axes.axhline(0, color=FAINT, linewidth=0.9, zorder=1)
        for _, pair in table.groupby("pair"):
            if len(pair) > 1:
                axes.plot(pair["wire_bytes"] / unit, scale * pair["lost"], color=FAINT, linewidth=0.9, zorder=2,
                          linestyle=(0, (2, 1.3)))  # fmt: skip
        named = []
        for row in table.to_dict("records"):
            hidden = row["is_reference"] or math.isnan(row["low"])
            ends = (math.nan, math.nan) if hidden else (scale * row["low"], scale * row["high"])
            style = arm_style(row["arm"], results.roles[row["arm"]])
            at = (row["wire_bytes"] / unit, scale * row["lost"])
            hollow = row["residual"] is False
            draw_point(axes, at, ends, style, hollow=hollow)
            codec = f"{row['codec']}, {_WITHOUT}" if hollow else str(row["codec"])
            named.append(Named(*at, captions.marked(codec, row["num_composed"], row["num"])))
        axes.margins(x=0.14, y=0.1)
        axes.autoscale_view()
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=width_in - 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        axes.set_xlabel(f"bytes on the wire, all nodes ({symbol})")
        axes.set_ylabel("accuracy less fp32's (percentage points)" if metric == "accuracy" else f"{metric} less fp32's")
        name_points(figure, axes, named, _lines(axes, table, unit, scale))
        return figure


def _lines(axes: Axes, table: pd.DataFrame, unit: float, scale: float) -> list[tuple[float, float]]:
    """Places on whiskers, on the lines that join pairs, and on the one at 0: no name may cover them."""
    places = []
    for row in table.to_dict("records"):
        places += whisker_places(row["wire_bytes"] / unit, scale * row["low"], scale * row["high"])
    for _, pair in table.groupby("pair"):
        x = pair["wire_bytes"].mean() / unit
        places += [(x, scale * level) for level in np.linspace(pair["lost"].min(), pair["lost"].max(), 12)]
    left, right = axes.get_xlim()
    return places + [(left ** (1 - share) * right**share, 0.0) for share in np.linspace(0, 1, 60)]


def _how_to_read(table: pd.DataFrame, metric: str) -> str:
    words = [f"After {int(table['samples'].iloc[0]):,} samples, which all of these runs have seen."]
    words.append("Below 0: fp32 is better." if metric != "loss" else "Above 0: fp32 is better.")
    several = "Differences are paired by seed; whiskers: 95 % interval (Student's t)."
    words.append(captions.on_repeats(table["num"], several, "One seed: no intervals; differences may be chance."))
    if table.groupby("pair").size().max() > 1:
        words.append("Dotted lines join the same codec with and without a residual.")
    return " ".join(words)
