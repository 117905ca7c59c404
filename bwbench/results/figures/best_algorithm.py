"""Which methods for which link: a map of the arms that may be the fastest, over bandwidths and round trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.methods.roles import REFERENCE, may_win
from bwbench.results.analysis.best_set import BestSet, best_set
from bwbench.results.analysis.cells import DONE
from bwbench.results.analysis.cells import Row as TableRow
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.analysis.results import Results, arrivals_by_seed, once
from bwbench.results.figures import captions
from bwbench.results.figures.arm_map import Column, Row, cells_of, draw_map, height_in, how_to_read, on_empty, order_of
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.style import PAGE_IN


@dataclass(frozen=True)
class Race:
    """Who takes part on one link, and who may be the fastest there.

    Attributes:
        composed: of each arm how many of its repeats there are composed.
    """

    bandwidth_bps: float
    rtt_s: float
    best: BestSet
    composed: Mapping[str, int]


def races_by_link(cells: pd.DataFrame) -> list[Race]:
    """The race on each link (bandwidth and round trip) that any arm ran on, rising in round trip, then in bandwidth.

    Args:
        cells: rows of ``results.cells_table``; one node alone takes part everywhere.
    """
    cells = cells[cells["role"].map(may_win).astype(bool) & (cells["status"] == DONE)]
    everywhere = cells["bandwidth_bps"].isna() & (cells["role"] == REFERENCE)
    races = []
    for where, part in cells.groupby(["rtt_s", "bandwidth_bps"], sort=True):
        rtt_s, bandwidth_bps = (float(str(value)) for value in where)
        here = cells[everywhere | cells.index.isin(part.index)]
        arms = {str(arm): arrivals for arm, rows in here.groupby("arm") if (arrivals := arrivals_by_seed(rows))}
        if arms:
            composed = {str(arm): int(rows["composed"].sum()) for arm, rows in here.groupby("arm")}
            races.append(Race(bandwidth_bps, rtt_s, best_set(arms), composed))
    return races


@once
def races_of(results: Results) -> list[Race]:
    """``races_by_link`` of the cells of one picture."""
    return races_by_link(results.cells)


def race_rows(results: Results) -> pd.DataFrame:
    """One row an arm and link: its time, that over the shortest there, and whether it may be the fastest.

    Returns:
        bandwidth_bps, rtt_s, arm; time_s (infinite where fewer than half arrive) and at_least_s; over_best with low and
        high (95 %), bound (``>`` where the arm did not arrive); may_be_fastest, told (from enough repeats); num,
        num_composed.
    """
    rows: list[TableRow] = []
    for race in races_of(results):
        cells = cells_of(race.best)
        for arm, time in race.best.times.items():
            cell, behind = cells.get(arm), race.best.behind.get(arm)
            rows.append({
                "bandwidth_bps": race.bandwidth_bps, "rtt_s": race.rtt_s, "arm": arm, "time_s": time.value,
                "at_least_s": time.at_least, "over_best": cell.over if cell else None,
                "low": behind.low if behind else None, "high": behind.high if behind else None,
                "bound": ">" if cell and cell.bound else "", "may_be_fastest": arm in race.best.members,
                "told": cell is not None and not cell.untold, "num": time.num, "num_composed": race.composed[arm],
            })  # fmt: skip
    return pd.DataFrame(rows).astype({"over_best": float, "low": float, "high": float})


class BestAlgorithm(AbstractFigure):
    """A row an arm, fastest on the mean on top, and a column a link; who may be the fastest there is dark."""

    name = "best-algorithm"
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, two links, and two arms."""
        if why_not := captions.without_times_to_target(results):
            return why_not
        if not results.cells["bandwidth_bps"].notna().any():
            return "the link is unshaped"
        races = races_of(results)
        if len(races) < 2:
            return "only one link"
        return None if any(len(race.best.times) > 1 for race in races) else "only one arm"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and link: its time over the shortest there, and whether it may be the fastest."""
        return race_rows(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        races = races_of(results)
        marks, bound = captions.common_marks(results), _host_bound_links(results.cells, races)
        if bound:  # said of links, and of no arm
            text = marks.text.replace(HOST_BOUND_MARK, "")
            marks = replace(marks, text=text, host_bound=True)
        labels = {arm: marks.label(results, arm) for arm in order_of([race.best for race in races])}
        if width_in < PAGE_IN:
            labels = {arm: captions.in_short_lines(label) for arm, label in labels.items()}
        rows = [Row(arm, label) for arm, label in labels.items()]
        columns, below = _columns(races)
        columns = [
            replace(column, text=f"{column.text}{HOST_BOUND_MARK if race in bound else ''}")
            for column, race in zip(columns, races, strict=True)
        ]
        cells = {(arm, number): cell for number, race in enumerate(races) for arm, cell in cells_of(race.best).items()}
        missing = len(cells) < len(rows) * len(columns)
        words = [how_to_read(cells, "on a link"), *on_empty([race.best for race in races], missing=missing)]
        note = " ".join(words)
        counts = [time.num for race in races for time in race.best.times.values()]
        title = f"Who reaches {captions.timed_target(results)}{marks.text} first, by link"
        setting = captions.setting_line(results, num_runs=counts)
        grouped = any(column.group for column in columns)
        body_in = height_in(rows) + 0.42 + (0.14 if grouped else 0.0)
        figure, axes = framed_axes(width_in, body_in, title, setting, [note, *results.notes])
        axes.set_xlabel(below, labelpad=13 if grouped else 4)
        draw_map(figure, axes, rows, columns, cells)
        return figure


def _host_bound_links(cells: pd.DataFrame, races: Sequence[Race]) -> list[Race]:
    """The links all of whose arms are host-bound, where of the others none is; none where that differs by arm, or where
    all are."""
    whole = []
    for race in races:
        here = cells[(cells["bandwidth_bps"] == race.bandwidth_bps) & (cells["rtt_s"] == race.rtt_s)]
        bound = {value is True for value in here[here["role"] != REFERENCE]["host_bound"]}
        if len(bound) > 1:
            return []
        whole += [race] if bound == {True} else []
    return whole if len(whole) < len(races) else []


def _columns(races: Sequence[Race]) -> tuple[list[Column], str]:
    """A column a link, those of one round trip beside each other; and what stands below them all."""
    rates = sorted({race.bandwidth_bps for race in races})
    scale = next(name for name in reversed(BANDWIDTH.output) if BANDWIDTH.factors[name] <= max(rates[0], 1.0))
    names = [f"{race.bandwidth_bps / BANDWIDTH.factors[scale]:.6g}" for race in races]
    trips = [DURATION.format(race.rtt_s) for race in races]
    if len(set(trips)) == 1:
        return [Column(name) for name in names], f"bandwidth of the link ({scale})"
    if len(rates) == 1:
        return [Column(f"{1e3 * race.rtt_s:.4g}") for race in races], "round trip (ms)"
    if len(set(trips)) == len(races):  # each link has its own: the rates alone tell them apart
        return [Column(name) for name in names], f"bandwidth of the link ({scale}), by round trip"
    columns = [Column(*both) for both in zip(names, trips, strict=True)]
    return columns, f"bandwidth of the link ({scale}), and round trip"
