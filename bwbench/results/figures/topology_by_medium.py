"""Does decentral averaging suffer less: a map of topologies over numbers of nodes, on links of one's own and on one
air that all share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd
from matplotlib.figure import Figure

from bwbench.methods.roles import CENTRAL, DECENTRAL, EXACT, PARTIAL, REFERENCE, UNKNOWN, Topology, topology_by_name
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.best_set import BestSet, best_set
from bwbench.results.analysis.cells import Row as TableRow
from bwbench.results.analysis.cells import name_of, value_at
from bwbench.results.analysis.results import ENDS, Results, arrivals_by_seed, ends_of, once
from bwbench.results.analysis.statistics import Arrival, Estimate, estimate, geometric_interval, number
from bwbench.results.figures import captions
from bwbench.results.figures.arm_map import Column, MapCell, Row, cells_of, draw_map, height_in, how_to_read, on_empty
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.style import PAGE_IN

_AVERAGING_WORDS = {EXACT: "", PARTIAL: ", partial", UNKNOWN: ", averaging unknown"}
_MEDIA = {"switched": "switched", "shared": "shared air"}
_ORDER = (CENTRAL, DECENTRAL)

_ONE_LINE = 26  # letters of a row's name in a narrow picture

Where: TypeAlias = tuple[str, int]  # a medium, and a number of nodes


class TopologyByMedium(AbstractFigure):
    """A row an arm, central ones above decentral ones; a column a medium and number of nodes. Who may be the fastest
    there is dark."""

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
        table, wide = topology_table(results), width_in >= PAGE_IN
        linked = table[table["topology"] != ""]
        timed = bool(linked["time_value"].notna().any())
        marks = captions.common_marks(results)
        known = {(str(row["medium"]), int(row["nodes"])) for row in linked.to_dict("records")}
        order = list(_MEDIA)  # others stand behind
        places = sorted(known, key=lambda where: (order.index(where[0]) if where[0] in order else len(order), where))
        races = races_of(results, timed=timed)
        cells = {
            (variant, number): cell
            for number, place in enumerate(places)
            for variant, cell in cells_of(races[place]).items()
        }
        rows = [*_rows(linked, results, marks, wide=wide)]
        if timed:
            rows += [*_alone(table, results, places, races, cells)]
        by_nodes = len({nodes for _, nodes in places}) > 1
        media = [_MEDIA.get(medium, medium) for medium, _ in places]
        columns = [
            Column(str(nodes), name) if by_nodes else Column(name)
            for name, (_, nodes) in zip(media, places, strict=True)
        ]
        what = f"time to {captions.timed_target(results)}" if timed else "time of a step"
        title = f"Central and decentral averaging: {what}{marks.text}"
        setting = captions.setting_line(results, num_runs=linked["num"])
        missing = any((row.key, number) not in cells for row in rows if row.key for number in range(len(columns)))
        words = ["Central: one node, or every node for its share, averages for all.", how_to_read(cells, "in a column")]
        note = " ".join([*words, *on_empty(list(races.values()), missing=missing)])
        figure, axes = framed_axes(width_in, height_in(rows) + 0.58, title, setting, [note, *results.notes])
        axes.set_xlabel("nodes" if by_nodes else "medium", labelpad=13 if by_nodes else 4)
        draw_map(figure, axes, rows, columns, cells)
        return figure


def _rows(linked: pd.DataFrame, results: Results, marks: captions.CommonMarks, *, wide: bool) -> Iterator[Row]:
    """The ways of averaging below the heading of their place, each with its topology."""
    variants = linked.drop_duplicates("variant").sort_values(["place", "averaging", "variant"]).to_dict("records")
    for place in _ORDER:
        its = [row for row in variants if row["place"] == place]
        if its:
            yield Row("", place)
        for row in its:
            name = marks.label(results, row["arm"]) + row["variant"].removeprefix(row["arm"])
            topology = row["topology"] + _AVERAGING_WORDS.get(row["averaging"], "")
            named = name.rstrip("†⊙").partition(",")[0]
            together = f"{name}: {topology}" if topology != named else name
            yield Row(row["variant"], together if wide or len(together) <= _ONE_LINE else f"{name}:\n{topology}")


def _alone(
    table: pd.DataFrame,
    results: Results,
    places: list[Where],
    races: Mapping[Where, BestSet],
    cells: dict[tuple[str, int], MapCell],
) -> Iterator[Row]:
    """One node alone, whose cells are added; it takes part in no race of averages."""
    single = table[(table["arm"].map(results.roles) == REFERENCE) & table["time_value"].notna()]
    for row in single.drop_duplicates("arm").to_dict("records"):
        key = f"{row['arm']} alone"
        for column, place in enumerate(places):
            race = races[place]
            if race.first is not None:
                over = row["time_at_least"] / race.times[race.first].value
                cells[key, column] = MapCell(over, math.isinf(row["time_value"]), races=False)
        yield Row("", "no average")
        yield Row(key, captions.label_of(results, row["arm"]))


@dataclass(frozen=True)
class Way:
    """The cells of one arm with one medium, wiring and number of nodes.

    Attributes:
        variant: the arm, with ``, wired`` where nodes have a wire to the access point.
        medium: empty where there is no link.
        wired: JSON of the nodes that have such a wire.
        topology: None where nothing is averaged over a link.
    """

    arm: str
    variant: str
    medium: str
    wired: str
    nodes: int
    topology: Topology | None
    cells: pd.DataFrame


@once
def ways_of(results: Results) -> list[Way]:
    """By arm, medium, wiring and number of nodes."""
    cells = results.cells.copy()
    wired = {folder.cell.id: json.dumps(value_at(folder.cell.config, "link.wired") or []) for folder in results.done}
    cells["wired"] = cells["id"].map(wired)
    topologies = {folder.cell.id: topology_of(folder.cell) for folder in results.done}
    ways = []
    by = ["arm", "medium", "wired", "nodes"]
    for (arm, medium, wires, nodes), part in cells.groupby(by, dropna=False, sort=True):
        variant = str(arm) if wires == "[]" else f"{arm}, wired"
        medium = medium if isinstance(medium, str) else ""
        topology = topologies[part["id"].iloc[0]]
        ways.append(Way(str(arm), variant, medium, str(wires), int(str(nodes)), topology, part))
    return ways


def races_of(results: Results, *, timed: bool) -> dict[Where, BestSet]:
    """Who may be the fastest with each medium and number of nodes, by variant; by the time of a step if not timed."""
    races: dict[Where, dict[str, dict[int, Arrival]]] = {}
    for way in ways_of(results):
        if way.topology is not None:
            steps = {seed: Arrival(step_s) for seed, step_s in _steps_by_seed(way.cells).items()}
            arrivals = arrivals_by_seed(way.cells) if timed else steps
            races.setdefault((way.medium, way.nodes), {})[way.variant] = arrivals
    return {where: best_set(arms) for where, arms in races.items()}


def _steps_by_seed(cells: pd.DataFrame) -> dict[int, float]:
    """Seconds of a step, of the cells that say so."""
    steps = zip(cells["seed"], cells["steps_clock_s"], cells["steps"], strict=True)
    known = [(int(seed), number(clock_s), number(count)) for seed, clock_s, count in steps]
    return {seed: clock_s / count for seed, clock_s, count in known if clock_s and count}


@once
def topology_table(results: Results) -> pd.DataFrame:
    """One row an arm, medium, wiring and number of nodes.

    Returns:
        arm, variant (with ``, wired`` where nodes have a wire to the access point), topology, averaging, place, medium
        and nodes; of ``time`` (to the target) and ``step`` seconds each: ``_value`` (infinite where fewer than half
        did not reach it, NaN without a target), ``_low``, ``_high``, ``_at_least``. Arms that average over no link
        have an empty ``topology``.
    """
    rows = []
    for way in ways_of(results):
        arrivals, steps = list(arrivals_by_seed(way.cells).values()), list(_steps_by_seed(way.cells).values())
        if not steps:
            continue
        step_s, low_s, high_s = geometric_interval(steps)
        composed, num = int(way.cells["composed"].sum()), len(way.cells)
        about = {"topology": "", "averaging": "", "place": ""}
        if (topology := way.topology) is not None:
            about = {"topology": topology.name, "averaging": topology.averaging, "place": topology.place}
        row: TableRow = {"arm": way.arm, "variant": way.variant, **about, "medium": way.medium, "wired": way.wired,
                         "nodes": way.nodes, "num": num, "num_composed": composed}  # fmt: skip
        row |= ends_of("time", estimate(arrivals) if arrivals else None)
        rows.append(row | ends_of("step", Estimate(step_s, low_s, high_s, step_s, num, 0)))
    table = pd.DataFrame(rows)
    numbers = [f"{what}_{end}" for what in ("time", "step") for end in ENDS]
    table[numbers] = table[numbers].astype(float)
    return table


def topology_of(cell: CellRecord) -> Topology | None:
    """Who averages with whom in a cell, as recorded; in an older one as its collective declares it by now.

    None where nothing is averaged over a link.
    """
    if "topology" in cell.model_fields_set:
        return None if (said := cell.topology) is None else Topology(said.name, said.averaging, said.place)
    return topology_by_name(name_of(cell.config.get("collective")))
