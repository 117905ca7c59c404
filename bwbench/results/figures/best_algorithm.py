"""Which method for which link: a map of bandwidth and latency, coloured by the arm with the shortest time to target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.methods.roles import REFERENCE, may_win
from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.cells import DONE, Row
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.results import Results, arrivals_by_seed
from bwbench.results.analysis.statistics import ONE_REPEAT
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes, lay_out, text_width_in
from bwbench.results.figures.style import FAINT, INK, SMALL_PT, arm_style


@dataclass(frozen=True)
class Fastest:
    """The race on one link.

    Attributes:
        arm: with the shortest time; None where no arm reached the target.
        time_s: its time.
        runner_up: the second; None where no other arm ran there.
        margin: how many times as fast the first is as the second; None where that cannot be said.
        alike: the other arms that may be as fast (``best_set``).
        tie: there is such an arm; None where single repeats leave nothing to tell by.
        num: repeats of the first; ``composed``: some of its times are composed.
    """

    bandwidth_bps: float
    rtt_s: float
    arm: str | None
    time_s: float
    runner_up: str | None
    margin: Ratio | None
    alike: tuple[str, ...]
    tie: bool | None
    num: int
    composed: bool


def fastest_by_link(cells: pd.DataFrame) -> list[Fastest]:
    """The race on each link (bandwidth and round trip) that any arm ran on, rising in both.

    Args:
        cells: rows of ``results.cells_table``; one node alone takes part everywhere.
    """
    cells = cells[cells["role"].map(may_win).astype(bool) & (cells["status"] == DONE)]
    everywhere = cells["bandwidth_bps"].isna() & (cells["role"] == REFERENCE)
    races = []
    for where, part in cells.groupby(["bandwidth_bps", "rtt_s"], sort=True):
        bandwidth_bps, rtt_s = (float(str(value)) for value in where)
        here = cells[everywhere | cells.index.isin(part.index)]
        arms = {str(arm): arrivals for arm, rows in here.groupby("arm") if (arrivals := arrivals_by_seed(rows))}
        found = best_set(arms)
        if not found.times:
            continue
        if found.first is None:
            races.append(Fastest(bandwidth_bps, rtt_s, None, math.inf, None, None, (), None, 0, False))
            continue
        first, second = found.first, next(iter(found.behind), None)
        margin = None if second is None else found.behind[second]
        told = set(found.members[1:]) - set(found.untold)
        tie = True if told else None if found.untold else False
        time_s, num = found.times[first].value, found.times[first].num
        composed = bool(here[here["arm"] == first]["composed"].any())
        alike = found.members[1:]
        races.append(Fastest(bandwidth_bps, rtt_s, first, time_s, second, margin, alike, tie, num, composed))
    return races


_ROW_IN = 0.42
_LIGHT_FROM = 0.55  # of a colour's grey, from which letters on it are dark
_PAD_IN = 0.08  # beside a text in its cell
_BESIDE_IN = 0.6  # left of the map
_LETTER_IN = 0.066  # mean width of a bold letter
_NOBODY = "#eeeeee"
_PALE = 0.72  # how far a tie's colour is moved to white


class BestAlgorithm(AbstractFigure):
    """A cell a link, with the first arm and how many times as fast it is as the second; ties are pale and hatched."""

    name = "best-algorithm"
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, two latencies, and a shaped link."""
        cells = results.cells
        rtts = sorted(cells["rtt_s"].dropna().unique())
        if len(rtts) < 2:
            return f"only one latency (RTT {DURATION.format(rtts[0])})" if rtts else "the link is unshaped"
        return captions.without_times(results) or (None if fastest_by_link(cells) else "the cells have no target")

    def table(self, results: Results) -> pd.DataFrame:
        """One row a link."""
        rows: list[Row] = []
        for race in fastest_by_link(results.cells):
            row = {key: value for key, value in vars(race).items() if key != "margin"}
            margin = race.margin
            ends = (None, None, None, "") if margin is None else (margin.value, margin.low, margin.high, margin.bound)
            row["alike"] = ", ".join(race.alike)
            rows.append(row | dict(zip(("margin", "margin_low", "margin_high", "margin_bound"), ends, strict=True)))
        return pd.DataFrame(rows)

    def _draw(self, results: Results, width_in: float) -> Figure:
        races = fastest_by_link(results.cells)
        bandwidths = sorted({race.bandwidth_bps for race in races})
        rtts = sorted({race.rtt_s for race in races})
        names = _names(races, results.labels, (width_in - _BESIDE_IN) / len(bandwidths) - _PAD_IN)
        legend = _legend(races, names, results)
        title = f"Shortest time to {captions.timed_target(results)}, by link"
        setting = captions.setting_line(results, num_runs=[race.num for race in races if race.num])
        notes = [_how_to_read(races), *results.notes]
        body_in = 0.62 + _ROW_IN * len(rtts)
        figure, axes = framed_axes(width_in, body_in, title, setting, notes, legend)
        _axes_of_links(axes, bandwidths, rtts)
        lay_out(figure)
        room_in = axes.get_window_extent().width / figure.dpi / len(bandwidths) - _PAD_IN
        for race in races:
            at = (bandwidths.index(race.bandwidth_bps), rtts.index(race.rtt_s))
            color = _NOBODY if race.arm is None else arm_style(race.arm, results.roles[race.arm]).color
            _draw_cell(figure, axes, at, race, names.get(race.arm or "", ""), color, room_in)
        return figure


def _names(races: Sequence[Fastest], labels: Mapping[str, str], room_in: float) -> dict[str, str]:
    """What stands for each arm in its cells: its label where all fit, else a code."""
    composed = {race.arm for race in races if race.composed}
    arms = [race.arm for race in races if race.arm is not None]
    names = {arm: f"{labels[arm]}{COMPOSED_MARK if arm in composed else ''}" for arm in sorted(set(arms))}
    if all(len(name) * _LETTER_IN <= room_in for name in names.values()):
        return names
    codes = _codes([labels[arm] for arm in arms])
    return {arm: f"{codes[labels[arm]]}{COMPOSED_MARK if arm in composed else ''}" for arm in sorted(set(arms))}


def _legend(races: Sequence[Fastest], names: Mapping[str, str], results: Results) -> list[Patch]:
    legend = [
        Patch(facecolor=arm_style(arm, results.roles[arm]).color, label=f"{name}  {captions.label_of(results, arm)}")
        for arm, name in names.items()
        if name.removesuffix(COMPOSED_MARK) != results.labels[arm]
    ]
    if any(race.tie for race in races):
        legend.append(Patch(facecolor="#dddddd", edgecolor="#777777", hatch="//////", label="others may be as fast"))
    return legend


def _codes(arms: Sequence[str]) -> dict[str, str]:
    """A short code an arm, for narrow cells: initials of its words; longer ones where two would be alike."""
    codes: dict[str, str] = {}
    for arm in sorted(set(arms), key=lambda arm: (-arms.count(arm), arm)):
        words = arm.split("-")
        options = ["".join(word[0] for word in words).upper()] if len(words) > 1 else []
        options += [arm[:length].upper() for length in range(1, len(arm) + 1)]
        options += [f"{arm[0].upper()}{number}" for number in range(2, 100)]
        codes[arm] = next(code for code in options if code not in codes.values())
    return codes


def _axes_of_links(axes: Axes, bandwidths: Sequence[float], rtts: Sequence[float]) -> None:
    """Bandwidths rise to the right and round trips upwards, each link a cell of the same size."""
    scale = next(name for name in reversed(BANDWIDTH.output) if BANDWIDTH.factors[name] <= max(bandwidths[0], 1.0))
    axes.set_xlim(-0.5, len(bandwidths) - 0.5)
    axes.set_ylim(-0.5, len(rtts) - 0.5)
    axes.set_xticks(range(len(bandwidths)), [f"{bps / BANDWIDTH.factors[scale]:g}" for bps in bandwidths])
    axes.set_yticks(range(len(rtts)), [f"{1e3 * rtt:g}" for rtt in rtts])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(f"bandwidth of the link ({scale})")
    axes.set_ylabel("round trip (ms)")


def _draw_cell(
    figure: Figure, axes: Axes, at: tuple[int, int], race: Fastest, name: str, color: str, room_in: float
) -> None:
    x, y = at
    fill = color
    if race.tie:
        red, green, blue = (channel + (1 - channel) * _PALE for channel in to_rgb(color))
        fill = to_hex((red, green, blue))
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=fill, edgecolor=color if race.tie else "white",
                             linewidth=0, zorder=1, hatch="////" if race.tie else None))  # fmt: skip
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none", edgecolor="white", linewidth=1.5, zorder=2))
    if race.arm is None:
        axes.text(x, y, "none" if room_in > 0.25 else "–", ha="center", va="center", fontsize=SMALL_PT, color=FAINT)
        return
    red, green, blue = to_rgb(fill)
    ink = INK if 0.299 * red + 0.587 * green + 0.114 * blue > _LIGHT_FROM else "white"
    box: Any = {"boxstyle": "round,pad=0.1", "facecolor": fill, "edgecolor": "none"} if race.tie else None
    below = "" if race.margin is None else captions.ratio(race.margin.value, race.margin.bound)
    two_lines = bool(below) and text_width_in(figure, below, SMALL_PT) <= room_in
    where: Any = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT, "color": ink, "bbox": box}
    axes.annotate(name, (x, y), (0, 1 if two_lines else 0), va="bottom" if two_lines else "center",
                  weight="bold", zorder=4, **where)  # fmt: skip
    if two_lines:
        axes.annotate(below, (x, y), (0, -1.5), va="top", zorder=3, **where)


def _how_to_read(races: Sequence[Fastest]) -> str:
    words = ["In each cell: the arm with the shortest time, and how many times as fast it is as the second."]
    if any(race.tie for race in races):
        words.append(
            "Pale and hatched: others may be as fast; elsewhere all others are slower, together with 95 % a cell "
            "(one-sided Welch's t on log time against the first, Bonferroni)."
        )
    if any(race.arm is not None and race.runner_up is not None and race.tie is None for race in races):
        words.append(f"n = 1: {ONE_REPEAT}; nor do too few repeats that arrived.")
    if any(race.arm is None for race in races):
        words.append("none: no arm reached the target within its limit.")
    words.append("The free network (no-communication) takes no part.")
    return " ".join(words)
