"""What does another kind of link do to it: time to the target on each of several links, a row a link."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bwbench.base.plain_data import JsonObject
from bwbench.results.analysis.cells import Row, describe_link
from bwbench.results.analysis.results import Results, arrivals_by_seed, arrivals_over_bandwidths, once
from bwbench.results.analysis.statistics import Arrival, estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.labels import label_log_axis
from bwbench.results.figures.levels import limit_name
from bwbench.results.figures.link_names import Asked, LinkName, common_words, name_links
from bwbench.results.figures.marks import arm_handle, draw_mark
from bwbench.results.figures.style import FAINT, INK, NOTE_PT, PAGE_IN, SMALL_PT, ArmStyle, arm_style

_NUMBERS = ["time_s", "low_s", "high_s", "at_least_s"]
_COLUMNS = ["link", "words", "arm", "num", "num_censored", "num_composed", *_NUMBERS]


@once
def links_table(results: Results) -> pd.DataFrame:
    """One row an arm and link, fastest link and arm first; last, one row for each arm that no link concerns.

    Returns:
        link (its name; empty for an arm that no link concerns) and words (all that it was asked to be); arm; num,
        num_censored, num_composed of its repeats; in seconds time_s (infinite where the median repeat did not reach
        the target), low_s and high_s (95 %, NaN where there is none), at_least_s (the limit that an infinite time
        exceeds, else the time).
    """
    asked = {str(folder.cell.id): _asked(folder.cell.config) for folder in results.done}
    cells = results.cells.assign(asked=results.cells["id"].map(asked))
    names = dict(zip(_keys(results), name_links(asked_links(results)), strict=True))
    rows: list[Row] = []
    for (link, arm), part in cells[~cells["arm"].isin(results.limits)].groupby(["asked", "arm"], sort=True):
        row = {"link": names[str(link)].name, "words": describe_link(json.loads(str(link)))}
        rows.append(row | _time(str(arm), part, arrivals_by_seed(part)))
    for limit in results.limits:
        part = cells[cells["arm"] == limit]
        # Beside every link it does the same but for noise, as it does at every bandwidth.
        arrivals = arrivals_over_bandwidths(part.assign(bandwidth_bps=part["asked"]))
        rows.append({"link": "", "words": "", **_time(limit, part, arrivals)})
    table = pd.DataFrame([row for row in rows if row["num"]], columns=_COLUMNS)
    table[_NUMBERS] = table[_NUMBERS].astype(float)
    linked = table[table["link"] != ""]
    order = [*ranked(linked, "link", "arm"), *ranked(linked, "arm", "link"), "", *results.limits]
    return table.sort_values(["link", "arm"], key=lambda column: column.map(order.index)).reset_index(drop=True)


def ranked(rows: pd.DataFrame, column: str, beside: str) -> list[str]:
    """The values of ``column``, fastest first: by the mean log of their times, each against the mean of its ``beside``.

    So an arm that did not run on the slowest link is not taken for a fast one.
    """
    logs = rows["at_least_s"].map(math.log)
    share = logs - logs.groupby(rows[beside]).transform("mean")
    means = share.groupby(rows[column]).mean()
    return [str(value) for value in means.sort_values(kind="stable").index]


def asked_links(results: Results) -> list[Asked]:
    """The links that done cells of arms that a link concerns ran on, each once."""
    return [json.loads(key) for key in _keys(results)]


def named_links(results: Results) -> dict[str, LinkName]:
    """Their names, by what stands in the table."""
    return {name.name: name for name in name_links(asked_links(results))}


def _keys(results: Results) -> list[str]:
    return sorted({_asked(folder.cell.config) for folder in results.done if folder.cell.arm not in results.limits})


def _asked(config: JsonObject) -> str:
    return json.dumps(config.get("link") or {}, sort_keys=True)


def _time(arm: str, cells: pd.DataFrame, arrivals: Mapping[int, Arrival]) -> Row:
    if not arrivals:
        return {"arm": arm, "num": 0}
    centre = estimate(list(arrivals.values()))
    return {"arm": arm, "num": centre.num, "num_censored": centre.num_censored,
            "num_composed": int(cells["composed"].sum()), "time_s": centre.value, "low_s": centre.low,
            "high_s": centre.high, "at_least_s": centre.at_least}  # fmt: skip


_MOST_LINKS = 16  # more rows would not fit on a page
_PITCH_PT = 5.0  # between the marks of one link
_GAP_PT = 7.0  # between the marks, or the names, of neighbouring links
_LEADING = 1.25  # line pitch of names, in font sizes
_NAME_IN = {True: 1.9, False: 1.05}  # room for the name of a link, by whether the picture is wide
_LETTER = 0.54  # mean width of a letter, in font sizes
_BELOW_IN = 0.45  # the axis of times with its label
_INTERVAL_SHOWN = 4.0  # of an interval beyond all marks; at n = 2 it may span decades
_NO_BREAK = "\u00a0"
_STRIPE = "#f5f5f5"


@dataclass(frozen=True)
class _Label:
    """The name of a link in lines, and what stands below it in smaller ones."""

    name: str
    about: str

    @property
    def heights_pt(self) -> tuple[float, float]:
        """Of the two parts."""
        above, below = (text.count("\n") + 1 if text else 0 for text in (self.name, self.about))
        return above * SMALL_PT * _LEADING, below * NOTE_PT * _LEADING


class LinksCompared(AbstractFigure):
    """A row a link, fastest on top, and in it a mark an arm, in the same order everywhere; limits run through all."""

    name = "links"
    summary = "time to accuracy on links that differ in more than bandwidth and latency"
    compares = frozenset({"link"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, two arms, and two links that bandwidth and latency alone do not tell apart."""
        links, table = asked_links(results), links_table(results)
        if table.empty:
            return "the cells have no target"
        if len(links) < 2:
            return "only one kind of link"
        if len({_beside_rate(link) for link in links if link.get("shaped", True)}) < 2:
            return "the links differ in bandwidth and latency alone"
        if len(links) > _MOST_LINKS:
            return f"{len(links)} links are too many for one picture"
        return "only one arm" if table["arm"].nunique() < 2 else None

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and link."""
        return links_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, names = self.table(results), named_links(results)
        linked, limits = table[table["link"] != ""], table[table["link"] == ""].to_dict("records")
        links, arms = ranked(linked, "link", "arm"), ranked(linked, "arm", "link")
        wide = width_in >= PAGE_IN
        room_in = _NAME_IN[wide]
        labels = [
            _Label(_wrapped(names[link].name, SMALL_PT, room_in), _wrapped(names[link].about, NOTE_PT, room_in))
            for link in links
        ]
        row_pt = _GAP_PT + max(_PITCH_PT * len(arms), *(sum(label.heights_pt) for label in labels))
        words = captions.arm_labels(table, results.roles)
        styles = {arm: arm_style(arm, role) for arm, role in results.roles.items()}
        legend = [arm_handle(styles[arm], words[arm], linestyle="none") for arm in arms]
        legend += [_limit_handle(row, words[row["arm"]], results.roles[row["arm"]], wide=wide) for row in limits]
        shared = ", ".join(common_words(asked_links(results)))
        setting = captions.setting_line(results, num_runs=captions.num_runs(table["num"]),
                                        link=f"{len(links)} links" + (f": {shared}" if shared else ""))  # fmt: skip
        title = f"Time to {captions.target_words(results)} by link"
        body_in = row_pt / 72 * len(links) + _BELOW_IN
        figure, axes = framed_axes(width_in, body_in, title, setting, [_how_to_read(table), *results.notes], legend)
        unit = captions.time_unit(math.sqrt(table["at_least_s"].max() * table["at_least_s"].min()))
        for row in limits:
            _draw_limit(axes, row, styles[row["arm"]], unit.seconds)
        for row in linked.to_dict("records"):
            y = links.index(row["link"]) + _PITCH_PT / row_pt * (arms.index(row["arm"]) - (len(arms) - 1) / 2)
            ends = (row["low_s"] / unit.seconds, row["high_s"] / unit.seconds)
            bound = ">" if math.isinf(row["time_s"]) else ""
            draw_mark(axes, (row["at_least_s"] / unit.seconds, y), ends, styles[row["arm"]], bound, 4.5, sideways=True)
        _finish(axes, table, unit, width_in - _NAME_IN[wide])
        _name_rows(axes, labels)
        return figure


def _beside_rate(link: JsonObject) -> str:
    """What other figures do not put on an axis: all of a link but its bandwidth and latency."""
    return json.dumps(
        {key: value for key, value in link.items() if key not in ("bandwidth", "latency")}, sort_keys=True
    )


def _wrapped(text: str, size_pt: float, room_in: float) -> str:
    """In lines: broken at commas, and at blanks only in what is too long by itself."""
    letters = int(room_in * 72 / (size_pt * _LETTER))
    parts = [part if len(part) > letters else part.replace(" ", _NO_BREAK) for part in text.split(", ")]
    return "\n".join(textwrap.wrap(", ".join(parts), letters, break_long_words=False, break_on_hyphens=False))


def _limit_handle(row: Mapping[Any, Any], label: str, role: str, *, wide: bool) -> Line2D:
    style = arm_style(row["arm"], role)
    label = limit_name(label, row["arm"], role) if wide else label
    label = f"{label}, not reached" if math.isinf(row["time_s"]) else label
    return Line2D([], [], label=label, color=style.color, linestyle=style.line, linewidth=1.1)


def _draw_limit(axes: Axes, row: Mapping[Any, Any], style: ArmStyle, unit: float) -> None:
    axes.axvline(row["at_least_s"] / unit, color=style.color, linestyle=style.line, linewidth=1.1, zorder=2)
    if not math.isnan(row["low_s"]):
        axes.axvspan(row["low_s"] / unit, row["high_s"] / unit, color=style.color, alpha=0.1, linewidth=0, zorder=1)


def _finish(axes: Axes, table: pd.DataFrame, unit: captions.TimeUnit, length_in: float) -> None:
    times = table["at_least_s"] / unit.seconds
    low = max(table["low_s"].min() / unit.seconds, times.min() / _INTERVAL_SHOWN)
    high = min(table["high_s"].max() / unit.seconds, times.max() * _INTERVAL_SHOWN)
    low, high = min(times.min(), low), max(times.max(), high)  # NaN, without any interval, comes second
    margin = (high / low) ** 0.05
    arrows = bool(table["time_s"].map(math.isinf).any())
    axes.set_xscale("log")
    axes.set_xlim(low / margin, high * margin ** (2.5 if arrows else 1))
    axes.grid(True, axis="x")
    label_log_axis(axes.xaxis, *axes.get_xlim(), length_in=length_in)
    axes.set_xlabel(f"training time to target ({unit.symbol})")


def _name_rows(axes: Axes, labels: Sequence[_Label]) -> None:
    """Names left of the rows, of which every other one is shaded."""
    axes.set_ylim(len(labels) - 0.5, -0.5)  # fastest on top
    axes.set_yticks([])
    beside: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False,
                   "ha": "right", "va": "top", "linespacing": _LEADING - 0.05}  # fmt: skip
    for position, label in enumerate(labels):
        if position % 2:
            axes.axhspan(position - 0.5, position + 0.5, color=_STRIPE, linewidth=0, zorder=0)
        above_pt, below_pt = label.heights_pt
        top_pt = (above_pt + below_pt) / 2
        axes.annotate(label.name, (0, position), (-5, top_pt), fontsize=SMALL_PT, color=INK, **beside)
        if label.about:
            axes.annotate(label.about, (0, position), (-5, top_pt - above_pt), fontsize=NOTE_PT, color=FAINT, **beside)


def _how_to_read(table: pd.DataFrame) -> str:
    words = ["Links: fastest on top, on the mean. Marks of a link: in the order of the legend."]
    several = "Geometric means; whiskers and bands: 95 % interval (Student's t on log time)."
    words.append(captions.on_repeats(table["num"], several))
    words += captions.on_censored(table["time_s"], table["num_censored"])
    if (table["link"] == "").any():
        words.append("Lines through all rows: arms that no link concerns.")
    return " ".join(words)
