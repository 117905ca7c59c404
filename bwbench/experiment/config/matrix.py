"""Dotted keys such as ``link.bandwidth``, the axes of values for them, the points that these span or leave out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location, show, unknown_key, yaml_names
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, DATASETS, MODELS, OPTIMIZERS, WEIGHT_AVERAGES
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY, SAMPLES
from bwbench.base.yaml_document import Place
from bwbench.experiment.config.cell_config import CellConfig, ComputeConfig, EvaluateConfig, LimitConfig, TargetConfig
from bwbench.network.link import Link
from bwbench.network.link.link import SHORTHANDS

Key = tuple[str, ...]

CELL_KEYS: tuple[str, ...] = tuple(name for name in CellConfig.model_fields if name not in ("plugins", "hosts"))
COMPONENT_KEYS = {
    known.kind: known
    for known in (MODELS, DATASETS, ALGORITHMS, COLLECTIVES, COMPRESSIONS, OPTIMIZERS, WEIGHT_AVERAGES)
}
SECTIONS: dict[str, type[BaseModel]] = {
    "link": Link,
    "compute": ComputeConfig,
    "evaluate": EvaluateConfig,
    "target": TargetConfig,
    "limit": LimitConfig,
}


def parse_key(text: str) -> Key:
    """``link.bandwidth`` as a path."""
    return tuple(part.strip() for part in text.split("."))


def show_key(key: Key) -> str:
    """The path as it is written."""
    return ".".join(key)


def refusal_of_key(key: Key) -> str | None:
    """Why a dotted key cannot be set; None where it can.

    Options of components are not checked here: which there are depends on the component, and each cell checks its own.
    """
    head, rest = key[0], key[1:]
    if head not in CELL_KEYS:
        return unknown_key(show_key(key), CELL_KEYS)
    if not rest or head in COMPONENT_KEYS or head == "target":
        return None if all(rest) and len(rest) <= 4 else unknown_key(show_key(key), CELL_KEYS)
    if head not in SECTIONS:
        return f"unknown key {show_key(key)!r}: {head!r} is a single value and has no keys inside"
    names = [*yaml_names(SECTIONS[head]), *(SHORTHANDS if head == "link" else [])]
    if rest[0] not in names:
        return unknown_key(show_key(key), [f"{head}.{name}" for name in names])
    return None if len(rest) == 1 else f"unknown key {show_key(key)!r}: {head}.{rest[0]} has no keys inside"


def assign(raw: JsonObject, key: Key, value: Json) -> tuple[JsonObject, Location]:
    """A copy of ``raw`` in which ``key`` has ``value``, and the path where it went.

    The path differs from the key where a component is spelled ``{sgd: {lr: 0.05}}``: setting ``optimizer.lr`` sets
    ``("optimizer", "sgd", "lr")``. ``raw`` itself is not changed. Raises ConfigError where the key is ambiguous.
    """
    head, rest = key[0], key[1:]
    old = raw.get(head)
    if not rest:
        return {**raw, head: value}, (head,)
    if key == ("optimizer", "tuned") and not (isinstance(old, Mapping) and "tuned" in old):
        return {**raw, head: {"tuned": value}}, key  # in place of an optimizer, of which it is no option
    if head in COMPONENT_KEYS:
        new, path = _assign_in_component(old, rest, value)
    elif head == "target" or old in (None, "unshaped"):
        new, path = {".".join(rest): value}, rest  # one target only; nothing of `link: unshaped` is kept
    elif isinstance(old, Mapping):
        new, path = {**old, rest[0]: value}, rest
    else:
        new, path = old, rest  # validation refuses the old value
    return {**raw, head: new}, (head, *path)


def lookup(raw: Json, key: Key) -> Json:
    """The value at ``key`` in a configuration as written or resolved; None where there is none."""
    for index, part in enumerate(key):
        if isinstance(raw, list) and len(raw) == 1:
            raw = raw[0]
        if isinstance(raw, str) and part == "name":
            return raw if index == len(key) - 1 else None
        if isinstance(raw, list) and part.isdigit() and int(part) < len(raw):
            raw = raw[int(part)]
        elif isinstance(raw, Mapping) and part in raw:
            raw = raw[part]
        elif isinstance(raw, Mapping) and len(raw) == 1 and index > 0:
            name, options = next(iter(raw.items()))
            if part == "name":
                return name if index == len(key) - 1 else None
            raw = options.get(part) if isinstance(options, Mapping) else None
        else:
            return None
    return raw


def _assign_in_component(old: Json, rest: Key, value: Json) -> tuple[Json, Location]:
    if not rest:
        return value, ()
    head = rest[0]
    if isinstance(old, list):
        if head.isdigit() and int(head) < len(old):
            index, rest = int(head), rest[1:]
        elif len(old) == 1:
            index = 0
        else:
            raise ConfigError(f"the value to change is a list of {len(old)}; say which by its number, from 0")
        new, path = _assign_in_component(old[index], rest, value)
        return [*old[:index], new, *old[index + 1 :]], (index, *path)
    if isinstance(old, str):
        old = {"name": old}
    elif old is None:
        old = {}
    elif not isinstance(old, Mapping):
        return old, rest  # validation refuses the old value
    return _assign_in_options(old, rest, value)


def _assign_in_options(old: JsonObject, rest: Key, value: Json) -> tuple[JsonObject, Location]:
    head = rest[0]
    if len(old) == 1 and not {"name", "partition", head} & set(old):
        name, options = next(iter(old.items()))
        options = options if isinstance(options, Mapping) else {}
        if head == "name" and len(rest) == 1:
            return ({value: options}, (value,)) if isinstance(value, str) else ({"name": value}, ("name",))
        new, path = _assign_in_options({"name": name, **options}, rest, value)
        return {name: {key: option for key, option in new.items() if key != "name"}}, (name, *path)
    if len(rest) > 1:
        inner, path = _assign_in_component(old.get(head), rest[1:], value)
        return {**old, head: inner}, (head, *path)
    return {**old, head: value}, (head,)


@dataclass(frozen=True)
class Assignment:
    """One value that a point gives to one key, and where it was written."""

    key: Key
    value: Json
    place: Place


@dataclass(frozen=True)
class Axis:
    """One dimension of the matrix: in each row, every key of the axis has a value. Several keys vary together."""

    keys: tuple[Key, ...]
    rows: tuple[tuple[Assignment, ...], ...]


@dataclass(frozen=True)
class Exclusion:
    """A set of points to leave out: those where every key has its value."""

    conditions: tuple[tuple[Key, Json], ...]
    place: Place

    def matches(self, *configurations: JsonObject) -> bool:
        """Whether every condition holds in one of ``configurations`` (as written, or resolved)."""
        return all(
            any(means_the_same(lookup(configuration, key), wanted) for configuration in configurations)
            for key, wanted in self.conditions
        )


def read_axes(value: Json, place: Place, problems: list[Problem]) -> list[Axis]:
    """The axes of ``matrix:``. What is wrong goes to ``problems``; a broken axis is left out."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        problems.append(place.problem(f"matrix: {show(value)} is not a mapping; write 'KEY: [VALUE, …]' in each line"))
        return []
    axes: list[Axis] = []
    taken: set[Key] = set()
    for text, rows in value.items():
        axis_place = place.inside(text)
        keys = tuple(parse_key(part) for part in text.split(","))
        refusals = [refusal for key in keys if (refusal := refusal_of_key(key))]
        refusals += [f"{show_key(key)!r} stands in two axes; keep one" for key in keys if key in taken]
        taken.update(keys)
        problems += [axis_place.problem(f"matrix: {refusal}") for refusal in refusals]
        axis = _read_rows(keys, rows, axis_place, problems)
        if axis is not None and not refusals:
            axes.append(axis)
    return axes


def _read_rows(keys: tuple[Key, ...], rows: Json, place: Place, problems: list[Problem]) -> Axis | None:
    label = ", ".join(map(show_key, keys))
    if not isinstance(rows, list) or not rows:
        form = f"{label}: [VALUE, …]" if len(keys) == 1 else f"{label}: [[{', '.join('VALUE' for _ in keys)}], …]"
        problems.append(place.problem(f"matrix: {show(rows)} is not a list of values; write '{form}'"))
        return None
    if len(keys) == 1:
        return Axis(keys, tuple((Assignment(keys[0], row, place.inside(index)),) for index, row in enumerate(rows)))
    read = []
    for index, row in enumerate(rows):
        if isinstance(row, list) and len(row) == len(keys):
            places = [place.inside(index, column) for column in range(len(keys))]
            read.append(tuple(map(Assignment, keys, row, places)))
        else:
            text = f"matrix: {show(row)} is not a list of {len(keys)} values, one each for {label}"
            problems.append(place.inside(index).problem(text))
    return Axis(keys, tuple(read)) if len(read) == len(rows) else None


def read_exclusions(value: Json, place: Place, problems: list[Problem]) -> list[Exclusion]:
    """The entries of ``exclude:``. What is wrong goes to ``problems``; a broken entry is left out."""
    if value is None:
        return []
    if not isinstance(value, list):
        problems.append(
            place.problem(f"exclude: {show(value)} is not a list; write '- {{KEY: VALUE, …}}' in each line")
        )
        return []
    exclusions = []
    for index, entry in enumerate(value):
        entry_place = place.inside(index)
        if not isinstance(entry, Mapping) or not entry:
            problems.append(entry_place.problem(f"exclude: {show(entry)} is not a mapping; write {{KEY: VALUE, …}}"))
            continue
        conditions = tuple((parse_key(text), wanted) for text, wanted in entry.items())
        refusals = [(key, refusal) for key, _ in conditions if (refusal := refusal_of_key(key))]
        problems += [entry_place.inside(show_key(key)).problem(f"exclude: {refusal}") for key, refusal in refusals]
        if not refusals:
            exclusions.append(Exclusion(conditions, entry_place))
    return exclusions


def replace_axis(axes: Sequence[Axis], assignment: Assignment) -> list[Axis]:
    """The axes once ``--set`` gave a key another value; the same ones where none has the key.

    A list replaces the values of the axis. Anything else takes the key out of its axis, and with it the axis, or its
    column where several keys vary together; the value then belongs to the base configuration.
    """
    key = assignment.key
    replaced = []
    for axis in axes:
        if key not in axis.keys:
            replaced.append(axis)
        elif axis.keys == (key,) and isinstance(assignment.value, list) and assignment.value:
            place = assignment.place
            values = enumerate(assignment.value)
            replaced.append(Axis(axis.keys, tuple((Assignment(key, v, place.inside(i)),) for i, v in values)))
        elif len(axis.keys) > 1:
            column = axis.keys.index(key)
            rows = (tuple(item for index, item in enumerate(row) if index != column) for row in axis.rows)
            replaced.append(Axis(tuple(k for k in axis.keys if k != key), tuple(rows)))
    return replaced


def points(axes: Sequence[Axis]) -> Iterator[tuple[Assignment, ...]]:
    """The cartesian product, the last axis fastest."""
    for rows in itertools.product(*(axis.rows for axis in axes)):
        yield tuple(itertools.chain.from_iterable(rows))


def means_the_same(actual: Json, wanted: Json) -> bool:
    """Whether a value means the same as the one to exclude, which may name a component and only some of its options."""
    if isinstance(actual, list) and len(actual) == 1 and not isinstance(wanted, list):
        actual = actual[0]
    if isinstance(actual, (str, Mapping)) and isinstance(wanted, (str, Mapping)):
        if isinstance(actual, str) and isinstance(wanted, str):
            return bool(_canonical(actual) == _canonical(wanted))
        actual, wanted = _spelled_out(actual), _spelled_out(wanted)
        return all(bool(key in actual and means_the_same(actual[key], value)) for key, value in wanted.items())
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(means_the_same, actual, wanted))
    comparable = type(actual) is type(wanted) or {type(actual), type(wanted)} == {int, float}
    return bool(comparable and actual == wanted)


def _spelled_out(value: str | Mapping[str, Json]) -> JsonObject:
    if isinstance(value, str):
        return {"name": value}
    if len(value) == 1:
        name, options = next(iter(value.items()))
        if isinstance(options, Mapping):
            return {"name": name, **options}
    return dict(value)


def _canonical(text: str) -> tuple[str, float] | str:
    """A quantity as its SI value, so that ``0.1 Gbit/s`` and ``100 Mbit/s`` are the same; other text as it is."""
    for dimension in (BANDWIDTH, DURATION, MEMORY, SAMPLES):
        try:
            return dimension.name, dimension.parse(text)
        except ValueError:
            continue
    return text
