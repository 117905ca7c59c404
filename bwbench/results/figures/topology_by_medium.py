"""Does decentral averaging suffer less: time to the target and of a step by number of nodes, on links of one's own and
on one air that all share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.methods.roles import CENTRAL, EXACT, HEADROOM, PARTIAL, REFERENCE, UNKNOWN, Topology, topology_by_name
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.cells import Row, name_of, value_at
from bwbench.results.analysis.results import ENDS, Results, arrivals_by_seed, ends_of, once
from bwbench.results.analysis.statistics import Estimate, estimate, geometric_interval, number
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_panels, panel_title
from bwbench.results.figures.marks import arm_handle, draw_mark, label_log_axis, tick_at
from bwbench.results.figures.style import INK, PAGE_IN, ArmStyle, arm_style

_EXACT_LINE, _PARTIAL_LINE = "-", (0, (2, 1.3))
_WIRED_LINE: Any = (0, (6, 1.5, 1, 1.5))
_WIRED_MARKER = "s"
_DODGE = 0.014  # decades between neighbouring arms
_AVERAGING_WORDS = {EXACT: "", PARTIAL: ", partial", UNKNOWN: ", averaging unknown"}
_WORDS = {"switched": "links of one's own (switched)", "shared": "one air for all (shared)"}


class TopologyByMedium(AbstractFigure):
    """A column for each medium; above time to target, below time of a step. Full marks are central, hollow ones
    decentral; broken lines average partially."""

    name = "topology"
    compares = frozenset({"nodes", "link.medium", "link.wired"})

    def applies(self, results: Results) -> str | None:
        """Needs central and decentral arms, and two media or numbers of nodes."""
        if why_not := captions.without_times(results):
            return why_not
        places = {topology.place for folder in results.done if (topology := topology_of(folder.cell)) is not None}
        if len(places) < 2:  # most experiments: the table takes a while
            return "no central arm beside a decentral one"
        table = topology_table(results)
        linked = table[table["topology"] != ""]
        if linked["place"].nunique() < 2:
            return "no central arm beside a decentral one"
        if linked["medium"].nunique() < 2 and linked["nodes"].nunique() < 2:
            return "one medium and one number of nodes"
        return None

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm, medium, way of being wired, and number of nodes."""
        return topology_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, wide = self.table(results), width_in >= PAGE_IN
        linked = table[table["topology"] != ""]
        media = sorted(linked["medium"].unique(), reverse=True)
        timed = linked["time_value"].notna().any()
        rows = ["time", "step"] if timed else ["step"]
        title = f"Central and decentral averaging: time to {captions.timed_target(results)}" if timed else (
            "Central and decentral averaging: time of a step"
        )  # fmt: skip
        setting = captions.setting_line(results, num_runs=linked["num"])
        variants = linked.drop_duplicates("variant").sort_values(["place", "averaging", "variant"])
        sums = linked.groupby("variant")[["num_composed", "num"]].sum()
        legend = [_handle(row, results, sums.loc[row["variant"]]) for row in variants.to_dict("records")]
        notes = [_how_to_read(table, results.roles), *results.notes]
        body_in = len(rows) * (2.0 if wide else 1.55) + 0.25
        figure, grid = framed_panels(width_in, body_in, (len(rows), len(media)), title, setting, notes, legend,
                                     share=(True, "row"))  # fmt: skip
        for line, what in enumerate(rows):
            unit = captions.time_unit(math.sqrt(linked[f"{what}_at_least"].max() * linked[f"{what}_at_least"].min()))
            for column, medium in enumerate(media):
                axes = grid[line, column]
                here = linked[linked["medium"] == medium]
                _draw_panel(axes, here, list(variants["variant"]), results.roles, what, unit.seconds)
                if what == "time":
                    _draw_limits(axes, table, results.roles, unit.seconds)
                panel_title(axes, (_WORDS.get(medium, medium) if wide else medium) if line == 0 else "")
            grid[line, 0].set_ylabel(f"{'time to target' if what == 'time' else 'time of a step'} ({unit.symbol})")
            low, high = grid[line, 0].get_ylim()
            label_log_axis(grid[line, 0].yaxis, low, high, length_in=2.6 if wide else 1.9)
        nodes = sorted(linked["nodes"].unique())
        for axes in grid.flat:
            tick_at(axes.xaxis, nodes)
        for axes in grid[-1]:
            axes.set_xlabel("nodes")
        return figure


@once
def topology_table(results: Results) -> pd.DataFrame:
    """One row an arm, medium, wiring and number of nodes.

    Returns:
        arm, variant (with ``, wired`` where nodes have a wire to the access point), topology, averaging, place, medium
        and nodes; of ``time`` (to the target) and ``step`` seconds each: ``_value`` (infinite where fewer than half
        did not reach it, NaN without a target), ``_low``, ``_high``, ``_at_least``. Arms that average over no link
        have an empty ``topology``.
    """
    cells = results.cells.copy()
    wired = {folder.cell.id: json.dumps(value_at(folder.cell.config, "link.wired") or []) for folder in results.done}
    cells["wired"] = cells["id"].map(wired)
    topologies = {folder.cell.id: topology_of(folder.cell) for folder in results.done}
    rows = []
    for (arm, medium, wires, nodes), part in cells.groupby(
        ["arm", "medium", "wired", "nodes"], dropna=False, sort=True
    ):
        topology = topologies[part["id"].iloc[0]]
        arrivals = list(arrivals_by_seed(part).values())
        taken = [(number(row["training_clock_s"]), number(row["steps"])) for row in part.to_dict("records")]
        steps = [clock_s / count for clock_s, count in taken if clock_s and count]
        if not steps:
            continue
        step_s, low_s, high_s = geometric_interval(steps)
        composed, num = int(part["composed"].sum()), len(part)
        variant = str(arm) if wires == "[]" else f"{arm}, wired"
        about = {"topology": "", "averaging": "", "place": ""}
        if topology is not None:
            about = {"topology": topology.name, "averaging": topology.averaging, "place": topology.place}
        row: Row = {"arm": str(arm), "variant": variant, **about, "medium": medium if isinstance(medium, str) else "",
                    "wired": wires, "nodes": int(str(nodes)), "num": num, "num_composed": composed}  # fmt: skip
        row |= ends_of("time", estimate(arrivals) if arrivals else None)
        rows.append(row | ends_of("step", Estimate(step_s, low_s, high_s, step_s, num, 0)))
    table = pd.DataFrame(rows)
    numbers = [f"{what}_{end}" for what in ("time", "step") for end in ENDS]
    table[numbers] = table[numbers].astype(float)
    return table


def _handle(row: dict[Any, Any], results: Results, sums: pd.Series) -> Line2D:
    role, wired = results.roles[row["arm"]], row["variant"].removeprefix(row["arm"])
    label = captions.arm_label(results.labels[row["arm"]] + wired, role, sums["num_composed"], sums["num"])
    style, central = arm_style(row["arm"], role), row["place"] == CENTRAL
    words = row["topology"] + _AVERAGING_WORDS.get(row["averaging"], "")
    hollow: Any = (
        {} if central else {"markeredgecolor": style.color, "markeredgewidth": 0.9, "markerfacecolor": "white"}
    )
    return arm_handle(style, f"{label}: {words}", linestyle=_line(row), marker=_marker(row, style), **hollow)


def _marker(row: dict[Any, Any], style: ArmStyle) -> str:
    return style.marker if row["wired"] == "[]" else _WIRED_MARKER


def _line(row: dict[Any, Any]) -> Any:
    if row["wired"] != "[]":
        return _WIRED_LINE
    return _PARTIAL_LINE if row["averaging"] == PARTIAL else _EXACT_LINE


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, variants: list[str], roles: Mapping[str, str], what: str, unit: float
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True)
    axes.margins(x=0.1, y=0.12)
    for position, variant in enumerate(variants):
        line = rows[rows["variant"] == variant].sort_values("nodes")
        dodge = 10 ** (_DODGE * (position - (len(variants) - 1) / 2))
        for first in line.to_dict("records")[:1]:
            style = arm_style(first["arm"], roles[first["arm"]])
            reached = line[line[f"{what}_value"].map(math.isfinite)]
            axes.plot(reached["nodes"] * dodge, reached[f"{what}_value"] / unit, color=style.color,
                      linestyle=_line(first), linewidth=1.3, zorder=3)  # fmt: skip
        for row in line.to_dict("records"):
            if math.isnan(row[f"{what}_at_least"]):
                continue
            at = (row["nodes"] * dodge, row[f"{what}_at_least"] / unit)
            ends = (row[f"{what}_low"] / unit, row[f"{what}_high"] / unit)
            bound = "" if math.isfinite(row[f"{what}_value"]) else ">"
            draw_mark(axes, at, ends, style, bound, 4.8, hollow=row["place"] != CENTRAL, marker=_marker(row, style))


def _draw_limits(axes: Axes, table: pd.DataFrame, roles: Mapping[str, str], unit: float) -> None:
    """One node alone across the panel; what a free network would give, by number of nodes."""
    reached, of_arm = table["time_value"].map(math.isfinite), table["arm"].map(roles)
    single = table[(of_arm == REFERENCE) & reached]
    if len(single):
        axes.axhline(single["time_value"].iloc[0] / unit, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    free = table[(of_arm == HEADROOM) & reached].sort_values("nodes")
    free = free.drop_duplicates("nodes")
    style = arm_style("", HEADROOM)
    axes.plot(
        free["nodes"], free["time_value"] / unit, color=style.color, linewidth=1.0, linestyle=style.line, zorder=1
    )


def _how_to_read(table: pd.DataFrame, roles: Mapping[str, str]) -> str:
    words = ["Full marks: central; hollow: decentral. Solid lines: exact averages; broken: partial ones"]
    words[0] += (
        " (with long dashes: the server has a wire to the access point)." if (table["wired"] != "[]").any() else "."
    )
    shown = {roles[arm] for arm in table["arm"]}
    if REFERENCE in shown:
        words.append("Black broken line: one node alone.")
    if HEADROOM in shown:
        words.append("Grey: no communication.")
    if (table["num"] > 1).any():
        words.append("Marks: geometric mean; whiskers: 95 % interval (Student's t on log time).")
    if table["time_value"].map(math.isinf).any():
        words.append("With an arrow: fewer than half of the repeats reached the target within the limit.")
    return " ".join(words)


def topology_of(cell: CellRecord) -> Topology | None:
    """Who averages with whom in a cell, as recorded; in an older one as its collective declares it by now.

    None where nothing is averaged over a link.
    """
    if "topology" in cell.model_fields_set:
        return None if (said := cell.topology) is None else Topology(said.name, said.averaging, said.place)
    return topology_by_name(name_of(cell.config.get("collective")))
