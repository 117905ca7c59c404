"""The axes of an experiment, the points that they span, and the points left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.errors import Problem
from bwbench.base.explain import show
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY, SAMPLES
from bwbench.base.yaml_document import Place
from bwbench.experiment.config.dotted_keys import Key, lookup, parse_key, refusal_of_key, show_key


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


def replace_axis(axes: Sequence[Axis], assignment: Assignment) -> list[Axis] | None:
    """The axes once ``--set`` gave a key of theirs another value; None where no axis has the key.

    A list replaces the values of the axis. Anything else takes the key out of its axis, and with it the axis, or its
    column where several keys vary together; the value then belongs to the base configuration.
    """
    key = assignment.key
    if not any(key in axis.keys for axis in axes):
        return None
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


def count_points(axes: Sequence[Axis]) -> int:
    """How many points the axes span, before any is excluded."""
    return math.prod(len(axis.rows) for axis in axes)


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
    comparable = type(actual) is type(wanted) or (_is_number(actual) and _is_number(wanted))
    return bool(comparable and actual == wanted)


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
