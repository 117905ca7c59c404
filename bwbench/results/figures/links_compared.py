"""What does another kind of link do to it: time to the target on each of several links, a row a link.

Links are called as their preset where they are one, else by the words that tell them apart.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import ValidationError

from bwbench.base.plain_data import JsonObject, list_at, mapping_at
from bwbench.network.link import Link
from bwbench.network.link.named_links import named_links
from bwbench.results.analysis.cells import Row, describe_link, keys_of, value_at
from bwbench.results.analysis.results import Results, arrivals_by_seed, arrivals_over_bandwidths, once
from bwbench.results.analysis.statistics import Arrival, estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.lines import limit_name
from bwbench.results.figures.marks import arm_handle, draw_mark, label_log_axis
from bwbench.results.figures.style import FAINT, INK, NOTE_PT, PAGE_IN, SMALL_PT, arm_style

# said beside its name where it matters
_NO_PART_OF_A_PRESET = ("overrides", "wired", "mtu", "tcp", "seed", "backend", "jitter_kind", "queue")
_LONG_VALUE = 24  # letters, above which a setting's value is no label (a whole trace)

Asked = JsonObject  # a link as it stands in cell.json


@dataclass(frozen=True)
class LinkName:
    """How one link is called.

    Attributes:
        name: its preset with what is different at some nodes (``wifi-802.11n-good, node 3: 6.5 Mbit/s``); without a
            preset the words that it does not share with all other links.
        about: of a preset its rate and round trip; empty where ``name`` says it all.
    """

    name: str
    about: str


def name_links(links: Sequence[Asked]) -> list[LinkName]:
    """A name for each of ``links``, no two of them alike."""
    shared = common_words(links)
    names = []
    for link in links:
        preset = _preset_of(link)
        if preset is None:
            words = [word for word in _words(link) if word not in shared]
            names.append(LinkName(", ".join(words) or describe_link(link), ""))
        else:
            words = _words(link)  # the first ones, up to its round trip; none where it has none
            end = next((place + 1 for place, word in enumerate(words) if word.startswith("RTT ")), 0)
            rate = [word for word in words[:end] if word not in shared]
            names.append(LinkName(", ".join([preset, *_words_on_nodes(link)]), ", ".join(rate)))
    return _numbered(_told_apart(names, links))


def common_words(links: Sequence[Asked]) -> list[str]:
    """What all ``links`` have in common, for the caption: ``20 Mbit/s``, ``RTT 5 ms``."""
    return [word for word in _words(links[0]) if all(word in _words(link) for link in links)] if links else []


def _words(link: Asked) -> list[str]:
    return [*describe_link({**link, "overrides": {}}).split(", "), *_words_on_nodes(link)]


def _words_on_nodes(link: Asked) -> list[str]:
    """Nodes on a wire, and those with a link of their own: ``node 3: 6.5 Mbit/s``."""
    wired, overrides = list_at(link, "wired"), mapping_at(link, "overrides")
    alike: dict[str, list[Any]] = {}
    for node in sorted(overrides, key=int):
        given = [
            key if isinstance(value, Mapping) else str(value) if key == "bandwidth" else f"{key} {value}"
            for key, value in mapping_at(overrides, node).items()
            if value is not None
        ]
        alike.setdefault(", ".join(given), []).append(node)
    return [*([f"{_nodes(wired)} wired"] if wired else []), *(f"{_nodes(who)}: {own}" for own, who in alike.items())]


def _nodes(numbers: Sequence[Any]) -> str:
    return f"{'node' if len(numbers) == 1 else 'nodes'} {' and '.join(map(str, numbers))}"


def _preset_of(link: Asked) -> str | None:
    """The built-in preset that a link is, nodes that differ set aside: cells hold what a preset stands for."""
    try:
        asked = Link.model_validate({key: value for key, value in link.items() if key not in _NO_PART_OF_A_PRESET})
    except ValidationError:
        return None
    return next((name for name, preset in _presets().items() if preset == asked), None)


@lru_cache(maxsize=1)
def _presets() -> dict[str, Link]:
    return {name: Link.model_validate({"preset": name}) for name in named_links(Link)}


def _told_apart(names: Sequence[LinkName], links: Sequence[Asked]) -> list[LinkName]:
    """Names that are alike get the settings in which their links differ: ``tcp congestion control bbr``."""

    def is_short(value: Any) -> bool:
        return value not in (None, []) and not isinstance(value, Mapping) and len(str(value)) <= _LONG_VALUE

    found = []
    for name, link in zip(names, links, strict=True):
        alike = [other for one, other in zip(names, links, strict=True) if one.name == name.name]
        own = [
            f"{key.replace('.', ' ').replace('_', ' ')} {value_at(link, key)}"
            for key in keys_of(link)
            if len({str(value_at(other, key)) for other in alike}) > 1 and is_short(value_at(link, key))
        ]
        found.append(replace(name, name=", ".join([name.name, *own])))
    return found


def _numbered(names: Sequence[LinkName]) -> list[LinkName]:
    """What is still alike (two traces of one mean) is numbered."""
    times = Counter(name.name for name in names)
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name.name] += 1
        found.append(replace(name, name=f"{name.name} ({seen[name.name]})") if times[name.name] > 1 else name)
    return found


_NUMBERS = ["time_s", "low_s", "high_s", "at_least_s"]
_COLUMNS = ["link", "words", "arm", "num", "num_censored", "num_composed", *_NUMBERS]


@once
def links_table(results: Results) -> pd.DataFrame:
    """One row an arm and link, fastest link and arm first; last, one row for each arm that no link concerns.

    Returns:
        link (its name; empty for an arm that no link concerns) and words (all that it was asked to be); arm; num,
        num_censored, num_composed of its repeats; in seconds time_s (infinite where fewer than half reached
        the target), low_s and high_s (95 %, NaN where there is none), at_least_s (the limit that an infinite time
        exceeds, else the time).
    """
    asked = {str(folder.cell.id): _asked(folder.cell.config) for folder in results.done}
    cells = results.cells.assign(asked=results.cells["id"].map(asked))
    links = asked_links(results)
    names = dict(zip(links, name_links(list(links.values())), strict=True))
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


def asked_links(results: Results) -> dict[str, Asked]:
    """The links that done cells of arms that a link concerns ran on, by their JSON."""
    keys = {_asked(folder.cell.config) for folder in results.done if folder.cell.arm not in results.limits}
    return {key: json.loads(key) for key in sorted(keys)}


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
    compares = frozenset({"link"})

    def applies(self, results: Results) -> str | None:
        """Needs a target, two arms, and two links that bandwidth and latency alone do not tell apart."""
        if why_not := captions.without_times_to_target(results):
            return why_not
        links = list(asked_links(results).values())
        if len(links) < 2:
            return "only one kind of link"
        beside_rate = [{**link, "bandwidth": None, "latency": None} for link in links if link.get("shaped", True)]
        if len({json.dumps(link, sort_keys=True) for link in beside_rate}) < 2:
            return "the links differ in bandwidth and latency alone"
        if len(links) > _MOST_LINKS:
            return f"{len(links)} links are too many for one picture"
        return "only one arm" if links_table(results)["arm"].nunique() < 2 else None

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and link."""
        return links_table(results)

    def _draw(self, results: Results, width_in: float) -> Figure:
        table, asked = self.table(results), list(asked_links(results).values())
        names = {name.name: name for name in name_links(asked)}
        linked, limits = table[table["link"] != ""], table[table["link"] == ""].to_dict("records")
        links, arms = ranked(linked, "link", "arm"), ranked(linked, "arm", "link")
        wide = width_in >= PAGE_IN
        room_in = _NAME_IN[wide]
        labels = [
            _Label(_wrapped(names[link].name, SMALL_PT, room_in), _wrapped(names[link].about, NOTE_PT, room_in))
            for link in links
        ]
        row_pt = _GAP_PT + max(_PITCH_PT * len(arms), *(sum(label.heights_pt) for label in labels))
        marks = captions.common_marks(results)
        words = {str(arm): marks.label(results, str(arm)) for arm in table["arm"].unique()}
        styles = {arm: arm_style(arm, role) for arm, role in results.roles.items()}
        legend = [arm_handle(styles[arm], words[arm], linestyle="none") for arm in arms]
        legend += [_limit_handle(row, words[row["arm"]], results.roles[row["arm"]], wide=wide) for row in limits]
        shared = ", ".join(common_words(asked))
        setting = captions.setting_line(results, num_runs=table["num"],
                                        link=f"{len(links)} links" + (f": {shared}" if shared else ""))  # fmt: skip
        title = f"Time to {captions.timed_target(results)}{marks.text} by link"
        body_in = row_pt / 72 * len(links) + _BELOW_IN
        figure, axes = framed_axes(width_in, body_in, title, setting, [_how_to_read(table), *results.notes], legend)
        unit = captions.time_unit(math.sqrt(table["at_least_s"].max() * table["at_least_s"].min()))
        for row in limits:
            style = styles[row["arm"]]
            at, low, high = (row[end] / unit.seconds for end in ("at_least_s", "low_s", "high_s"))
            axes.axvline(at, color=style.color, linestyle=style.line, linewidth=1.1, zorder=2)
            if not math.isnan(low):
                axes.axvspan(low, high, color=style.color, alpha=0.1, linewidth=0, zorder=1)
        for row in linked.to_dict("records"):
            y = links.index(row["link"]) + _PITCH_PT / row_pt * (arms.index(row["arm"]) - (len(arms) - 1) / 2)
            ends = (row["low_s"] / unit.seconds, row["high_s"] / unit.seconds)
            bound = ">" if math.isinf(row["time_s"]) else ""
            draw_mark(axes, (row["at_least_s"] / unit.seconds, y), ends, styles[row["arm"]], bound, 4.5, sideways=True)
        _finish(axes, table, unit, width_in - _NAME_IN[wide])
        _name_rows(axes, labels)
        return figure


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
    axes.set_xlabel(f"training time ({unit.symbol})")


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
