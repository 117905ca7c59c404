"""Plain data, as YAML and JSON hold it: its types, and one form for values that are equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

from pydantic import JsonValue

Json: TypeAlias = JsonValue  # text, numbers, booleans, None, and lists and mappings of these
JsonObject: TypeAlias = dict[str, JsonValue]


def mapping_at(content: JsonObject, key: str) -> JsonObject:
    """The mapping under a key; empty where there is none."""
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def list_at(content: JsonObject, key: str) -> list[Json]:
    """The list under a key; empty where there is none."""
    found = content.get(key)
    return found if isinstance(found, list) else []


def leaves(content: JsonObject, prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Every value that is no mapping, by its dotted key: ``link.latency``."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def whole_floats_as_int(value: object) -> object:
    """Plain data with ``1e5`` and ``3.0`` as integers, so that they fit where a whole number is due."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {key: whole_floats_as_int(item) for key, item in value.items()}
    return [whole_floats_as_int(item) for item in value] if isinstance(value, (list, tuple)) else value


def canonical(value: object) -> str:
    """JSON that is equal where values are: 1 and 1.0 are, and the order of keys says nothing."""
    return json.dumps(whole_floats_as_int(value), sort_keys=True)


def has_more_values(content: JsonObject, most: int) -> bool:
    """Whether there are more than so many values in it, sections and lists counted; however deep they lie."""
    seen, inside = 0, [*content.values()]
    while inside and seen <= most:
        value = inside.pop()
        seen += 1
        inside += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return seen + len(inside) > most
