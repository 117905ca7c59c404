"""What bytes on the wire buy, an arm a point: time to the target or accuracy at the end, and what fewer bytes cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.comparison import non_dominated
from bwbench.results.analysis.difference import difference_of
from bwbench.results.analysis.results import Results, arrivals_by_seed, once, with_wire_bytes
from bwbench.results.analysis.statistics import estimate, number
from bwbench.results.analysis.student import student_t
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import bytes_to_target, metric_of, metric_words, one_link
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels
from bwbench.results.figures.marks import POINT, draw_arrow, draw_mark, label_log_axis
from bwbench.results.figures.point_names import Named, name_points, whisker_places
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, arm_style

_ARROWS_PT = ((0.0, 7.0), (0.0, 13.0), (7.0, 0.0), (13.0, 0.0))  # where a point's arrows lie
_FRONT: Any = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2))}


class Pareto(AbstractFigure):
    """The arms that no other one beats in both are full and joined; the others are hollow."""

    name = "pareto"
    in_detail = True

    def applies(self, results: Results) -> str | None:
        """Needs two arms whose bytes were counted."""
        table = pareto_table(results)
        return None if table["wire_bytes"].notna().sum() > 1 else "fewer than two arms have sent anything"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm."""
        return pareto_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        by_time = bool(table["against"].iloc[0] == "time")
        what = f"time to {captions.timed_target(results)}" if by_time else metric_words(str(table["metric"].iloc[0]))
        title = f"{what} against bytes on the wire"
        setting = captions.setting_line(results, num_runs=table["num"])
        sending = table[table["wire_bytes"].notna()]
        better = "another arm is better in both"
        legend = [
            Line2D([], [], label="no other arm is better in both", marker="o", markersize=4.5, **_FRONT),
            Line2D([], [], label=better, marker="o", color=FAINT, markerfacecolor="white", markersize=4.5,
                   linestyle="none"),
        ]  # fmt: skip
        body_in = 3.5 if wide else 3.3
        figure, grid = framed_panels(width_in, body_in, (1, 1), title[0].upper() + title[1:], setting,
                                     [*_how_to_read(table), *results.notes], legend)  # fmt: skip
        axes: Axes = grid[0, 0]
        bytes_seen = sending["wire_bytes"]
        symbol, unit = captions.bytes_unit(math.sqrt(bytes_seen.max() * bytes_seen.min()))
        time = captions.time_unit(math.sqrt(table["y"].max() * table["y"].min())) if by_time else None
        scale = time.seconds if time else 1.0
        axes.set_xscale("log")
        if by_time:
            axes.set_yscale("log")
        axes.grid(True)
        _draw_points(axes, sending, results.roles, unit, scale)
        for limit in _limits(results, table):
            style = arm_style(limit["arm"], limit["role"])
            axes.axhline(limit["y"] / scale, color=style.color, linestyle=style.line, linewidth=0.9, zorder=1)
        axes.margins(x=0.14, y=0.14)
        axes.autoscale_view()
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=width_in - 1.0)
        if time:
            label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=2.3)
        elif table["metric"].iloc[0] == "accuracy":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
        axes.set_xlabel(f"bytes on the wire{' to target' if by_time else ''}, all nodes ({symbol})")
        axes.set_ylabel(f"training time to target ({time.symbol})" if time else what)
        _name_arms(figure, axes, table, results, unit, scale)
        return figure


@once
def pareto_table(results: Results) -> pd.DataFrame:
    """One row an arm: what it sends and what it gets for it.

    Returns:
        arm; against (``time`` where a repeat of any arm has reached the target, else ``metric``); ``y`` with ``low``,
        ``high``: seconds to the target, geometric mean, or the metric at the end, mean, each with its 95 % interval;
        ``y_bound`` ``>`` where fewer than half reached it; wire_bytes (to the target, or in all; NaN where
        nothing was counted); metric, num, num_censored, num_composed; front: whether no other arm that sends is better
        in both.
    """
    cells = results.cells
    reached = bool(cells["time_to_target_s"].notna().any())
    rows = []
    for arm, part in cells.groupby("arm", sort=True):
        row: Row = {"arm": str(arm), "against": "time" if reached else "metric", "y_bound": "", "num_censored": 0}
        row |= {"metric": _metric(results), "num_composed": int(part["composed"].sum()), "num": len(part)}
        row |= _time(part) if reached else _final(part)
        if number(row["y"]) is not None:
            rows.append(row)
    columns = ["arm", "against", "y", "low", "high", "y_bound", "wire_bytes", "metric", "num", "num_censored",
               "num_composed"]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    numbers = ["y", "low", "high", "wire_bytes"]
    table[numbers] = table[numbers].astype(float)
    # The limits send nothing: no place on the axis of bytes, no rivals of those that do.
    table.loc[~(table["wire_bytes"] > 0) | table["arm"].isin(results.limits), "wire_bytes"] = math.nan
    table["front"] = False
    rivals = table[table["wire_bytes"].notna() & (table["y_bound"] == "")]
    less_is_better = reached or _metric(results) == "loss"
    values = rivals["y"] if less_is_better else -rivals["y"]
    table.loc[rivals.index, "front"] = non_dominated(list(zip(rivals["wire_bytes"], values, strict=True)))
    return table


def _time(part: pd.DataFrame) -> Row:
    arrivals = list(arrivals_by_seed(part).values())
    if not arrivals:
        return {"y": math.nan, "low": None, "high": None, "wire_bytes": math.nan}
    centre = estimate(arrivals)
    bound = ">" if math.isinf(centre.value) else ""
    sent = bytes_to_target(part)[1]
    return {"y": centre.at_least, "low": centre.low, "high": centre.high, "y_bound": bound, "wire_bytes": sent,
            "num": centre.num, "num_censored": centre.num_censored}  # fmt: skip


def _final(part: pd.DataFrame) -> Row:
    finals = part.drop_duplicates("seed")["final_metric"].dropna().astype(float)
    sent = part["wire_bytes"].dropna().astype(float)
    mean = float(finals.mean()) if len(finals) else math.nan
    half = student_t(len(finals) - 1) * finals.std() / math.sqrt(len(finals)) if len(finals) > 1 else math.nan
    positive = sent[sent > 0]
    spent = float(np.exp(np.log(positive).mean())) if len(positive) else math.nan
    return {"y": mean, "low": mean - half, "high": mean + half, "wire_bytes": spent, "num": len(finals)}


def _metric(results: Results) -> str:
    target_metric, _ = captions.target(results)
    return target_metric or next((folder.status and folder.status.metric) or "accuracy" for folder in results.done)


def _draw_points(axes: Axes, rows: pd.DataFrame, roles: Mapping[str, str], unit: float, scale: float) -> None:
    front = rows[rows["front"]].sort_values("wire_bytes")
    axes.plot(front["wire_bytes"] / unit, front["y"] / scale, zorder=2, **_FRONT)
    for row in rows.to_dict("records"):
        style, at = arm_style(row["arm"], roles[row["arm"]]), (row["wire_bytes"] / unit, row["y"] / scale)
        bound = bool(row["y_bound"])
        ends = (math.nan, math.nan) if bound else (row["low"] / scale, row["high"] / scale)
        draw_mark(axes, at, ends, style, hollow=not row["front"], **POINT)
        for sideways in (False, True) if bound else ():  # both its time and its bytes are more than that
            draw_arrow(axes, at, style.color, ">", sideways=sideways, shrink_pt=3)


def _limits(results: Results, table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of arms that reach the target and that no link concerns, with their role."""
    shown = table[table["arm"].isin(results.limits) & (table["y_bound"] == "")]
    return shown.assign(role=shown["arm"].map(results.roles)).to_dict("records")


def _how_to_read(table: pd.DataFrame) -> list[str]:
    mean = "geometric mean" if table["against"].iloc[0] == "time" else "mean"
    words = (
        [f"Marks: {mean} of the repeats; whiskers: 95 % interval (Student's t)."] if (table["num"] > 1).any() else []
    )
    if (table["y_bound"] != "").any():
        words.append("With arrows: fewer than half of the repeats reached the target in time; both are more than that.")
    if ((table["num_censored"] > 0) & (table["y_bound"] == "")).any():
        words.append("Where other repeats did not reach it, the mark is that of a censored log-normal fit.")
    silent = [str(arm) for arm in table[table["wire_bytes"].isna()]["arm"]]
    if silent:
        words.append(f"Without bytes: {', '.join(silent)}; lines across.")
    return [" ".join(words)] if words else []


def _name_arms(figure: Figure, axes: Axes, table: pd.DataFrame, results: Results, unit: float, scale: float) -> None:
    """Names beside the points; those of the limits on their lines, at the right."""
    right = axes.get_xlim()[1]
    avoid = []
    for row in _limits(results, table):
        label = captions.label_of(results, row["arm"], row["num_composed"], row["num"])
        text = axes.annotate(label, (1, row["y"] / scale), (0, 2), xycoords=("axes fraction", "data"), ha="right",
                             textcoords="offset points", fontsize=SMALL_PT, color=FAINT)  # fmt: skip
        text.set_in_layout(False)
        left = axes.get_xlim()[0]
        share = np.linspace(0, 1, 40)
        avoid += [(left ** (1 - at) * right**at, row["y"] / scale) for at in share]
        box = text.get_window_extent()
        inverse = axes.transData.inverted()
        for place in np.linspace(box.x0, box.x1, 12):
            x, y = inverse.transform((place, (box.y0 + box.y1) / 2))
            avoid.append((float(x), float(y)))
    named = []
    for row in table[table["wire_bytes"].notna()].to_dict("records"):
        label = captions.label_of(results, row["arm"], row["num_composed"], row["num"])
        clear_pt, x = _ARROWS_PT if row["y_bound"] else (), row["wire_bytes"] / unit
        named.append(Named(x, row["y"] / scale, label, bold=bool(row["front"]), clear_pt=clear_pt))
        avoid += whisker_places(x, row["low"] / scale, row["high"] / scale)
    name_points(figure, axes, named, [*avoid, *_along_front(table, unit, scale)])


def _along_front(table: pd.DataFrame, unit: float, scale: float) -> list[tuple[float, float]]:
    """Places along the line through the front, in data coordinates."""
    front = table[table["front"]].sort_values("wire_bytes")
    if len(front) < 2:
        return []
    log_y = bool((front["against"] == "time").all())  # as the axis
    x, y = np.log(front["wire_bytes"].to_numpy() / unit), front["y"].to_numpy() / scale
    places = np.linspace(0, len(front) - 1, 24 * (len(front) - 1))
    along_x = np.exp(np.interp(places, np.arange(len(front)), x))
    along_y = np.interp(places, np.arange(len(front)), np.log(y) if log_y else y)
    return list(zip(along_x.tolist(), (np.exp(along_y) if log_y else along_y).tolist(), strict=True))


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
            "samples": equal, "value": float(part[metric].mean()), "lost": difference.value,
            "low": math.nan if difference.low is None else difference.low,
            "high": math.nan if difference.high is None else difference.high,
            "wire_bytes": float(part["wire_bytes"].mean()), "num": difference.num,
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


class Precision(AbstractFigure):
    """A point an arm; with and without a residual are joined by a line, and the one without is hollow."""

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
        scale, what = (100.0, "accuracy") if metric == "accuracy" else (1.0, metric)
        title = f"Validation {what} less that of fp32 against bytes on the wire"
        setting = captions.setting_line(shown, num_runs=table["num"])
        marks: Any = {"color": INK, "marker": "o", "markersize": 4.5, "linestyle": "none"}
        legend = [Line2D([], [], label="residual kept, or none needed", **marks)]
        if (table["residual"] == False).any():  # noqa: E712 (of three values)
            legend.append(Line2D([], [], label=_WITHOUT, markerfacecolor="white", **marks))
        notes = [_how_to_read_losses(table, metric), *shown.notes]
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
            draw_mark(axes, at, ends, style, hollow=hollow, **POINT)
            codec = f"{row['codec']}, {_WITHOUT}" if hollow else str(row["codec"])
            named.append(Named(*at, captions.marked(codec, row["num_composed"], row["num"])))
        axes.margins(x=0.14, y=0.1)
        axes.autoscale_view()
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=width_in - 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        axes.set_xlabel(f"bytes on the wire, all nodes ({symbol})")
        axes.set_ylabel("accuracy less fp32's (percentage points)" if metric == "accuracy" else f"{metric} less fp32's")
        name_points(figure, axes, named, _line_places(axes, table, unit, scale))
        return figure


def _line_places(axes: Axes, table: pd.DataFrame, unit: float, scale: float) -> list[tuple[float, float]]:
    """Places on whiskers, on the lines that join pairs, and on the one at 0: no name may cover them."""
    places = []
    for row in table.to_dict("records"):
        places += whisker_places(row["wire_bytes"] / unit, scale * row["low"], scale * row["high"])
    for _, pair in table.groupby("pair"):
        x = pair["wire_bytes"].mean() / unit
        places += [(x, scale * level) for level in np.linspace(pair["lost"].min(), pair["lost"].max(), 12)]
    left, right = axes.get_xlim()
    return places + [(left ** (1 - share) * right**share, 0.0) for share in np.linspace(0, 1, 60)]


def _how_to_read_losses(table: pd.DataFrame, metric: str) -> str:
    words = [f"After {int(table['samples'].iloc[0]):,} samples, which all of these runs have seen."]
    words.append("Below 0: fp32 is better." if metric != "loss" else "Above 0: fp32 is better.")
    several = "Whiskers: 95 % interval each (Welch's t; arms that learn alike are paired by seed)."
    words.append(captions.on_repeats(table["num"], several))
    if table.groupby("pair").size().max() > 1:
        words.append("Dotted lines join the same codec with and without a residual.")
    return " ".join(words)
