"""Below which bandwidth does the method start to matter: each arm's time beside the shortest, against bandwidth.

And speed apart from accuracy: how many samples a second each method trains on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.best_set import BestSet
from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.statistics import geometric_interval
from bwbench.results.figures import captions, lines
from bwbench.results.figures.arm_map import MapCell, cells_of, order_of
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.best_algorithm import Race, race_rows, races_of
from bwbench.results.figures.families import Shown, shown_arms
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.links_compared import ranked
from bwbench.results.figures.marks import draw_mark, label_log_axis
from bwbench.results.figures.style import FAINT, INK, PAGE_IN, SMALL_PT, TEXT_PT, arm_style

_BODY_IN = {True: 3.0, False: 2.5}  # height by whether the picture is wide
_FEW = 0.5  # of the drawn arms: where fewer ran, what is shortest there says little
_LEAST = 0.5  # down to where whiskers are shown: of few repeats they reach anywhere
_HEADROOM = 1.35  # times the slowest arm
MOST_TIMES = 24.0  # times as long; what takes longer leaves the picture, in which who is first would have little room


class TimeToAccuracyByBandwidth(AbstractFigure):
    """A line an arm: how many times as long it takes as the fastest one there. Full marks may be the fastest."""

    name = "bandwidth"
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, and two arms of which one reaches it at two bandwidths or more."""
        why_not = captions.too_few_bandwidths(results) or captions.without_times_to_target(results)
        if why_not is not None:
            return why_not
        if len(order_of([race.best for race in races_of(results)])) < 2:
            return "only one arm"
        drawn = shown_of(results)
        return None if len(_drawn_races(results, drawn)) > 1 else "arms reached the target at one bandwidth at most"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth: its time, and that over the shortest there."""
        drawn = shown_of(results)
        rates = {race.bandwidth_bps for race in _drawn_races(results, drawn)}
        table = race_rows(results)
        return table.assign(drawn=table["arm"].isin(drawn.arms) & table["bandwidth_bps"].isin(rates))

    def _draw(self, results: Results, width_in: float) -> Figure:
        drawn, wide = shown_of(results), width_in >= PAGE_IN
        races = _drawn_races(results, drawn)
        marks = captions.common_marks(results)
        bandwidths = [race.bandwidth_bps for race in races]
        counts = [race.best.times[arm].num for race in races for arm in drawn.arms if arm in race.best.times]
        title = f"Time to {captions.timed_target(results)}{marks.text}"
        setting = captions.setting_line(results, num_runs=counts, with_bandwidth=False)
        cells = [{arm: cell for arm, cell in cells_of(race.best).items() if arm in drawn.arms} for race in races]
        left_out = [race for race in races_of(results) if race not in races]
        times = [time for race in races for arm, time in race.best.times.items() if arm in drawn.arms]
        elsewhere = _on_others(races, drawn.arms, results.labels)
        highest = max(cell.over for of_race in cells for cell in of_race.values())
        whiskers = captions.on_repeats(pd.Series(counts), "Whiskers: 95 % interval of an arm's own mean.")
        how = _how_to_read(cells, left_out, highest)
        whiskers = " ".join([whiskers, *captions.on_first_crossings(results, pd.Series(counts))])
        words = " ".join([how, whiskers, *elsewhere, *captions.on_fits(times)])
        absent = [results.labels[arm] for arm in drawn.arms if not any(arm in of_race for of_race in cells)]
        words += f" {', '.join(absent)}: on other links alone." if absent else ""
        members = {arm for race in races for arm in race.best.members}
        notes = [words, *drawn.note(results.labels, members), *results.notes]
        figure, axes = framed_axes(width_in, _BODY_IN[wide], title, setting, notes)
        lines.bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        axes.axhline(1.0, color=FAINT, linewidth=0.8, zorder=1)
        ends = []
        for arm in (arm for arm in drawn.arms if any(arm in of_race for of_race in cells)):
            label = marks.label(results, arm)
            label = label if wide else captions.in_short_lines(label)
            its = [of_race.get(arm) for of_race in cells]
            intervals = [_interval_over(race.best, arm) for race in races]
            ends.append(_draw_arm(axes, arm, results.roles[arm], bandwidths, its, intervals, label))
        axes.grid(True)
        axes.set_xlim(bandwidths[0] / 1.25, bandwidths[-1] * 1.15)
        axes.set_ylim(*_limits(races, drawn.arms, highest))
        label_log_axis(axes.yaxis, *axes.get_ylim(), length_in=_BODY_IN[wide])
        axes.set_ylabel("time over the shortest")
        shortest = _name_shortest(axes, races)
        lines.name_ends(figure, axes, ends, size_pt=TEXT_PT if wide else SMALL_PT)
        lines.thin_ticks(figure, axes, bandwidths, shortest)
        return figure


def shown_of(results: Results) -> Shown:
    """The arms that are drawn."""
    races = [race.best for race in races_of(results)]
    members = [arm for race in races for arm in race.members]
    return shown_arms(results, order_of(races), members, [race.first for race in races if race.first is not None])


def _drawn_races(results: Results, drawn: Shown) -> list[Race]:
    """The races that somebody finished, of those at which half of the drawn arms ran."""
    return [
        race
        for race in races_of(results)
        if race.best.first is not None and len(race.best.times.keys() & set(drawn.arms)) >= _FEW * len(drawn.arms)
    ]


def _draw_arm(
    axes: Axes, arm: str, role: str, bandwidths: Sequence[float], cells: Sequence[MapCell | None],
    intervals: Sequence[tuple[float | None, float | None]], label: str,
) -> lines.LineEnd:  # fmt: skip
    """The marks of an arm, joined where it ran on neighbouring links and arrived; returns where they end."""
    style = arm_style(arm, role)
    places = list(zip(bandwidths, cells, strict=True))
    for known, part in groupby(places, lambda place: place[1] is not None and not place[1].bound):
        if known:
            x, y = zip(*((bps, cell.over) for bps, cell in part if cell is not None), strict=True)
            axes.plot(x, y, color=style.color, linestyle=style.line, linewidth=1.2, zorder=3)
    for (bps, cell), ends in zip(places, intervals, strict=True):
        if cell is not None and cell.over <= MOST_TIMES:
            draw_mark(axes, (bps, cell.over), ends, style, ">" if cell.bound else "", size=4.4,
                      hollow=not (cell.best or cell.untold))  # fmt: skip
    at, last = next((bps, cell) for bps, cell in reversed(places) if cell is not None)
    return lines.LineEnd(at, min(last.over, MOST_TIMES), label, style.color)


def _limits(races: Sequence[Race], arms: Sequence[str], highest: float) -> tuple[float, float]:
    """Of the vertical axis: from below all intervals to above the slowest arm, as far as both may reach."""
    lows = [low for race in races for arm in arms if (low := _interval_over(race.best, arm)[0]) is not None]
    bottom = max(_LEAST, min([0.88, *(low / 1.05 for low in lows)]))
    return bottom, MOST_TIMES if highest > MOST_TIMES else max(highest * _HEADROOM, 2.2)


def _interval_over(race: BestSet, arm: str) -> tuple[float | None, float | None]:
    """Ends of the interval of an arm's mean time, over the shortest mean; None where it has none."""
    time, first = race.times.get(arm), race.times[race.first or ""]
    if time is None or time.low is None or time.high is None:
        return None, None
    return time.low / first.value, time.high / first.value


def _name_shortest(axes: Axes, races: Sequence[Race]) -> dict[float, str]:
    """On top, at each bandwidth that is named below, the shortest time there; returns those of all."""
    shortest = {race.bandwidth_bps: race.best.times[race.best.first or ""].value for race in races}
    unit = captions.time_unit(max(shortest.values()))
    labels = {bps: _short(time_s / unit.seconds) for bps, time_s in shortest.items()}

    def write(bps: float, _: int | None = None) -> str:
        return labels.get(bps, "") if axes.xaxis.get_major_formatter()(bps) else ""

    top = axes.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(list(shortest)))
    top.xaxis.set_minor_locator(NullLocator())
    top.xaxis.set_major_formatter(FuncFormatter(write))
    top.tick_params(labelsize=SMALL_PT, length=2, pad=1)
    top.set_xlabel(f"shortest time ({unit.symbol})", fontsize=SMALL_PT, labelpad=3)
    return labels


def _short(value: float) -> str:
    """With two digits, or to one where there are more."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _how_to_read(cells: Sequence[Mapping[str, MapCell]], left_out: Sequence[Race], highest: float) -> str:
    every = [cell for of_race in cells for cell in of_race.values()]
    words = []
    if any(cell.best for cell in every):
        words.append(
            "Full marks: may be the fastest; with 95 % a bandwidth the fastest is among all that may be, drawn or not "
            "(one-sided Welch's t on log time against the first, Bonferroni)."
        )
    if any(cell.untold for cell in every):
        words.append("Where repeats are too few to tell, marks are full as well.")
    if any(cell.bound and cell.over <= MOST_TIMES for cell in every):
        words.append("With an arrow: fewer than half of the repeats reached the target in time; a bound.")
    if highest > MOST_TIMES:
        words.append(f"Beyond the upper edge: over {MOST_TIMES:.0f} times as long.")
    if left_out:
        rates = ", ".join(BANDWIDTH.format(race.bandwidth_bps) for race in left_out)
        words.append(f"Not drawn: {rates}, where few of these arms ran, or none arrived.")
    return " ".join(words)


def _on_others(races: Sequence[Race], drawn: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """A sentence on links where the shortest time is that of an arm that is not drawn, so that no line is at 1."""
    where: dict[str, list[str]] = {}
    for race in races:
        if race.best.first is not None and race.best.first not in drawn:
            where.setdefault(race.best.first, []).append(BANDWIDTH.format(race.bandwidth_bps))
    firsts = [f"{labels.get(arm, arm)} at {' and '.join(rates)}" for arm, rates in where.items()]
    return [f"Shortest, and not drawn: {', '.join(firsts)}."] if firsts else []


_RATES_INTERVAL_SHOWN = 2.0  # of an interval beyond all marks
_RATES_BODY_IN = {True: 3.3, False: 2.75}  # height by whether the picture is wide
_ROOM_ABOVE = 1.5  # over the ideal
_IDEAL: Any = (0, (2, 2))


class Throughput(AbstractFigure):
    """Log-log lines with intervals; as many samples as nodes times one node alone are the ideal."""

    name = "throughput"
    in_detail = True
    compares = frozenset({"link.bandwidth"})

    def applies(self, results: Results) -> str | None:
        """Needs one arm at two bandwidths or more, and a training clock."""
        why_not = captions.too_few_bandwidths(results)
        return why_not or (None if len(_measured(results.cells)) else "no cell says how long it trained")

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and bandwidth: samples over seconds of training, evaluation excluded."""
        rows = []
        for (arm, bps), part in _measured(results.cells).groupby(["arm", "bandwidth_bps"], dropna=False):
            rates = [float(rate) for rate in part["rate"]]
            value, low, high = geometric_interval(rates)
            rows.append({
                "arm": str(arm), "bandwidth_bps": bps, "nodes": int(part["nodes"].max()), "num": len(rates),
                "samples_per_s": value, "low": low, "high": high, "num_composed": int(part["composed"].sum()),
                "num_host_bound": sum(bound is True for bound in part["host_bound"]), "repeats": rates,
            })  # fmt: skip
        return pd.DataFrame(rows).astype({"low": float, "high": float})

    def _draw(self, results: Results, width_in: float) -> Figure:
        table = self.table(results)
        shaped = table[table["bandwidth_bps"].notna() & ~table["arm"].isin(results.limits)]
        order = ranked(shaped.assign(at_least_s=1 / shaped["samples_per_s"]), "arm", "bandwidth_bps")
        drawn = shown_arms(results, order)
        wide, marks = width_in >= PAGE_IN, captions.common_marks(results)
        linked = shaped[shaped["arm"].isin(drawn.arms)]
        bound = bool((linked["num_host_bound"] > 0).all())  # said once, in the title; else each mark shows it

        def label(arm: str, rows: pd.DataFrame) -> str:
            num_composed = 0 if marks.composed else rows["num_composed"].sum()
            name = captions.label_of(results, arm, num_composed, rows["num"].sum())
            return name if wide else captions.in_short_lines(name)

        arms = lines.of_arms(linked, results.roles, label, partial(_rate_mark, dotted=not bound))
        setting = captions.setting_line(results, num_runs=table["num"], with_bandwidth=False)
        title = f"Training throughput{COMPOSED_MARK if marks.composed else ''}{HOST_BOUND_MARK if bound else ''}"
        notes = [_how_to_read_rates(table, dotted=not bound and bool((linked["num_host_bound"] > 0).any()))]
        notes += [*drawn.note(results.labels), *captions.without_first_crossings(results.notes)]
        limits = [*_ideal(table, results), *_rate_limits(table, results, label)]
        figure, axes = framed_axes(width_in, _RATES_BODY_IN[wide], title, setting, notes)
        bandwidths = sorted({mark.bandwidth_bps for line in arms for mark in line.marks})
        lines.bandwidth_axis(axes, bandwidths)
        axes.set_yscale("log")
        ends = lines.draw(figure, axes, arms, width_in)
        for level in limits:
            lines.draw_level(axes, level)
        axes.grid(True)
        axes.set_xlim(bandwidths[0] / 1.3, bandwidths[-1] * 1.2)
        low, high = axes.get_ylim()
        rates = [*table["samples_per_s"], *(level.y for level in limits)]
        low, high = max(low, min(rates) / _RATES_INTERVAL_SHOWN), max(rates) * _ROOM_ABOVE
        axes.set_ylim(low, high)
        label_log_axis(axes.yaxis, low, high, length_in=2.3)
        axes.set_ylabel("samples a second")
        lines.name_ends(figure, axes, ends, limits, size_pt=TEXT_PT if wide else SMALL_PT)
        lines.thin_ticks(figure, axes, bandwidths)
        return figure


def _measured(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that say how many samples they took how long for, with the quotient as ``rate``."""
    if cells.empty:
        return cells
    numbers = cells.assign(samples=pd.to_numeric(cells["samples"]), clock_s=pd.to_numeric(cells["steps_clock_s"]))
    known = numbers[(numbers["samples"] > 0) & (numbers["clock_s"] > 0)]
    return known.assign(rate=known["samples"] / known["clock_s"])


def _rate_mark(row: Mapping[Hashable, Any], *, dotted: bool) -> lines.Mark:
    dots, ends = tuple(row["repeats"]), (row["low"], row["high"])
    return lines.Mark(row["bandwidth_bps"], row["samples_per_s"], *ends, dots, dotted and row["num_host_bound"] > 0)


def _rate_limits(
    table: pd.DataFrame, results: Results, label: Callable[[str, pd.DataFrame], str]
) -> Iterator[lines.Level]:
    """The arms that no link concerns; of one that ran at several bandwidths their geometric mean."""
    for arm in results.limits:
        rows = table[table["arm"] == arm]
        if rows.empty:
            continue
        one = len(rows) == 1
        value = math.exp(fmean(rows["samples_per_s"].map(math.log)))
        low, high = (float(rows[end].iloc[0]) if one else math.nan for end in ("low", "high"))
        style = arm_style(arm, results.roles[arm])
        dots = tuple(rows["repeats"].iloc[0]) if one else tuple(rows["samples_per_s"])
        yield lines.Level(label(arm, rows), value, style.color, style.line, low, high, dots)


def _ideal(table: pd.DataFrame, results: Results) -> Iterator[lines.Level]:
    """As many times one node alone as there are nodes; none without that arm, or where numbers of nodes are mixed."""
    alone = table["arm"].map(results.roles) == REFERENCE
    single, others = table[alone], table[~alone]
    nodes = sorted(set(others["nodes"]))
    if len(single) and len(nodes) == 1:
        rate = nodes[0] * float(single["samples_per_s"].iloc[0])
        yield lines.Level(f"ideal: {nodes[0]} × {single['arm'].iloc[0]}", rate, INK, _IDEAL)


def _how_to_read_rates(table: pd.DataFrame, *, dotted: bool) -> str:
    several = "Dots: repeats. Marks: geometric mean; whiskers and bands: 95 % interval (Student's t on logarithms)."
    repeats = captions.on_repeats(table["num"], several)
    words = f"Samples of all nodes over training time, evaluation excluded. {repeats}"
    words += " Hollow with a dot: host-bound." if dotted else ""
    return f"{words} More samples a second are not fewer seconds to a target: see time to accuracy."
