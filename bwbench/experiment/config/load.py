"""An experiment file and the ``--set`` overrides, to a checked experiment: the points of its matrix, each resolved and
on its hosts. Every problem at once, said where its value was written. A program may give the content of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location, explain, nearest, show, unknown_key, where_known
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import load_plugin
from bwbench.base.yaml_document import MAX_BYTES, Document, Place, given_document, parse_yaml, read_text_file
from bwbench.experiment.config.cell_config import MAX_SEED, CellConfig
from bwbench.experiment.config.combinations import Finding
from bwbench.experiment.config.experiment import (
    LEAST_PILOT,
    MAX_REPEATS,
    MODES,
    Experiment,
    Mode,
    Point,
    TimingConfig,
    UntilKnown,
    WholeConfig,
    why_not_composed,
)
from bwbench.experiment.config.hosts import MOST_WORKERS, Host, read_hosts
from bwbench.experiment.config.matrix import (
    CELL_KEYS,
    Assignment,
    Exclusion,
    Key,
    assign,
    lookup,
    parse_key,
    points,
    read_axes,
    read_exclusions,
    refusal_of_key,
    replace_axis,
    show_key,
)
from bwbench.experiment.config.method_names import ALONE
from bwbench.experiment.config.resolve import Resolved, resolve
from bwbench.experiment.config.tune_block import read_tune, refusals_of
from bwbench.experiment.config.tuned import TunedRates
from bwbench.records.packed import PUBLISHED

OF_COMPOSED = ("whole", "timing")  # sections about composed cells
OWN_KEYS = (
    "name",
    "repeats",
    "matrix",
    "exclude",
    "plugins",
    "mode",
    *OF_COMPOSED,
    "hosts",
    "per_host",
    "tune",
)  # beside those of a cell
_OPENED = (*OF_COMPOSED, "repeats", "tune")  # those of them that have keys inside
KNOWN_KEYS = ("name", *CELL_KEYS, *OWN_KEYS[1:])
MAX_CELLS = 100_000
MAX_PROBLEMS = 50  # shown at once
_Section = TypeVar("_Section", bound=BaseModel)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HIDDEN_NAME = re.compile(r"\..*|attempt-\d+")  # folders that readers of results skip
_IDLE = {
    "nodes": f"'nodes' has no effect: every cell is {ALONE!r}, on one node",
    "link": f"'link' has no effect: every cell is {ALONE!r}, without a network",
    "lr_scaling": "'lr_scaling' has no effect without 'base_batch': lr is used as it is",
    "optimizer": "'optimizer' has no effect: a model of shapes learns nothing, and no method here needs its steps",
    "evaluate": "'evaluate.every' is more than 'limit.samples': evaluated is at the start and at the end only",
    "stop": "'stop: target' has no effect without a target: training goes on to the limit",
    "collective": "'collective' has no effect: no cell sends anything",
    "compression": "'compression' has no effect: no cell sends anything",
}


Overrides: TypeAlias = Sequence[str] | Mapping[str, object]


def load_experiment(
    source: Path | Mapping[str, object], overrides: Overrides = (), *, tuning: bool = False
) -> Experiment:
    """The experiment in a YAML file, or in what would stand there.

    Args:
        source: the file; or its content, in which names of files are relative to the working directory.
        overrides: ``KEY=VALUE`` each, with a dotted key and a YAML value, or a mapping of such keys to values; the last
            one wins. On an axis of the matrix a list replaces the axis, and a single value takes the key out of the
            matrix.
        tuning: learning rates that are left to a table are about to be found; cells have any.

    Raises:
        ConfigError: with all problems of the experiment and of the overrides.
    """
    path = source if isinstance(source, Path) else None
    document = parse_yaml(read_text_file(path, MAX_BYTES), str(path)) if path else given_document(source, "experiment")
    if not isinstance(document.data, dict):
        needs = "an experiment needs at least name, nodes, link and model; `bwbench init` writes a first one"
        if document.data is None:
            raise ConfigError(Problem(f"the file is empty; {needs}", document.file))
        raise ConfigError(document.problem(f"{show(document.data)} is not a mapping (key: value); {needs}"))
    reading = _Reading(document, document.data, path.parent if path else Path())
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            reading.override_by(str(key), given_document(value, f"override[{key!r}]"))
    else:
        for text in overrides:
            reading.override(text)
    return reading.experiment(path, tuning=tuning)


class _Reading:
    """The content of a file while it is read: collects problems instead of stopping at the first."""

    def __init__(self, document: Document, content: JsonObject, folder: Path) -> None:
        self._place = Place(document)
        self._folder = folder
        self._content: JsonObject = dict(content)
        self._placed: list[tuple[Location, Place]] = []
        self._overridden: set[Key] = set()
        self._problems = list(document.problems)
        self._warnings: dict[str, None] = {}  # dicts keep the order and drop what was said before
        self._notes: dict[str, None] = {}
        self._tables: dict[Path, None] = {}
        self._axes = read_axes(self._content.get("matrix"), self._place.inside("matrix"), self._problems)

    def override(self, text: str) -> None:
        """Apply one ``KEY=VALUE``."""
        key_text, equals, value_text = text.partition("=")
        name = f"--set {text}"
        if not equals or not key_text.strip():
            self._problems.append(Problem("write it as --set KEY=VALUE, for example --set nodes=2", name))
            return
        try:
            document = parse_yaml(value_text, name)
        except ConfigError as error:
            self._problems += [Problem(problem.message, name) for problem in error.problems]
            return
        document.lines.clear()  # a line number would mean nothing here
        self.override_by(key_text, document)

    def override_by(self, key_text: str, document: Document) -> None:
        """Set a dotted key to what a document holds; on an axis of several keys these are joined by commas."""
        self._problems += document.problems
        keys = tuple(parse_key(part) for part in key_text.split(","))
        self._set(keys, document.data, Place(document))

    def _set(self, keys: tuple[Key, ...], value: Json, place: Place) -> None:
        if len(keys) > 1:
            label = ", ".join(map(show_key, keys))
            if not any(axis.keys == keys for axis in self._axes):
                self._problems.append(place.problem(f"the matrix has no axis {label!r}; set one key at a time"))
                return
            fresh = read_axes({label: value}, Place(place.document), self._problems)
            self._axes = [(fresh or [axis])[0] if axis.keys == keys else axis for axis in self._axes]
            return
        key = keys[0]
        if key[0] in OWN_KEYS and len(key) == 1:
            self._content[key[0]] = value
            self._placed.append((key, place))
            if key[0] == "matrix":
                self._axes = read_axes(value, place, self._problems)
        elif key[0] in _OPENED and len(key) == 2:
            inside = self._content.get(key[0])
            self._content[key[0]] = {**(inside if isinstance(inside, Mapping) else {}), key[1]: value}
            self._placed.append((key, place))
        elif key[0] not in CELL_KEYS:
            self._problems.append(place.problem(unknown_key(show_key(key), KNOWN_KEYS)))
        elif refusal := refusal_of_key(key):
            self._problems.append(place.problem(refusal))
        else:
            self._overridden.add(key)
            self._axes = replace_axis(self._axes, Assignment(key, value, place))
            if not any(key in axis.keys for axis in self._axes):
                try:
                    self._content, path = assign(self._content, key, value)
                    self._placed.append((path, place))
                except ConfigError as error:
                    self._problems.append(place.problem(f"{show_key(key)}: {error}"))

    def experiment(self, path: Path | None, *, tuning: bool) -> Experiment:
        """The result; raises ConfigError with everything that was found wrong."""
        for key in self._content:
            if key not in KNOWN_KEYS:
                self._add(key, unknown_key(key, KNOWN_KEYS) + where_known(key, CellConfig))
        name = self._read_name()
        repeats, until = self._read_repeats()
        most = repeats if until is None else until.at_most
        if (count := math.prod(len(axis.rows) for axis in self._axes) * most) > MAX_CELLS:
            self._add("matrix", f"matrix: {count} cells with all repeats; at most {MAX_CELLS} are planned, drop values")
            self._axes = []
        seed = self._read_integer("seed", 0, 0, MAX_SEED - most)
        exclusions = read_exclusions(self._content.get("exclude"), self._where("exclude"), self._problems)
        plugins = self._read_plugins()
        mode = self._read_mode()
        whole = self._read_section("whole", WholeConfig) or WholeConfig()
        timing = self._read_section("timing", TimingConfig) or TimingConfig()
        hosts = self._read_hosts()
        self._base = {key: value for key, value in self._content.items() if key in CELL_KEYS} | {"seed": seed}
        self._plugins = tuple(map(str, plugins))
        tune = read_tune(self._content.get("tune"), self._where("tune"), self._problems)
        kept = self._expand(
            exclusions, TunedRates(str(path or "FILE"), self._folder, most, searching=tuning, tune=tune)
        )
        if not self._problems:
            self._problems += refusals_of(tune, [point.config for point in kept], self._where("tune"))
        on_hosts = self._on_their_way(kept, hosts, mode)
        if until is not None and any(point.config.target is None for point in kept):
            self._add("repeats", "repeats: 'until' is about times to a target, and there is none; add 'target:'")
        if until is not None and mode == "composed" and timing.runs < LEAST_PILOT:
            self._problems.append(
                self._where("timing", "runs").problem(
                    f"timing.runs: {timing.runs} say too little of what timing runs differ by, "
                    f"and repeats 'until' go by it; at least {LEAST_PILOT}"
                )
            )
        if self._problems:
            distinct = sorted(dict.fromkeys(self._problems), key=lambda problem: problem.line or 0)
            more = len(distinct) - MAX_PROBLEMS
            raise ConfigError(distinct[:MAX_PROBLEMS] + ([Problem(f"and {more} more problems")] if more > 0 else []))
        for key in OF_COMPOSED if mode == "full" else ():
            if self._content.get(key) is not None:
                self._warnings[f"{key!r} has no effect without mode: composed: every cell runs whole"] = None
        if self._content.get("tune") is not None and not self._tables:
            self._warnings["'tune' is for 'bwbench tune' alone: 'optimizer' names no table, {tuned: FILE}"] = None
        return Experiment(
            name,
            path,
            on_hosts,
            repeats,
            seed,
            plugins,
            varying=_varying(kept),
            warnings=tuple(self._warnings),
            notes=tuple(self._notes),
            tables=tuple(self._tables),
            mode=mode,
            whole=whole,
            until=until,
            timing=timing,
            tune=tune,
        )

    def _expand(self, exclusions: Sequence[Exclusion], tuned: TunedRates) -> list[Point]:
        """Every point of the matrix that is not excluded."""
        kept: list[Point] = []
        matched: set[int] = set()
        idle: set[str] | None = None
        found = dict.fromkeys(self._check_base())
        for assignments in points(self._axes):
            try:
                raw, placed = self._apply(assignments)
            except ConfigError as refused:
                found |= dict.fromkeys(refused.problems)
                continue
            excluding = {i for i, exclusion in enumerate(exclusions) if exclusion.matches(raw)}
            resolved = Resolved(None) if excluding else resolve(raw, self._plugins, self._folder, tuned=tuned)
            if resolved.config is not None and exclusions:
                content = resolved.config.model_dump(mode="json", by_alias=True)
                excluding = {i for i, exclusion in enumerate(exclusions) if exclusion.matches(raw, content)}
            matched |= excluding
            if excluding:
                continue
            for finding in resolved.findings:
                found[_locate(finding, raw, placed, self._place)] = None
            idle = set(resolved.idle) if idle is None else idle & set(resolved.idle)
            self._warnings.update(dict.fromkeys(resolved.warnings))
            self._notes.update(dict.fromkeys(resolved.notes))
            self._tables.update({resolved.tuned: None} if resolved.tuned is not None else {})
            if resolved.config is not None:
                values = tuple((item.key, item.value) for item in assignments)
                kept.append(Point(resolved.config, values, names_table=resolved.tuned is not None))
        if not found:
            unmatched = [exclusion for i, exclusion in enumerate(exclusions) if i not in matched]
            found |= dict.fromkeys(self._useless_exclusions(unmatched))
            if not kept and not found:
                found[self._place.inside("exclude").problem("exclude: leaves no cell; drop an entry")] = None
        self._problems += found
        self._warnings.update(dict.fromkeys(_IDLE[key] for key in sorted(idle or ())))
        return kept

    def _apply(self, assignments: Sequence[Assignment]) -> tuple[JsonObject, list[tuple[Location, Place]]]:
        """The base with the values of one point, and where each of them was written."""
        raw, placed = self._base, list(self._placed)
        for item in sorted(assignments, key=lambda item: len(item.key)):  # what holds others before what is inside
            try:
                raw, path = assign(raw, item.key, item.value)
            except ConfigError as error:
                raise ConfigError(item.place.problem(f"{show_key(item.key)}: {error}")) from None
            placed.append((path, item.place))
        return raw, placed

    def _check_base(self) -> list[Problem]:
        """Problems with values that the matrix replaces in every point: they would never be looked at."""
        first = next(points(self._axes), ())
        missing = [item for item in first if lookup(self._base, item.key) is None]
        if len(missing) == len(first):
            return []
        try:
            raw, placed = self._apply(missing)
        except ConfigError:
            return []  # said for the point
        findings = resolve(raw, self._plugins, self._folder, combine=False).findings
        return [_locate(f, raw, placed, self._place) for f in findings if f.loc and f.loc[0] in self._base]

    def _useless_exclusions(self, unmatched: Sequence[Exclusion]) -> Iterator[Problem]:
        """Of those that match no point; but where the command line changed one of their keys nothing is said."""
        for exclusion in unmatched:
            keys = {key for key, _ in exclusion.conditions}
            if self._overridden & keys:
                continue
            wanted = ", ".join(f"{show_key(key)}: {show(value)}" for key, value in exclusion.conditions)
            has = []
            for axis in self._axes:
                for column, key in enumerate(axis.keys):
                    if key in keys:
                        values = dict.fromkeys(show(row[column].value) for row in axis.rows)
                        has.append(f"{show_key(key)} takes {', '.join(values)}")
            hint = f"; {'; '.join(has)}" if has else "; its keys stand in no axis of the matrix"
            yield exclusion.place.problem(f"exclude: {{{wanted}}} matches no cell{hint}")

    def _on_their_way(self, kept: list[Point], hosts: tuple[Host, ...], mode: Mode) -> tuple[Point, ...]:
        """The points with their hosts, and whether they can be composed where they shall be.

        Of the hosts they train on as many of the first ones as their nodes need.
        """
        if hosts or self._content.get("hosts") is None:
            launchers = {point.config.launcher for point in kept}
            if hosts and kept and launchers != {"ssh"}:
                text = f"hosts are for launcher: ssh, and this experiment has launcher: {', '.join(sorted(launchers))}"
                self._add("hosts", f"{text}; write 'launcher: ssh', or leave 'hosts' out")
            if "per_host" in self._content and not hosts and "ssh" not in launchers:
                text = "per_host is for launcher: ssh, which starts so many ranks on each of its hosts; leave it out"
                self._add("per_host", f"{text}, or say it to 'bwbench launch-script --per-host'")
            if "ssh" in launchers and not hosts:
                text = "launcher: ssh needs hosts: a list like [anna@192.168.1.10, ben@192.168.1.11], "
                self._add("hosts", f"{text}or the file that has it")
            capacity = sum(host.workers for host in hosts)
            most = max((point.config.nodes for point in kept), default=0)
            if hosts and most > capacity:
                self._add("hosts", f"{most} nodes need as many workers, and the hosts have {capacity}")
            crowded = next((host for host in hosts if host.workers > 1), None)
            if crowded is not None and any(point.config.link.shaped for point in kept):
                text = f"{crowded.name} has {crowded.workers} workers, and what they say to one another does not "
                self._add("hosts", f"{text}use a link; write 'workers: 1', or 'link: unshaped'")
            kept = [replace(point, config=point.config.model_copy(update={"hosts": hosts})) for point in kept]
        if mode == "composed" and not self._problems:
            for reason in dict.fromkeys(filter(None, (why_not_composed(point.config) for point in kept))):
                text = f"mode: composed cannot do this: {reason}. Leave it out (exclude), or run it with mode: full"
                self._add("mode", text)
        return tuple(kept)

    def _read_name(self) -> str:
        value = self._content.get("name")
        if value is None:
            self._add("name", "'name' is missing: write 'name: my_experiment'; results lie in a folder of that name")
        elif not isinstance(value, str):
            self._add("name", f"name: {show(value)} is not text; put it in quotes")
        elif not _NAME.fullmatch(value) or _HIDDEN_NAME.fullmatch(value):
            text = f"name: {show(value)} is no name for a folder; allowed: letters, digits, '.', '_' and '-', "
            self._add("name", text + "at most 100, not beginning with '.'")
        elif value == PUBLISHED:
            self._add(
                "name", f"name: {show(value)} is the folder of published sets in every results folder; take another"
            )
        return str(value)

    def _read_integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self._content.get(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self._add(key, f"{key}: {show(value)} is not a whole number")
        elif not low <= value <= high:
            self._add(key, f"{key}: {value} is out of range: {low} to {high}")
        else:
            return value
        return default

    def _read_hosts(self) -> tuple[Host, ...]:
        """The hosts; ``nodes`` is their number of workers where nothing else is said."""
        if self._content.get("hosts") is None:
            return ()
        before = len(self._problems)
        workers = self._read_integer("per_host", 1, 1, MOST_WORKERS)
        hosts = read_hosts(self._content["hosts"], self._where("hosts"), self._folder, self._problems, workers)
        if "nodes" not in self._content and not any(("nodes",) in axis.keys for axis in self._axes):
            is_right = len(self._problems) == before  # else any number, so that one mistake is one message
            self._content["nodes"] = sum(host.workers for host in hosts) if is_right else 2
        return hosts if len(self._problems) == before else ()

    def _read_mode(self) -> Mode:
        asked = self._content.get("mode", "full")
        mode: Mode = "composed" if asked == "composed" else "full"
        if asked != mode:
            self._add("mode", f"mode: {show(asked)} is no mode.{nearest(asked, MODES)} Allowed: {', '.join(MODES)}")
        return mode

    def _read_repeats(self) -> tuple[int, UntilKnown | None]:
        """Trainings of each point; of a pilot where they go on until ratios are known."""
        if not isinstance(self._content.get("repeats"), Mapping):
            return self._read_integer("repeats", 1, 1, MAX_REPEATS), None
        until = self._read_section("repeats", UntilKnown)
        return (1, None) if until is None else (until.at_least, until)

    def _read_section(self, key: str, model: type[_Section]) -> _Section | None:
        """What stands under one of _OPENED, nothing included; None where it is wrong, which is noted."""
        content = self._content.get(key)
        try:
            return model.model_validate({} if content is None else content, strict=True, by_alias=True, by_name=False)
        except ValidationError as error:
            for loc, text in explain(error, model):
                where = (key, *loc)
                self._problems.append(self._where(*where).problem(f"{'.'.join(map(str, where))}: {text}"))
        return None

    def _read_plugins(self) -> tuple[Path, ...]:
        value = self._content.get("plugins")
        paths = [] if value is None else value if isinstance(value, list) else [value]
        loaded = []
        for index, text in enumerate(paths):
            place = self._where("plugins").inside(index)
            if not isinstance(text, str):
                self._problems.append(place.problem(f"plugins: {show(text)} is not the path of a Python file"))
                continue
            try:
                path = (self._folder / Path(text)).resolve()
                load_plugin(path)
                loaded.append(path)
            except ConfigError as error:
                self._problems.append(place.problem(str(error)))
            except (OSError, ValueError, RuntimeError) as error:
                self._problems.append(place.problem(f"plugin {show(text)} cannot be read: {error}"))
        return tuple(loaded)

    def _where(self, *key: int | str) -> Place:
        for path, place in reversed(self._placed):
            if path == key:
                return place
        return self._place.inside(*key)

    def _add(self, key: str, message: str) -> None:
        self._problems.append(self._where(key).problem(message))


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


def _varying(kept: Sequence[Point]) -> tuple[Key, ...]:
    """Keys with more than one value among the points, in the order of the file."""
    values: dict[Key, set[str]] = {}
    for point in kept:
        for key, value in point.values:
            values.setdefault(key, set()).add(repr(value))
    return tuple(key for key, distinct in values.items() if len(distinct) > 1)
