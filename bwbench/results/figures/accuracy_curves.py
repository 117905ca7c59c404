"""What accuracy costs: the validation metric against the training clock, the samples, and the bytes on the wire.

Every run is a thin line, each arm's mean a bold one. The mean is taken across, not up: at each level of the metric, the
geometric mean over the repeats of the cost at which they first met it. So the line ends at the target where the other
figures say that the arm arrived, and no run that has ended already is missing from a mean of those that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import may_win
from bwbench.results.analysis.cells import is_virtual
from bwbench.results.analysis.results import CURVE_COLUMNS, OF_STEPS, Results, samples_by_seed, with_wire_bytes
from bwbench.results.analysis.statistics import Arrival, estimate
from bwbench.results.analysis.trial import DEFAULT_METRICS
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.families import shown_arms
from bwbench.results.figures.frame import framed_axes, legend_columns
from bwbench.results.figures.marks import arm_handle, label_log_axis
from bwbench.results.figures.style import FAINT, PAGE_IN, SMALL_PT, ArmStyle, arm_style

_TARGET_LINE: Any = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}
_NOT_METRICS = frozenset({*CURVE_COLUMNS, "target_met", "wire_bytes", "bytes_from"})
_LOG_FROM_RATIO = 5.0  # arms that end this much apart would be a vertical line on a linear axis
_LEGEND_ROW_IN = 0.17
_MEAN_NOTE = "Bold: where the repeats first met each level, geometric mean. Thin: every run, one a seed."
_ARRIVAL_NOTE = "Large marks: the target."
_MARKS = 4  # along a line, to tell it in grey
_LEVELS = 160  # at which a mean is taken, at most
_FAINT_FROM = 6  # arms: more thin lines than that are drawn fainter


@dataclass(frozen=True)
class Cost:
    """What the horizontal axis shows.

    Attributes:
        column: of the curves.
        label: of the axis, with the symbol of the unit.
        unit_of: symbol of the unit for costs of about this size, and how many of the column's make one of it.
        to_target: what stands after the names in the legend; None: nothing does.
    """

    column: str
    label: Callable[[str], str]
    unit_of: Callable[[float], tuple[str, float]]
    to_target: str | None


def draw_curves(
    results: Results, curves: pd.DataFrame, width_in: float, notes: Sequence[str], cost: Cost,
    labels: Sequence[tuple[str, str, float]],
) -> Figure:  # fmt: skip
    """The whole picture of one metric against one cost.

    Args:
        curves: evaluations to draw, with ``cost.column``.
        notes: beside the one on means.
        labels: arms with what stands in the legend, in its order; and their cost to the target, NaN or infinite where
            they have none.
    """
    metric = metric_of(results)
    drawn = shown_arms(results, [arm for arm, _, _ in labels if may_win(results.roles[arm])])
    labels = [one for one in labels if one[0] not in drawn.others]
    arrivals = {arm: at for arm, _, at in labels}
    curves = curves[~curves["arm"].isin(drawn.others)]
    arms = {str(arm): [run for _, run in part.groupby("id")] for arm, part in curves.groupby("arm")}
    counts = [len(runs) for runs in arms.values()]
    setting = captions.setting_line(results, num_runs=counts)
    entries = [arm_handle(arm_style(arm, results.roles[arm]), label, linewidth=1.5) for arm, label, _ in labels]
    if cost.to_target is not None:
        target = captions.timed_target(results).replace(" validation accuracy", "")
        entries.insert(0, Line2D([], [], label=f"target: {target}", **_TARGET_LINE))
    reading = [*([_MEAN_NOTE] if max(counts) > 1 else []),
               *([_ARRIVAL_NOTE] if any(map(math.isfinite, arrivals.values())) else [])]  # fmt: skip
    shown_notes = [" ".join(reading), *drawn.note(results.labels), *notes]
    words = metric_words(metric).capitalize() + captions.common_marks(results).text
    figure, axes = _framed_curves(width_in, words, setting, shown_notes, entries, cost.to_target)
    ends = curves.groupby("id")[cost.column].max()
    logarithmic = bool(ends.max() > _LOG_FROM_RATIO * max(ends.min(), 1e-9))
    symbol, unit = cost.unit_of(math.sqrt(ends.max() * ends.min()) if logarithmic else float(ends.max()))
    for arm, runs in sorted(arms.items()):
        shown = [run[run[cost.column] > 0] if logarithmic else run for run in runs]
        if shown := [run for run in shown if len(run)]:
            alpha = 0.4 if len(arms) < _FAINT_FROM else 0.18
            _draw_arm(axes, arm_style(arm, results.roles[arm]), shown, metric, cost.column, unit, alpha)
            if math.isfinite(at := arrivals[arm]):
                level = _level_of(runs, at, metric, cost.column, captions.target(results)[1])
                axes.plot(at / unit, level, color=arm_style(arm, results.roles[arm]).color, zorder=5, markersize=5.5,
                          marker=arm_style(arm, results.roles[arm]).marker, markeredgecolor="white",
                          markeredgewidth=0.4)  # fmt: skip
    _finish_metric(axes, results, metric)
    axes.set_xlabel(cost.label(symbol))
    if logarithmic:
        axes.set_xscale("log")
        label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=2.7)
    else:
        axes.set_xlim(left=0)
    return figure


def metric_of(results: Results) -> str:
    """The metric to draw: the target's, else accuracy or loss, else whatever was recorded."""
    target_metric, _ = captions.target(results)
    columns = [column for column in results.curves.columns if column not in _NOT_METRICS]
    return next(metric for metric in (target_metric, *DEFAULT_METRICS, *columns) if metric in columns)


def metric_words(metric: str) -> str:
    """``validation accuracy``, ``validation loss (nats)``."""
    return "validation loss (nats)" if metric == "loss" else f"validation {metric}"


def mean_line(runs: Sequence[pd.DataFrame], metric: str, column: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Costs and levels of the mean of an arm's runs, up to the level that all of them have met.

    Args:
        runs: evaluations of each run, in order; those at a cost of 0 count where they are.
    """
    falls = metric == "loss"
    best = [run[metric].cummin() if falls else run[metric].cummax() for run in runs]
    start = max(values.iloc[0] for values in best) if not falls else min(values.iloc[0] for values in best)
    end = max(values.iloc[-1] for values in best) if falls else min(values.iloc[-1] for values in best)
    levels = np.unique(np.concatenate([values.to_numpy() for values in best]))
    low, high = min(start, end), max(start, end)
    levels = levels[(levels >= low) & (levels <= high)]
    levels = levels[::-1] if falls else levels
    levels = levels[np.unique(np.linspace(0, len(levels) - 1, min(_LEVELS, len(levels))).round().astype(int))]
    costs = []
    for run, values in zip(runs, best, strict=True):
        better = values.diff().fillna(-1.0 if falls else 1.0) != 0  # between two evaluations on a straight line
        sign = -1.0 if falls else 1.0
        costs.append(np.interp(sign * levels, sign * values[better], run[column][better]))
    with np.errstate(divide="ignore"):  # a cost of 0 stays 0
        return np.exp(np.mean(np.log(np.array(costs, dtype=float)), axis=0)), levels


def _framed_curves(
    width_in: float, title: str, setting: str, notes: list[str], entries: list[Line2D], ranked_by: str | None
) -> tuple[Figure, Axes]:
    """Axes with the legend beside them on a page, and above them in a column.

    Args:
        ranked_by: what stands after the names in the legend, smallest first; None: nothing does.
    """
    if width_in < PAGE_IN:
        if ranked_by:
            notes = [f"After the names: {ranked_by}, least first.", *notes]
        return framed_axes(width_in, 2.4, title, setting, notes, entries, legend_columns(width_in, entries))
    body_in = max(2.75, _LEGEND_ROW_IN * len(entries) + 0.6)
    figure, axes = framed_axes(width_in, body_in, title, setting, notes)
    heading = f"{ranked_by}, least first" if ranked_by else None
    legend = axes.legend(
        handles=entries, title=heading, title_fontsize=SMALL_PT, handlelength=2.6, borderpad=0, loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
    )  # fmt: skip
    legend.set_alignment("left")
    return figure, axes


def _draw_arm(
    axes: Axes, style: ArmStyle, runs: Sequence[pd.DataFrame], metric: str, column: str, unit: float, alpha: float
) -> None:
    """One arm: every run thin, the mean bold with the arm's marks."""
    for run in runs if len(runs) > 1 else ():
        axes.plot(run[column] / unit, run[metric], color=style.color, linewidth=0.5, alpha=alpha, zorder=2)
    costs, levels = mean_line(runs, metric, column)
    step = max(1, len(costs) // _MARKS)
    axes.plot(costs / unit, levels, color=style.color, linestyle=style.line, linewidth=1.4, zorder=3,
              marker=style.marker, markersize=3.2, markevery=(step // 2, step), markeredgecolor="white",
              markeredgewidth=0.3)  # fmt: skip


def _level_of(runs: Sequence[pd.DataFrame], at: float, metric: str, column: str, target: float) -> float:
    """How high the mark of an arm's arrival lies: a mean of first meetings on their mean level; what was fitted, on the
    target."""
    arrived = [run[run["target_met"]] for run in runs]
    if not all(len(run) for run in arrived):
        return target
    first = [(run[column].iloc[0], run[metric].iloc[0]) for run in arrived]
    met = math.exp(math.fsum(math.log(cost) for cost, _ in first) / len(first)) if all(c for c, _ in first) else 0.0
    return float(np.mean([level for _, level in first])) if math.isclose(met, at, rel_tol=0.01) else target


def _finish_metric(axes: Axes, results: Results, metric: str) -> None:
    axes.grid(True)
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    target_metric, value = captions.target(results)
    if target_metric == metric:
        axes.axhline(value, zorder=1, **_TARGET_LINE)


_MUCH = 1.1  # times as many bytes as on the link that is shown, from which on a note says so


class AccuracyOverTime(AbstractFigure):
    """Every run as a thin line, and boldly each arm's mean time to every level of the metric."""

    name = "accuracy-over-time"

    def applies(self, results: Results) -> str | None:
        """Needs one cell that is done and was evaluated after its first step, of nodes that have times."""
        if why_not := captions.without_times(results):
            return f"{why_not}; accuracy-over-samples shows what they learn"
        return None if (self.table(results)["clock_s"] > 0).any() else "no evaluation was recorded"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of every run but those of virtual nodes, whose times say nothing."""
        virtual = {folder.cell.id for folder in results.done if is_virtual(folder)}
        return results.curves[~results.curves["id"].isin(virtual)]

    def _draw(self, results: Results, width_in: float) -> Figure:
        timed, curves = not results.times.empty, self.table(results)
        label = "training time ({}, evaluation excluded)".format
        cost = Cost("clock_s", label, captions.time_unit, "time to target" if timed else None)
        labels = _labels(results, sorted(set(curves["arm"])))
        return draw_curves(results, curves, width_in, results.notes, cost, labels)


def _labels(results: Results, arms: list[str]) -> list[tuple[str, str, float]]:
    ordered = results.times.sort_values(["time_s", "at_least_s", "arm"])
    times = {str(row["arm"]): row for row in ordered.to_dict("records")}
    labels, marks = [], captions.common_marks(results)
    for arm in [arm for arm in times if arm in arms] + sorted(arm for arm in arms if arm not in times):
        label = marks.label(results, arm)
        if row := times.get(arm):
            bound = "> " if math.isinf(row["time_s"]) else ""
            label += f": {bound}{captions.seconds(row['at_least_s'])}"
        labels.append((arm, label, float(row["time_s"]) if row else math.nan))
    return labels


class AccuracyOverSamples(AbstractFigure):
    """As accuracy-over-time, on the axis of the samples that all nodes have seen: for nodes that have no times."""

    name = "accuracy-over-samples"

    def applies(self, results: Results) -> str | None:
        """Needs a cell of virtual nodes that is done and was evaluated after its first step."""
        if not any(map(is_virtual, results.done)):
            return "the cells have times: accuracy-over-time shows them"
        return None if (results.curves["samples"] > 0).any() else "no evaluation was recorded"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of every run."""
        return results.curves

    def _draw(self, results: Results, width_in: float) -> Figure:
        needed = {}
        for arm, cells in results.cells.groupby("arm"):
            if found := samples_by_seed(cells):
                needed[str(arm)] = estimate(list(found.values()))
        labels, marks = [], captions.common_marks(results)
        arms = sorted(set(results.curves["arm"]))
        for arm in [*sorted(needed, key=lambda arm: (needed[arm].value, needed[arm].at_least, arm)),
                    *(arm for arm in arms if arm not in needed)]:  # fmt: skip
            label = marks.label(results, arm)
            if (to_target := needed.get(arm)) is not None:
                bound = "> " if math.isinf(to_target.value) else ""
                label += f": {bound}{to_target.at_least:,.0f}"
            labels.append((arm, label, to_target.value if to_target else math.nan))
        cost = Cost("samples", _samples_axis, _samples_unit, "samples to target" if needed else None)
        return draw_curves(results, results.curves, width_in, results.notes, cost, labels)


def _samples_unit(most: float) -> tuple[str, float]:
    return next((word, unit) for word, unit in (("millions", 1e6), ("thousands", 1e3), ("", 1.0)) if most >= 10 * unit
                or unit == 1)  # fmt: skip


def _samples_axis(unit: str) -> str:
    return f"training samples, all nodes{f' ({unit})' if unit else ''}"


class AccuracyOverBytes(AbstractFigure):
    """As accuracy-over-time, on the axis of what all nodes have sent; arms that send nothing are named below."""

    name = "accuracy-over-bytes"
    in_detail = True
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs one evaluation after something was sent and counted."""
        if (results.curves["clock_s"] > 0).sum() == 0:
            return "no evaluation was recorded"
        return None if (self.table(results)["wire_bytes"] > 0).any() else "no bytes were counted on the wire"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of the runs on one link, with the bytes that all nodes had sent by then."""
        on_one_link = one_link(results)
        return with_wire_bytes(on_one_link.curves, on_one_link.cells)

    def _draw(self, results: Results, width_in: float) -> Figure:
        shown, curves = one_link(results), self.table(results)
        sending = curves[curves.groupby("id")["wire_bytes"].transform("max") > 0]
        arms = sorted({str(arm) for arm in sending["arm"]})
        spent = {arm: bytes_to_target(shown.cells[shown.cells["arm"] == arm]) for arm in arms}
        timed = any(not math.isnan(value) for value, _ in spent.values())
        labels, marks = [], captions.common_marks(shown)
        for arm in sorted(arms, key=lambda arm: (*spent[arm], arm)):
            name, (value, at_least) = marks.label(shown, arm), spent[arm]
            bound = "> " if math.isinf(value) else ""
            reached = "–" if math.isnan(value) else f"{bound}{captions.byte_words(at_least)}"
            labels.append((arm, f"{name}: {reached}" if timed else name, value))
        label = "bytes on the wire, all nodes ({})".format
        cost = Cost("wire_bytes", label, captions.bytes_unit, "bytes to target" if timed else None)
        notes = _notes(results, shown, curves, set(arms))
        return draw_curves(shown, sending, width_in, notes, cost, labels)


def one_link(results: Results) -> Results:
    """The cells at the fastest link, and at the shortest round trip of it: bytes hardly depend on the link.

    Where arms ran on different links, that is the link that most arms ran on.
    """
    cells = results.cells
    linked = cells[cells["bandwidth_bps"].notna()]
    if linked.empty:
        return results
    arms = linked.groupby(["bandwidth_bps", "rtt_s"], dropna=False)["arm"].nunique().reset_index(name="num_arms")
    best = arms.sort_values(["num_arms", "bandwidth_bps", "rtt_s"], ascending=[False, False, True]).iloc[0]
    here = (cells["bandwidth_bps"] == best["bandwidth_bps"]) & (cells["rtt_s"] == best["rtt_s"])
    wanted = set(cells[here | (cells["bandwidth_bps"].isna())]["id"])
    if len(wanted) == len(set(cells["id"])):
        return results
    folders = tuple(folder for folder in results.folders if folder.cell.id in wanted)
    return replace(results, group=replace(results.group, folders=folders))


def bytes_to_target(cells: pd.DataFrame) -> tuple[float, float]:
    """Geometric mean over an arm's repeats of the wire bytes to the target, infinite where fewer than half did not
    reach it; and what it is known to exceed. Both NaN where nothing is known."""
    arrivals = []
    for row in cells.drop_duplicates("seed").to_dict("records"):
        to_target, whole = (
            None if pd.isna(row[key]) else float(row[key]) for key in ("wire_bytes_to_target", "wire_bytes")
        )
        if to_target:
            arrivals.append(Arrival(to_target))
        elif whole and not pd.isna(row["censored_at_s"]):
            arrivals.append(Arrival(None, whole))
    if not arrivals:
        return math.nan, math.nan
    centre = estimate(arrivals)
    return centre.value, centre.at_least


def _elsewhere(results: Results, shown: Results, sending: set[str]) -> str:
    """What the arms send to the target on the links that are not shown, in words."""
    words = []
    for arm, cells in results.cells.groupby("arm"):
        if arm not in sending:
            continue
        here = bytes_to_target(shown.cells[shown.cells["arm"] == arm])[0]
        if not math.isfinite(here):  # it does not arrive on the link that is shown: nothing to compare with
            continue
        links = [part for _, part in cells.groupby(["bandwidth_bps", "rtt_s"], dropna=False)]
        times = [bytes_to_target(part)[0] / here for part in links]
        times = [one for one in times if math.isfinite(one)]
        if times and (min(times) < 1 / _MUCH or max(times) > _MUCH):
            words.append(f"{results.labels[str(arm)]} {min(times):.2g} to {max(times):.2g} times as much")
    return f"on other links, {', '.join(words)} to the target" if words else "what is sent hardly depends on the link"


def _notes(results: Results, shown: Results, curves: pd.DataFrame, sending: set[str]) -> list[str]:
    notes = []
    if shown is not results:
        bandwidth = shown.cells["bandwidth_bps"].dropna().iloc[0]
        notes.append(f"Runs at {BANDWIDTH.show(float(bandwidth), 4)}; {_elsewhere(results, shown, sending)}.")
    silent = [results.labels[arm] for arm in sorted(set(curves["arm"]) - sending)]
    if silent:
        notes.append(f"Not drawn, since nothing of theirs was counted on the wire: {', '.join(silent)}.")
    if (curves[curves["arm"].isin(sending)]["bytes_from"] == OF_STEPS).any():
        notes.append("Bytes at an evaluation: the run's wire bytes in proportion to its steps.")
    else:
        notes.append("Bytes at an evaluation: the run's wire bytes in proportion to the payload sent by then.")
    return [*notes, *shown.notes]
