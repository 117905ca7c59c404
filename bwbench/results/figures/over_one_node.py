"""Is it worth more than one node: speed-up over one node alone, against the number of nodes.

Its table has S/(B·T) as well, the gradient's time on the link in steps of computing, which is what decides it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import ALONE
from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.arm_labels import options_of
from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.crossover import scale_of
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.results import Results, arrivals_by_seed, once
from bwbench.results.analysis.statistics import Arrival, number
from bwbench.results.analysis.throughput import seconds_a_sample
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.families import Shown, shown_arms
from bwbench.results.figures.frame import framed_panels, label_outer, panel_title
from bwbench.results.figures.lines import LineEnd, name_ends
from bwbench.results.figures.marks import arm_handle, draw_mark, tick_at
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, TEXT_PT, ArmStyle, arm_style

OF_A_NODE = ("batch_size", "accumulate", "step_time_s")  # what makes one node alone the same machine at the same work
_BY = ("arm", "nodes", "bandwidth_bps", *OF_A_NODE)


@once
def speedup_table(results: Results) -> pd.DataFrame:
    """One row an arm, number of nodes, bandwidth and batch: its speed-up over ``single``.

    One node alone has the same batch and the same declared step; where there is only one kind of it, that one stands
    for all. Rows without any such reference, or where censoring leaves nothing to say, are left out. Of cells without a
    target it is the speed-up in samples a second.

    Returns:
        arm, nodes, bandwidth_bps, batch_size, accumulate, step_time_s, global_batch; ``speedup`` with ``low``, ``high``
        (NaN where there is none), ``bound`` (``<``, ``>``: it is less, more than that), ``num``, ``num_censored``;
        ``load``: S/(B·T), how long the gradient takes on the link in steps of computing, NaN where it is not known;
        ``line``: the arm whose line it belongs to, itself but where a search chose options by the number of nodes.
    """
    cells = results.cells
    rows = []
    times = arrivals_by_seed if results.has_times else _seconds_a_sample
    alone = {values: times(part) for values, part in _parts(_of(cells, alone=True), OF_A_NODE)}
    for values, part in _parts(_of(cells, alone=False), _BY):
        usual = next(iter(alone.values())) if len(alone) == 1 else None
        reference = alone.get(values[-len(OF_A_NODE) :], usual)
        ratio = ratio_of(reference, times(part)) if reference else None
        if ratio is None:
            continue
        row: Row = dict(zip(_BY, values, strict=True))
        row |= {"global_batch": int(part["global_batch"].iloc[0]), "speedup": ratio.value, "bound": ratio.bound}
        row |= {"low": ratio.low, "high": ratio.high, "num": ratio.num, "num_censored": ratio.num_censored}
        wanted = set(part["id"])
        scale = scale_of([folder for folder in results.done if folder.cell.id in wanted])
        load = scale.at(number(part["bandwidth_bps"].iloc[0]))
        rows.append(row | {"num_composed": int(part["composed"].sum()), "load": math.nan if load is None else load})
    columns = [*_BY, "global_batch", "speedup", "bound", "low", "high", "num", "num_censored", "num_composed", "load"]
    table = pd.DataFrame(rows, columns=columns)
    numbers = [column for column in columns if column not in ("arm", "bound")]
    table[numbers] = table[numbers].astype(float)
    return table.assign(line=table["arm"].map(_lines(table)).astype(object))


def _lines(table: pd.DataFrame) -> dict[str, str]:
    """By arm the one whose line it belongs to: arms are one line where they differ in options that never differ at one
    number of nodes, as those do that were tuned for each number of them."""
    settings: dict[str, set[tuple[Any, ...]]] = {}
    for arm, *setting in table[list(_BY)].itertuples(index=False):
        settings.setdefault(str(arm), set()).add(tuple(setting))
    left_out: set[str] = set()
    for option in sorted({key for arm in settings for key in options_of(arm)}):
        if all(_are_apart([settings[arm] for arm in arms]) for arms in _alike(settings, left_out | {option})):
            left_out.add(option)
    # It has the name of the arm that has the fewest options, which are the usual ones.
    return {arm: min(arms, key=lambda one: (len(one), one)) for arms in _alike(settings, left_out) for arm in arms}


def _alike(arms: Iterable[str], left_out: Collection[str]) -> list[list[str]]:
    """Arms that have all options in common but those."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for arm in arms:
        kept = tuple(sorted(item for item in options_of(arm).items() if item[0] not in left_out))
        found.setdefault((arm.partition("(")[0], kept), []).append(arm)
    return list(found.values())


def _are_apart(settings: Sequence[set[tuple[Any, ...]]]) -> bool:
    return len(set().union(*settings)) == sum(map(len, settings))


def _seconds_a_sample(cells: pd.DataFrame) -> dict[int, Arrival]:
    rows: list[Any] = cells.to_dict("records")  # their keys are names of columns
    return seconds_a_sample(rows)


def _of(cells: pd.DataFrame, *, alone: bool) -> pd.DataFrame:
    return cells[(cells["role"] == REFERENCE) == alone] if len(cells) else cells


def _parts(chosen: pd.DataFrame, by: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    if len(chosen):
        for values, part in chosen.groupby(list(by), dropna=False, sort=True):
            yield tuple(None if isinstance(value, float) and math.isnan(value) else value for value in values), part


_DODGE = 0.02  # decades between neighbouring arms
_MOST_PANELS = 4  # beside each other
_PANEL_IN = {True: 1.5, False: 1.15}  # height by whether the picture is wide
_LEAST_IN = 2.0  # of all rows
_LOWEST, _HIGHEST = 0.02, 50.0  # speed-ups beyond are cut off: whiskers at n = 2 may reach anywhere
_NOT_WORTH_IT: Any = {"color": "#d9d9d9", "alpha": 0.55, "linewidth": 0, "zorder": 0}
_IDEAL: Any = {"color": INK, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}


@dataclass(frozen=True)
class Family:
    """Rows in which the batch of a node, or that of all nodes, is held equal, of arms with two numbers of nodes."""

    label: str
    rows: pd.DataFrame


class SpeedUpByNodes(AbstractFigure):
    """A panel for each bandwidth, and a row of them for each batch that is held equal; below 1 it is not worth it."""

    name = "nodes"
    compares = frozenset({"nodes", "batch_size", "accumulate", "link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs ``single``, and one arm with two numbers of nodes at one batch."""
        if (why_not := _nothing_to_compare(results)) is not None:
            return why_not
        together = results.cells[results.cells["role"] != REFERENCE]
        several = together["nodes"].nunique() > 1  # where not, no table is needed to see it
        if several and (why_not := _why_not(results)) is not None:
            return why_not
        return None if several and families(speedup_table(results)) else "only one number of nodes at any one batch"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, number of nodes, bandwidth and batch."""
        return speedup_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        drawn, shown = _shown(results, families(table))
        rows = pd.concat([family.rows for family in shown])
        bandwidths, left_out = _panels(rows)
        marks = captions.common_marks(results)
        labels = {arm: marks.label(results, arm) for arm in drawn.arms}
        notes = [
            _how_to_read(rows, results, left_out),
            *drawn.note(results.labels),
            *_by_nodes(rows, labels),
            *results.notes,
        ]
        title = f"Speed-up over one node alone in {_in_what(results)}{marks.text}"
        setting = captions.setting_line(results, num_runs=rows["num"])
        body_in = max(len(shown) * _PANEL_IN[wide], _LEAST_IN) + 0.45
        shape = (len(shown), len(bandwidths))
        legend = [
            arm_handle(arm_style(arm, results.roles[arm]), label)
            for arm, label in labels.items()
            if _is_nowhere_named(arm, shown, bandwidths[-1])
        ]
        figure, grid = framed_panels(width_in, body_in, shape, title, setting, notes, legend, share=(True, True))
        limits = _limits(rows)
        counts = sorted({1.0, *rows["nodes"].unique()})
        labels = labels if wide else {arm: captions.in_short_lines(label) for arm, label in labels.items()}
        ends: list[list[LineEnd]] = []
        for family, panels in zip(shown, grid, strict=True):
            for axes, bandwidth in zip(panels, bandwidths, strict=True):
                here = _at(family.rows, bandwidth)
                found = _draw_by_nodes(axes, here, results.roles, labels, counts, limits)
            ends.append(found)  # names stand right of the last panel
        for axes, bandwidth in zip(grid[0], bandwidths, strict=True):
            panel_title(axes, "" if bandwidth is None else BANDWIDTH.format(bandwidth))
        label_outer(grid, "", "")
        grid[-1, (len(bandwidths) - 1) // 2].set_xlabel("nodes")  # of all panels
        for family, panels, its in zip(shown, grid, ends, strict=True):
            panels[0].set_ylabel(f"times one node,\nbatch {family.label}", fontsize=SMALL_PT)
            name_ends(figure, panels[-1], its, size_pt=TEXT_PT if wide else SMALL_PT, gap_pt=9.0)
        return figure


def _panels(rows: pd.DataFrame) -> tuple[list[float | None], list[float]]:
    """The bandwidths that get a panel, slowest first, some of them where there are many; and those that get none."""
    rates = sorted(float(rate) for rate in rows["bandwidth_bps"].dropna().unique())
    if not rates:
        return [None], []
    last = min(len(rates), _MOST_PANELS) - 1
    shown = [rates[round(number * (len(rates) - 1) / max(last, 1))] for number in range(last + 1)]
    return [*shown], [rate for rate in rates if rate not in shown]


def _at(rows: pd.DataFrame, bandwidth: float | None) -> pd.DataFrame:
    """Those of a panel; arms that no link concerns are in each."""
    return rows[rows["bandwidth_bps"].isna() | (rows["bandwidth_bps"] == bandwidth)]


def _is_nowhere_named(arm: str, shown: Sequence[Family], last: float | None) -> bool:
    """Whether a row of panels has the arm, but not its last panel, where names stand."""
    return any(
        (family.rows["line"] == arm).any() and not (_at(family.rows, last)["line"] == arm).any() for family in shown
    )


def _shown(results: Results, found: Sequence[Family]) -> tuple[Shown, list[Family]]:
    """The arms that are drawn, and of the families those that have any of them."""
    rows = pd.concat([family.rows for family in found])
    means = rows["speedup"].map(math.log).groupby(rows["line"]).mean().sort_values(ascending=False, kind="stable")
    drawn = shown_arms(results, [str(arm) for arm in means.index])
    kept = [Family(family.label, family.rows[family.rows["line"].isin(drawn.arms)]) for family in found]
    return drawn, [family for family in kept if len(family.rows)]


def _nothing_to_compare(results: Results) -> str | None:
    if (why_not := captions.without_times(results)) is not None:
        return why_not
    if not results.has_times and not (len(results.cells) and _seconds_a_sample(results.cells)):
        return "the cells have no target, and do not say how long they trained"
    if not (results.cells["role"] == REFERENCE).any():
        return f"the arm {ALONE!r} is not there to compare with"
    return None


def _why_not(results: Results) -> str | None:
    if (why_not := _nothing_to_compare(results)) is not None:
        return why_not
    return f"no arm shares a seed with {ALONE!r}" if speedup_table(results).empty else None


def families(table: pd.DataFrame) -> list[Family]:
    """What is held equal while nodes are added: the batch of a node, or that of all nodes; two numbers at least."""
    found = []
    for (batch, times), rows in table.groupby(["batch_size", "accumulate"]):
        words = f"{batch:g} a node" if times == 1 else f"{batch:g}×{times:g} a node"
        found.append(Family(words, rows))
    found += [Family(f"{batch:g} in all", rows) for batch, rows in table.groupby("global_batch")]
    several = [rows.groupby("line")["nodes"].transform("nunique") > 1 for rows in (family.rows for family in found)]
    kept = [Family(family.label, family.rows[lines]) for family, lines in zip(found, several, strict=True)]
    return [family for family in kept if len(family.rows)]


def _in_what(results: Results) -> str:
    return f"time to {captions.timed_target(results)}" if results.has_times else "samples a second"


def _by_nodes(rows: pd.DataFrame, labels: Mapping[str, str]) -> list[str]:
    """Which options differ along a line: ``diloco: outer_lr=0.5 with 2, 8; the usual with 4 nodes.``"""
    said = []
    for line, its in rows.groupby("line", sort=True):
        nodes = {str(arm): part["nodes"].unique() for arm, part in its.groupby("arm", sort=True)}
        if len(nodes) == 1:
            continue
        common = set.intersection(*(set(options_of(arm).items()) for arm in nodes))
        parts = []
        for arm, counts in nodes.items():
            own = [f"{key}={value}" for key, value in options_of(arm).items() if (key, value) not in common]
            parts.append(f"{', '.join(own) or 'the usual'} with {', '.join(f'{one:g}' for one in sorted(counts))}")
        said.append(f"{labels[str(line)].partition('(')[0]}: {'; '.join(parts)} nodes.")
    return said


def _how_to_read(rows: pd.DataFrame, results: Results, left_out: Sequence[float]) -> str:
    words = ["Grey: slower than one node alone, which has the batch and the step of each of the nodes."]
    several = "Marks: ratio of geometric means; whiskers: 95 % interval each (Welch's t on log time)."
    words.append(captions.on_repeats(rows["num"], several))
    if not results.has_times:
        words.append("Samples of all nodes together; more of them a second are not fewer seconds to a target.")
    if (rows["bound"] != "").any():
        words.append("Hollow with arrow: a bound, since one of the two did not reach the target.")
    if left_out:
        words.append(f"Not drawn, in the table beside: {', '.join(map(BANDWIDTH.format, left_out))}.")
    return " ".join(words)


def _label_speedups(axes: Axes, limits: tuple[float, float]) -> None:
    """The vertical axis of speed-ups: logarithmic, plain numbers, grey below 1."""
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    few = limits[1] / limits[0] > 300
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(True)
    axes.axhspan(limits[0], 1.0, **_NOT_WORTH_IT)
    axes.axhline(1.0, color=FAINT, linewidth=0.8, zorder=1)


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    low = min(0.8, rows["low"].min(), rows["speedup"].min() / 1.15)
    high = max(rows["nodes"].max() * 1.1, rows["high"].max(), rows["speedup"].max() * 1.15)
    least, most = rows["speedup"].min(), rows["speedup"].max()
    return max(low, least / 3, _LOWEST), min(high, max(most * 3, rows["nodes"].max() * 1.1), _HIGHEST)


def _draw_by_nodes(
    axes: Axes,
    rows: pd.DataFrame,
    roles: Mapping[str, str],
    labels: Mapping[str, str],
    counts: list[float],
    limits: tuple[float, float],
) -> list[LineEnd]:
    """One panel; returns where its lines end."""
    axes.set_xscale("log")
    _label_speedups(axes, limits)
    most = counts[-1]
    axes.plot([1, most], [1, most], zorder=1, **_IDEAL)
    ends = [LineEnd(most, most, "ideal", INK)]
    for position, (arm, label) in enumerate(labels.items()):
        line = rows[rows["line"] == arm].sort_values("nodes")
        if line.empty:
            continue
        dodge = 10 ** (_DODGE * (position - (len(labels) - 1) / 2))
        style = arm_style(arm, roles[arm])
        _draw_line(axes, line.assign(x=line["nodes"] * dodge), style, limits)
        ends.append(LineEnd(float(line["nodes"].iloc[-1]) * dodge, float(line["speedup"].iloc[-1]), label, style.color))
    axes.set_xlim(0.85, most * 1.25)
    tick_at(axes.xaxis, counts)
    return ends


def _draw_line(axes: Axes, line: pd.DataFrame, style: ArmStyle, limits: tuple[float, float]) -> None:
    """Marks at the column ``x``, and a line through those that are no bounds."""
    known = line[line["bound"] == ""]
    axes.plot(known["x"], known["speedup"], color=style.color, linestyle=style.line, linewidth=1.2, zorder=3)
    for row in line.to_dict("records"):
        ends = (max(row["low"], limits[0]), min(row["high"], limits[1]))
        draw_mark(axes, (row["x"], row["speedup"]), ends, style, row["bound"], size=4.2)
