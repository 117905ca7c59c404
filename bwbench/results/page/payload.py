"""All that the page knows, as one dictionary for JSON: a pure function of the records.

Cells come as rows of ``CELL_COLUMNS``; what many of them share (curves, machines, logs) stands in pools, by number.
Below is what the page shows of one of them on demand: its link, its ledger, its machine and the end of its log.
An arm has the colour that it has in figures, lifted where it would drown in the dark.
"""

from __future__ import annotations

import colorsys
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from bwbench.methods.roles import METHOD, REFERENCE
from bwbench.records import CellFolder
from bwbench.records.schema import PARTS, LedgerSummary, MeasuredPair
from bwbench.results.analysis.answer import baseline_of_group, counted, one_node_words
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.caveats import codecs_of, commit_of, host_of
from bwbench.results.analysis.cell_arrival import arrival_notes
from bwbench.results.analysis.cells import (
    DONE,
    RUNNING,
    Row,
    cell_row,
    concerns_no_link,
    is_composed,
    left_out_notes,
    state_of,
)
from bwbench.results.analysis.grouping import Group, group_cells, setting_words
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.notes import notes_on
from bwbench.results.analysis.results import Reader
from bwbench.results.analysis.statistics import number
from bwbench.results.analysis.targets import budget_of
from bwbench.results.analysis.trial import DEFAULT_METRICS, PART_NAMES
from bwbench.results.figures.style import PART_COLORS, arm_style, told_apart

Facts: TypeAlias = dict[str, object]  # for JSON

COMPARES = frozenset({"link.bandwidth", "link.latency"})  # what the page chooses by itself; all else makes a setting
PAYLOAD_SCHEMA = 1

# Taken over from ``cells.cell_row`` as they are: numbers that intervals rest on keep all their digits.
_EXACT = (
    "id", "slug", "repeat", "seed", "status", "reason", "nodes", "model", "dataset", "batch_size", "accumulate",
    "global_batch", "role", "algorithm", "collective", "compression", "bandwidth_bps", "rtt_s", "link", "target_metric",
    "target_value", "evaluate_every_samples", "time_to_target_s", "samples_to_target", "censored_at_s", "timing_share",
    "timing_runs", "between_share", "timing_pilot", "kin", "of_pilot",
    "arrival_kind", "first_crossing_s",
)  # fmt: skip
_ROUNDED = (
    "training_clock_s", "final_metric", "test_metric", "test_metric_at_arrival", "wire_bytes_to_target", "wire_bytes",
    "wall_s", "steps", "samples",
)  # fmt: skip
_OWN = (
    "experiment", "arm", "needs_no_link", "composed", "host_bound", "stops_at_target", "limit_samples", "limit_s",
    "metric", "samples_at", "values", "clocks", "ledger", "link_facts", "environment", "log",
)  # fmt: skip
CELL_COLUMNS = (*_EXACT, *_ROUNDED, *_OWN)

DARK_BACKGROUND = "#161b22"  # --surface of page.css in the dark
CONTRAST = 4.5  # on it, at least: thin lines need as much as text

_SYMBOLS = {
    "s": "square", "o": "circle", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "P": "cross", "X": "x",
    "*": "star", "h": "hexagon", "H": "hexagon2", "p": "pentagon", "<": "triangle-left", ">": "triangle-right",
    "d": "diamond-tall", "8": "octagon",
}  # fmt: skip
_LINE_PX = 2.0


def build_payload(
    folders: Sequence[CellFolder], title: str, reader: Reader | None = None, running: Mapping[Path, str] | None = None
) -> Facts:
    """What the page is made of.

    Args:
        folders: cells of any number of experiments, done or not, whose records can be read.
        title: name of the result folder.
        reader: that has read their events already.
        running: what is being done with the cells that run at this moment, in words.
    """
    rows = {folder.path: cell_row(folder) for folder in folders}
    for path, words in (running or {}).items():
        rows[path] |= {"status": RUNNING, "reason": words}
    # Day of the newest record: the page says how old it is, and equal records make equal pages.
    environments = [folder.environment for folder in folders]
    recorded = [one.time_unix_s for one in environments if one is not None and one.time_unix_s is not None]
    experiments = sorted({folder.cell.experiment for folder in folders})
    roles = {str(row["arm"]): str(row["role"]) for row in rows.values()}
    arms, labels = sorted(roles), arm_labels(folder.cell for folder in folders)
    own = OwnSteps.of(folders)
    pools = {name: Pool() for name in ("samples_at", "values", "clocks", "environment", "log", "link_facts")}
    reader = reader or Reader()
    ordered = sorted(folders, key=lambda folder: (folder.cell.experiment, folder.path.name))
    cells = [_cell(folder, rows[folder.path], experiments, arms, pools, reader, own) for folder in ordered]
    numbers = {folder.path: index for index, folder in enumerate(ordered)}
    metrics = [row[CELL_COLUMNS.index("metric")] for row in cells]
    groups = []
    for index, experiment in enumerate(experiments):
        members = [folder for folder in ordered if folder.cell.experiment == experiment]
        groups += [_group(group, index, labels, numbers, metrics, own) for group in group_cells(members, COMPARES)]
    with told_apart(roles):  # pictures tell the arms of one group apart, the page those of all
        looks = {arm: arm_look(arm, roles[arm]) for arm in arms}
    return {
        "schema": PAYLOAD_SCHEMA,
        "title": title,
        "newest": time.strftime("%Y-%m-%d", time.gmtime(max(recorded))) if recorded else None,
        "experiments": experiments,
        "arms": [{"name": arm, "label": labels[arm], "role": roles[arm], **looks[arm]} for arm in arms],
        "parts": [PART_NAMES[part] for part in PARTS],
        "part_colors": [PART_COLORS[part] for part in PARTS],  # in both themes: they are areas
        "groups": groups,
        "pools": {name: pool.values for name, pool in pools.items()},
        "columns": list(CELL_COLUMNS),
        "cells": cells,
    }


def _cell(
    folder: CellFolder,
    row: Row,
    experiments: list[str],
    arms: list[str],
    pools: dict[str, Pool],
    reader: Reader,
    own_steps: OwnSteps,
) -> list[object]:
    digest, budget = reader.read(folder), budget_of(folder.cell.config)
    curve = digest.curve
    recorded = {name for point in curve for name in point.metrics}
    metric = next((name for name in (row.get("target_metric"), *DEFAULT_METRICS) if name in recorded), None)
    row["reason"] = str(row["reason"]).strip()[:500] if row["reason"] else None
    own: Row = {
        "experiment": experiments.index(folder.cell.experiment),
        "arm": arms.index(str(row["arm"])),
        "needs_no_link": int(concerns_no_link(folder.cell)),
        "composed": int(is_composed(folder)),
        "host_bound": int(own_steps.row(folder)["host_bound"] is True),
        "stops_at_target": int(folder.cell.config.get("stop", "target") == "target"),
        "limit_samples": budget.samples,
        "limit_s": budget.time_s,
        "metric": metric,
        "ledger": ledger_facts(digest.ledger),
        "link_facts": pools["link_facts"].add(link_facts(folder)),
        "environment": pools["environment"].add(environment_facts(folder)),
        "log": pools["log"].add(log_tail(folder)),
    }
    if metric is not None:
        own["samples_at"] = pools["samples_at"].add([point.samples for point in curve])
        own["values"] = pools["values"].add([rounded(point.metrics.get(metric), DIGITS) for point in curve])
        own["clocks"] = pools["clocks"].add([rounded(point.clock_s) for point in curve])
    values = {**{name: row.get(name) for name in _EXACT}, **{name: rounded(row.get(name)) for name in _ROUNDED}, **own}
    return [values.get(name) for name in CELL_COLUMNS]


def _group(
    group: Group,
    experiment: int,
    labels: Mapping[str, str],
    numbers: dict[Path, int],
    metrics: list[object],
    own: OwnSteps,
) -> Facts:
    arms = sorted(labels)
    rows = [cell_row(folder) for folder in group.folders]
    networked = [row for row in rows if row["role"] != REFERENCE] or rows
    targets = Counter((row["target_metric"], number(row["target_value"])) for row in networked)
    metric, value = targets.most_common(1)[0][0]
    members = sorted(numbers[folder.path] for folder in group.folders)
    named = ("model.name", "dataset.name", *COMPARES)
    words = [setting_words(name, setting) for name, setting in group.key if name not in named]
    nodes = sorted({int(number(row["nodes"]) or 0) for row in networked})
    if not any(name == "nodes" for name, _ in group.key):
        words.insert(0, f"{nodes[0]} {'node' if nodes == [1] else 'nodes'}" if len(nodes) == 1 else "nodes that differ")
    done = [folder for folder in group.folders if state_of(folder) == DONE]
    baseline = baseline_of_group(group)
    return {
        "experiment": experiment,
        "model": "/".join(sorted({str(row["model"]) for row in networked})),
        "dataset": "/".join(sorted({str(row["dataset"]) for row in networked})),
        "words": " · ".join(words),
        # What sentences need that the page says of these cells (js/answer.js).
        "nodes": counted(nodes[0], "node") if len(nodes) == 1 else "nodes that differ",
        "settings": [setting_words(name, setting) for name, setting in group.key if name not in (*named, "nodes")],
        "baseline": None if baseline is None else arms.index(baseline),
        "one_node": list(_one_node(group, labels, own)),
        "metric": metric or next((metrics[index] for index in members if metrics[index]), None),
        "target": value,
        # What stands under every picture of these cells, as ``Results.notes``.
        "notes": [
            *left_out_notes(group.folders),
            *arrival_notes(done),
            *notes_on(done, [cell_row(folder) | own.row(folder) for folder in done], marked=False),  # in words there
        ],
        "cells": members,
    }


def _one_node(group: Group, labels: Mapping[str, str], own: OwnSteps) -> Iterator[Facts]:
    """For each round trip and method where one node alone is enough, at the recorded target."""
    arms = sorted(labels)
    for of_one_latency in group_cells(group.folders):
        rtts = {row["rtt_s"] for row in map(cell_row, of_one_latency.folders) if row["role"] == METHOD}
        for arm, words in one_node_words(of_one_latency, own, labels).items():
            yield from ({"arm": arms.index(arm), "rtt_s": rtt_s, "words": words} for rtt_s in sorted(rtts, key=str))


def arm_look(arm: str, role: str) -> dict[str, str]:
    """Colours, symbol and dashes of an arm, in plotly's words."""
    style = arm_style(arm, role)
    # A matplotlib line style, whose dashes count in widths of the line; plotly takes a list of pixels.
    dashes = () if isinstance(style.line, str) else style.line[1]
    return {
        "light": style.color,
        "dark": on_dark(style.color),
        "symbol": _SYMBOLS.get(style.marker, "circle"),
        "dash": ",".join(f"{_LINE_PX * length:g}px" for length in dashes) or "solid",
    }


def on_dark(color: str) -> str:
    """``color``, or the nearest lighter one of its hue that can be told from the dark background."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(color))
    found = color
    while contrast(found, DARK_BACKGROUND) < CONTRAST and lightness < 1.0:
        lightness = min(1.0, lightness + 0.01)
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
        found = f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
    return "#e6edf3" if color == "#000000" else found  # black is the ink, and stays it


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG: 1 for equal ones, 21 for black and white."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


LOG_LINES = 12
LOG_LETTERS = 1500  # of a line of a progress bar alone there may be megabytes
_MIDDLES = ("asked_bps", "asked_goodput_bps", "achieved_goodput_bps", "asked_rtt_s", "achieved_rtt_s")
_Numbers = Callable[[list[float]], float]


def link_facts(folder: CellFolder) -> Facts | None:
    """What was asked of the link and what probes before and after saw: medians over pairs of nodes, and the worst."""
    link = folder.link
    if link is None:
        return None
    pairs = [pair for measured in link.in_asked_time.measurements for pair in measured.pairs]
    facts: Facts = {name: _over(pairs, name, statistics.median) for name in _MIDDLES}
    facts["worst_goodput_bps"] = _over(pairs, "achieved_goodput_bps", min)
    facts["worst_rtt_s"] = _over(pairs, "achieved_rtt_s", max)
    facts["backend"] = link.backend
    facts["verdicts"] = [measured.verdict for measured in link.measurements if measured.verdict]
    facts["lateness_p99_s"] = rounded(link.emulator.lateness_p99_s)
    facts["num_probes"] = len(pairs)
    return {name: value for name, value in facts.items() if value not in (None, [], 0)} or None


def ledger_facts(ledger: LedgerSummary | None) -> Facts | None:
    """Mean seconds of each part of a step, in the order of ``PARTS``, and what is to be known of them."""
    if ledger is None:
        return None
    facts: Facts = {
        "mean_s": [rounded(ledger.mean_s.get(part, 0.0), 4) for part in PARTS],
        "step_s": rounded(ledger.step_mean_s, 4),
        "num_steps": ledger.num_steps,
    }
    if ledger.estimated:
        facts["estimated"] = True
    if ledger.peers_reason:
        facts["peers_reason"] = ledger.peers_reason
    if not ledger.adds_up:
        facts["off_by"] = rounded(ledger.additivity_error, 3)
    return facts


def environment_facts(folder: CellFolder) -> Facts | None:
    """Where and by what a cell was made, without what differs from run to run."""
    environment = folder.environment
    if environment is None:
        return None
    facts: Facts = {
        "host": host_of(environment),
        "cpu": environment.cpu,
        "cores": environment.cores,
        "memory_bytes": environment.memory_bytes,
        "kernel": environment.kernel,
        "python": environment.python,
        "bwbench": environment.bwbench,
        "commit": commit_of(environment),
        "codecs": codecs_of(environment),
        **dict(sorted(environment.packages.items())),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def log_tail(folder: CellFolder) -> str | None:
    """The last lines of the logs: of the rank that failed, else of rank 0; None where none was kept."""
    for name, lines in sorted(folder.log_tails().items()):
        if any(line.strip() for line in lines):
            return f"{name.removesuffix('.log')}: " + "\n".join(lines[-LOG_LINES:])[-LOG_LETTERS:].strip()
    return None


def _over(pairs: Sequence[MeasuredPair], name: str, numbers: _Numbers) -> float | int | None:
    found = [float(value) for pair in pairs if (value := getattr(pair, name)) is not None]
    return rounded(numbers(found)) if found else None


DIGITS = 6  # of a metric: an accuracy over a validation split of 100 000 samples stays exact
CLOCK_DIGITS = 5


@dataclass
class Pool:
    """Values that many cells share, by number: composed cells share their convergence run, all share a machine."""

    values: list[object] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, value: object) -> int | None:
        """The number of ``value``, which is kept once; None for None."""
        if value is None:
            return None
        key = json.dumps(value, sort_keys=True)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]


def rounded(value: object, digits: int = CLOCK_DIGITS) -> float | int | None:
    """``value`` with so many significant digits; whole numbers without a point, None for what is no finite number."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
