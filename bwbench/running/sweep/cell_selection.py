"""Which of the planned cells a command is about: ``--only KEY=VALUE`` and ``--shard I/N``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import show, unknown_key
from bwbench.experiment.config.matrix import CELL_KEYS, Key, lookup, means_the_same, parse_key, refusal_of_key, show_key
from bwbench.experiment.plan.cell import Cell

NAMES = ("arm", "experiment", "repeat", "id", "slug")  # of a cell, beside the keys of its configuration
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
_MOST_SHOWN = 12  # values of a key in a message


@dataclass(frozen=True)
class Selection:
    """What remains of a plan.

    Attributes:
        wanted: for each key the values that it may have, any of them; all keys have to hold.
        shard: (i, n): of every n cells in running order the i-th, from 1; None takes all.
    """

    wanted: Mapping[Key, tuple[Any, ...]]
    shard: tuple[int, int] | None = None

    @classmethod
    def parse(cls, only: Sequence[str] = (), shard: str | None = None) -> Selection:
        """Read the options; raises ConfigError with all that is wrong about them."""
        problems: list[Problem] = []
        wanted: dict[Key, tuple[Any, ...]] = {}
        for text in only:
            key_text, equals, value_text = text.partition("=")
            key = parse_key(key_text)
            if not equals or not key_text.strip():
                problems.append(Problem(f"--only {text!r}: write it as KEY=VALUE, for example --only arm=ring"))
            elif refusal := _refusal(key):
                problems.append(Problem(f"--only {text}: {refusal}"))
            else:
                wanted[key] = (*wanted.get(key, ()), *map(_value, value_text.split("|")))
        read = _read_shard(shard, problems)
        if problems:
            raise ConfigError(problems)
        return cls(wanted, read)

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of ``cells``, which stand in running order, that are selected.

        Raises ConfigError where a value of ``--only`` fits no cell; a shard may well be empty.
        """
        kept = list(cells)
        for key, values in self.wanted.items():
            found = [(cell, value_of(cell, key)) for cell in kept]
            kept = [cell for cell, actual in found if any(means_the_same(actual, value) for value in values)]
            if not kept:
                asked = "|".join(show(value).strip("'") for value in values)
                raise ConfigError(f"--only {show_key(key)}={asked} leaves no cell; {_takes(key, found)}")
        if self.shard is None:
            return kept
        number, count = self.shard
        return kept[number - 1 :: count]


def value_of(cell: Cell, key: Key) -> Any:
    """What a cell has under a dotted key of its configuration, or under one of ``NAMES``; None where it has none."""
    if key[0] in NAMES:
        return getattr(cell, key[0])
    part = getattr(cell.config, key[0])
    if len(key) == 1 and isinstance(part, (str, int, float)):
        return part
    return lookup(cell.config.model_dump(mode="json", by_alias=True, include={key[0]}), key)


def _refusal(key: Key) -> str | None:
    if key[0] in NAMES:
        return None if len(key) == 1 else f"unknown key {show_key(key)!r}: {key[0]!r} has no keys inside"
    if key[0] not in CELL_KEYS:
        return unknown_key(show_key(key), (*NAMES, *CELL_KEYS))
    return refusal_of_key(key)


def _value(text: str) -> Any:
    """As YAML reads it, so that numbers and components are what they would be in a file; else as text."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


def _read_shard(text: str | None, problems: list[Problem]) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _SHARD.fullmatch(text.strip())
    if match and 1 <= int(match[1]) <= int(match[2]):
        return int(match[1]), int(match[2])
    problems.append(Problem(f"--shard {text!r}: write it as I/N, from 1/N to N/N, for example --shard 2/4"))
    return None


def _takes(key: Key, found: Iterable[tuple[Cell, Any]]) -> str:
    values = list(dict.fromkeys(show(value).strip("'") for _, value in found if value is not None))
    if not values:
        return f"no cell has {show_key(key)}"
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return f"{show_key(key)} takes {', '.join(values[:_MOST_SHOWN])}{more}"
