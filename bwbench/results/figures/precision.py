"""What fewer bytes on the wire cost in accuracy, with and without a residual: a row a codec, most bytes on top."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from statistics import fmean  # exact: a sum of floats differs with the processor
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bwbench.base.plain_data import JsonObject, list_at
from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import averages_gradients
from bwbench.results.analysis.difference import difference_of
from bwbench.results.analysis.results import Results, with_wire_bytes
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import metric_of, one_link
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.marks import draw_mark
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, ArmStyle

_REFERENCES = ("ring", "torch", "scatter-gather", "parameter-server")  # the first one there is, else any other


def losses(results: Results, metric: str) -> pd.DataFrame:
    """One row an arm that averages gradients in every step, the fp32 reference among them.

    Compared is the last evaluation at or before the number of samples that all of these runs have seen.

    Returns:
        arm; codec: its codecs in short (``top-k 1 %``); pair: equal for arms that differ in the residual alone;
        residual (True, False; None where the codec has none to keep); samples; ``value``: mean of the metric;
        ``lost``: its difference to the reference's, ``low``, ``high`` its 95 % interval
        (``difference_of``, NaN for one seed); wire_bytes until then, all nodes, mean; num; is_reference.
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
        kin = set(every_step[every_step["arm"].isin([arm, reference])]["kin"])
        difference = difference_of(_by_seed(part[metric]), _by_seed(by_arm[reference][metric]), kin=len(kin) == 1)
        if difference is None:
            continue
        kept = [codec["error_feedback"] for codec in codecs[arm] if codec.get("error_feedback") is not None]
        others = [{key: value for key, value in codec.items() if key != "error_feedback"} for codec in codecs[arm]]
        rows.append({
            "arm": arm, "codec": short_name(codecs[arm]), "pair": json.dumps(others),
            "residual": any(kept) if kept else None,
            "samples": equal, "value": fmean(part[metric]), "lost": difference.value,
            "low": math.nan if difference.low is None else difference.low,
            "high": math.nan if difference.high is None else difference.high,
            "wire_bytes": fmean(part["wire_bytes"]), "num": difference.num,
            "is_reference": arm == reference,
        })  # fmt: skip
    table = pd.DataFrame(rows)
    composed = cells.groupby("arm")["composed"].sum()
    table["num_composed"] = [int(composed[arm]) for arm in table["arm"]]
    return table.sort_values("wire_bytes", ascending=False, kind="stable").reset_index(drop=True)


def _by_seed(column: pd.Series) -> dict[int, float]:
    return {int(str(seed)): float(value) for seed, value in column.dropna().items()}


def short_name(codecs: Sequence[JsonObject]) -> str:
    """``fp32``, ``top-k 1 %``, ``int4``, ``top-k 1 % + int8``; a residual is not mentioned."""
    words = []
    for codec in codecs:
        name, ratio = str(codec.get("name", "none")), codec.get("ratio")
        words.append(f"{name} {100 * float(ratio):g} %" if isinstance(ratio, (int, float)) else name)
    return "fp32" if words in ([], ["none"]) else " + ".join(words)


_WITHOUT = "no residual"
_ROW_IN = 0.19
_LOOK = ArmStyle("#0b3c6f", "o", "-")  # of all: rows have names, and only the residual tells marks apart
_COLUMNS_PT = (6.0, 44.0)  # right of the axes: bytes, and how many times fewer


class Precision(AbstractFigure):
    """A row an arm, most bytes on top; of a pair that differs in the residual alone the one without is hollow."""

    name = "precision"
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs fp32 gradients averaged in every step, and another precision of them."""
        if not (results.curves["clock_s"] > 0).any():
            return "no evaluation was recorded"
        configs = [folder.cell.config for folder in results.done]
        # What more samples would have given runs that ended at their target nobody knows, and those that a lucky
        # evaluation ended would look better than they are.
        if any(config.get("target") and config.get("stop", "target") == "target" for config in configs):
            return "runs ended at the target, not at equal samples (stop: limit)"
        table = self.table(results)
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
        marks = captions.common_marks(shown)
        scale, what = (100.0, "accuracy") if metric == "accuracy" else (1.0, metric)
        unit = "percentage points" if metric == "accuracy" else ""
        title = f"Validation {what}{'' if metric == 'accuracy' else ' at the end'}{marks.text} minus that of fp32"
        setting = captions.setting_line(shown, num_runs=table["num"])
        without = bool(table["residual"].eq(False).any())  # of three values
        look: Any = {"color": _LOOK.color, "marker": "o", "markersize": 4.5, "linestyle": "none"}
        legend = [Line2D([], [], label="residual kept, or none needed", **look),
                  Line2D([], [], label=_WITHOUT, markerfacecolor="white", **look)] if without else []  # fmt: skip
        notes = [_how_to_read(table, metric), *shown.notes]
        if shown is not results:
            rate = BANDWIDTH.format(float(shown.cells["bandwidth_bps"].dropna().iloc[0]))
            notes.insert(1, f"Runs at {rate}; neither bytes nor accuracy hang on the link.")
        rows = table.to_dict("records")
        figure, axes = framed_axes(width_in, 0.62 + _ROW_IN * len(rows), title, setting, notes, legend)
        axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
        for position, row in enumerate(rows):
            hidden = row["is_reference"] or math.isnan(row["low"])
            ends = (math.nan, math.nan) if hidden else (scale * row["low"], scale * row["high"])
            axes.axhline(position, color="#eeeeee", linewidth=0.8, zorder=0)
            draw_mark(axes, (scale * row["lost"], position), ends, _LOOK, hollow=row["residual"] is False,
                      sideways=True, size=5.0, edges=(0.4, 1.0))  # fmt: skip
        names = [_name(row, marks) for row in rows]
        axes.set_yticks(range(len(rows)), names, fontsize=SMALL_PT if not wide else None)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(True, axis="x")
        axes.margins(x=0.06)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=2))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        axes.set_xlabel(unit or f"{metric} less fp32's")
        _name_bytes(axes, table)
        return figure


def _name(row: dict[Any, Any], marks: captions.CommonMarks) -> str:
    """The codec, which of a pair without its residual says so."""
    name = f"{row['codec']}, {_WITHOUT}" if row["residual"] is False else str(row["codec"])
    return name if marks.composed else captions.marked(name, row["num_composed"], row["num"])


def _name_bytes(axes: Axes, table: pd.DataFrame) -> None:
    """Right of each row its bytes, and how many times fewer they are than those of fp32."""
    beside: Any = {"textcoords": "offset points", "annotation_clip": False, "fontsize": SMALL_PT}
    whole = float(table[table["is_reference"].astype(bool)]["wire_bytes"].iloc[0])
    for position, row in enumerate(table.to_dict("records")):
        texts = (
            captions.byte_words(row["wire_bytes"]),
            "" if row["is_reference"] else _times(whole, row["wire_bytes"]),
        )
        for offset_pt, text in zip(_COLUMNS_PT, texts, strict=True):
            axes.annotate(
                text, (1, position), (offset_pt, 0), xycoords=("axes fraction", "data"), va="center", **beside
            )
    for offset_pt, text in zip(_COLUMNS_PT, ("bytes", "fewer"), strict=True):
        axes.annotate(text, (1, 1), (offset_pt, 3), xycoords="axes fraction", va="bottom", color=FAINT, **beside)


def _times(whole: float, part: float) -> str:
    """``39×``, and ``1.9×`` where the first digit alone would not do."""
    return f"{whole / part:.0f}×" if whole >= 9.95 * part else f"{whole / part:.1f}×"


def _how_to_read(table: pd.DataFrame, metric: str) -> str:
    words = [f"After {int(table['samples'].iloc[0]):,} samples, which all of these runs have seen."]
    words.append(f"{'Left' if metric != 'loss' else 'Right'} of 0: fp32 is better. Bytes: of all nodes, on the wire.")
    several = "Whiskers: 95 % interval each (Welch's t; arms that learn alike are paired by seed)."
    words.append(captions.on_repeats(table["num"], several))
    return " ".join(words)
