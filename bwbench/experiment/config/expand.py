"""The points of a matrix, each resolved and on its hosts; what is wrong is said where its value was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location, show
from bwbench.base.plain_data import JsonObject
from bwbench.base.yaml_document import Place
from bwbench.experiment.config.combinations import Finding
from bwbench.experiment.config.dotted_keys import Key, assign, lookup, show_key
from bwbench.experiment.config.experiment import Point
from bwbench.experiment.config.hosts import Host
from bwbench.experiment.config.matrix import Assignment, Axis, Exclusion, points
from bwbench.experiment.config.method_names import ALONE
from bwbench.experiment.config.resolve import Resolved, resolve
from bwbench.experiment.config.tuned import TunedRates

_IDLE = {
    "nodes": f"'nodes' has no effect: every cell is {ALONE!r}, on one node",
    "link": f"'link' has no effect: every cell is {ALONE!r}, without a network",
    "lr_scaling": "'lr_scaling' has no effect without 'base_batch': lr is used as it is",
    "evaluate": "'evaluate.every' is more than 'limit.samples': evaluated is at the start and at the end only",
    "stop": "'stop: target' has no effect without a target: training goes on to the limit",
    "collective": "'collective' has no effect: no cell sends anything",
    "compression": "'compression' has no effect: no cell sends anything",
}


@dataclass(frozen=True)
class Source:
    """A configuration as it was written.

    Attributes:
        base: the values that all points share; cell keys only.
        place: of the file.
        placed: paths into ``base`` that were set on the command line, with their places.
        overridden: keys set on the command line.
        plugins: absolute paths, loaded.
        folder: that relative paths are relative to.
        tuned: where learning rates come from that are left to a table.
    """

    base: JsonObject
    place: Place
    placed: Sequence[tuple[Location, Place]]
    axes: Sequence[Axis]
    exclusions: Sequence[Exclusion]
    overridden: frozenset[Key]
    plugins: tuple[str, ...]
    folder: Path
    tuned: TunedRates


@dataclass(frozen=True)
class Expansion:
    """The points that remain, the keys that vary, what is to be said about them, and the tables of tuned rates."""

    points: tuple[Point, ...]
    varying: tuple[Key, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Path, ...]


def expand(source: Source, problems: list[Problem]) -> Expansion:
    """Every point of the matrix that is not excluded. What is wrong goes to ``problems``."""
    kept: list[Point] = []
    matched: set[int] = set()
    idle: set[str] | None = None
    warnings: dict[str, None] = {}  # dicts keep the order and drop what was said before
    notes: dict[str, None] = {}
    tables: dict[Path, None] = {}
    found = dict.fromkeys(_check_base(source))
    for assignments in points(source.axes):
        try:
            raw, placed = _apply(source, assignments)
        except ConfigError as refused:
            found |= dict.fromkeys(refused.problems)
            continue
        excluding = {i for i, exclusion in enumerate(source.exclusions) if exclusion.matches(raw)}
        resolved = Resolved(None) if excluding else resolve(raw, source.plugins, source.folder, tuned=source.tuned)
        if resolved.config is not None and source.exclusions:
            content = resolved.config.model_dump(mode="json", by_alias=True)
            excluding = {i for i, exclusion in enumerate(source.exclusions) if exclusion.matches(raw, content)}
        matched |= excluding
        if excluding:
            continue
        for finding in resolved.findings:
            found[_locate(finding, raw, placed, source.place)] = None
        idle = set(resolved.idle) if idle is None else idle & set(resolved.idle)
        warnings.update(dict.fromkeys(resolved.warnings))
        notes.update(dict.fromkeys(resolved.notes))
        tables.update({resolved.tuned: None} if resolved.tuned is not None else {})
        if resolved.config is not None:
            kept.append(Point(resolved.config, tuple((item.key, item.value) for item in assignments)))
    if not found:
        found |= dict.fromkeys(_useless_exclusions(source, matched))
        if not kept and not found:
            found[source.place.inside("exclude").problem("exclude: leaves no cell; drop an entry")] = None
    problems += found
    warnings.update(dict.fromkeys(_IDLE[key] for key in sorted(idle or ())))
    return Expansion(tuple(kept), _varying(kept), tuple(warnings), tuple(notes), tuple(tables))


def on_hosts(
    points: Sequence[Point], hosts: tuple[Host, ...], place: Place, problems: list[Problem]
) -> Iterator[Point]:
    """The points with the hosts that they train on, which are as many of the first ones as their nodes need."""
    capacity = sum(host.workers for host in hosts)
    launchers = {point.config.launcher for point in points}
    if hosts and points and launchers != {"ssh"}:
        text = f"hosts are for launcher: ssh, and this experiment has launcher: {', '.join(sorted(launchers))}"
        problems.append(place.problem(f"{text}; write 'launcher: ssh', or leave 'hosts' out"))
    if "ssh" in launchers and not hosts:
        text = "launcher: ssh needs hosts: a list like [anna@192.168.1.10, ben@192.168.1.11], or the file that has it"
        problems.append(place.problem(text))
    most = max((point.config.nodes for point in points), default=0)
    if hosts and most > capacity:
        problems.append(place.problem(f"{most} nodes need as many workers, and the hosts have {capacity}"))
    crowded = next((host for host in hosts if host.workers > 1), None)
    if crowded is not None and any(point.config.link.shaped for point in points):
        text = f"{crowded.name} has {crowded.workers} workers, and what they say to one another does not use a link"
        problems.append(place.problem(f"{text}; write 'workers: 1', or 'link: unshaped'"))
    for point in points:
        yield replace(point, config=point.config.model_copy(update={"hosts": hosts}))


def _apply(source: Source, assignments: Sequence[Assignment]) -> tuple[JsonObject, list[tuple[Location, Place]]]:
    """The base with the values of one point, and where each of them was written."""
    raw, placed = source.base, list(source.placed)
    for item in sorted(assignments, key=lambda item: len(item.key)):  # what holds others before what is inside
        try:
            raw, path = assign(raw, item.key, item.value)
        except ConfigError as error:
            raise ConfigError(item.place.problem(f"{show_key(item.key)}: {error}")) from None
        placed.append((path, item.place))
    return raw, placed


def _check_base(source: Source) -> list[Problem]:
    """Problems with values that the matrix replaces in every point: they would never be looked at."""
    first = next(points(source.axes), ())
    missing = [item for item in first if lookup(source.base, item.key) is None]
    if len(missing) == len(first):
        return []
    try:
        raw, placed = _apply(source, missing)
    except ConfigError:
        return []  # said for the point
    findings = resolve(raw, source.plugins, source.folder, combine=False).findings
    return [_locate(f, raw, placed, source.place) for f in findings if f.loc and f.loc[0] in source.base]


def _locate(finding: Finding, raw: JsonObject, placed: Sequence[tuple[Location, Place]], file: Place) -> Problem:
    """The problem, at the place where the value comes from: the matrix, the command line, or the file."""
    loc = finding.loc
    if loc and loc[0] not in raw and loc[0] in ("collective", "compression") and "algorithm" in raw:
        loc = ("algorithm",)  # a preset brought it
    for path, place in reversed(placed):
        if loc[: len(path)] == path:
            return place.inside(*loc[len(path) :]).problem(finding.message)
        if len(loc) > 1 and path[: len(loc)] == loc:  # the key itself is what is wrong
            return place.problem(finding.message)
    return file.inside(*loc).problem(finding.message)


def _useless_exclusions(source: Source, matched: set[int]) -> list[Problem]:
    """Those that match no point, except where the command line changed one of their keys."""
    problems = []
    for index, exclusion in enumerate(source.exclusions):
        keys = {key for key, _ in exclusion.conditions}
        if index in matched or source.overridden & keys:
            continue
        wanted = ", ".join(f"{show_key(key)}: {show(value)}" for key, value in exclusion.conditions)
        has = []
        for axis in source.axes:
            for column, key in enumerate(axis.keys):
                if key in keys:
                    values = dict.fromkeys(show(row[column].value) for row in axis.rows)
                    has.append(f"{show_key(key)} takes {', '.join(values)}")
        hint = f"; {'; '.join(has)}" if has else "; its keys stand in no axis of the matrix"
        problems.append(exclusion.place.problem(f"exclude: {{{wanted}}} matches no cell{hint}"))
    return problems


def _varying(kept: Sequence[Point]) -> tuple[Key, ...]:
    """Keys with more than one value among the points, in the order of the file."""
    values: dict[Key, set[str]] = {}
    for point in kept:
        for key, value in point.values:
            values.setdefault(key, set()).add(repr(value))
    return tuple(key for key, distinct in values.items() if len(distinct) > 1)
