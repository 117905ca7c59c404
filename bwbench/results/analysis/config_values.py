"""Values of a cell's configuration by dotted keys, as written in YAML: ``link.bandwidth``, ``algorithm.period``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """The value under a dotted key; the name where that is a component; None where it is not there.

    In a chain of codecs the option of the first one that has it is found: ``compression.ratio``.
    """
    value: Any = config
    for part in key.split("."):
        if isinstance(value, list):
            value = next((item for item in value if isinstance(item, Mapping) and part in item), None)
        value = value.get(part) if isinstance(value, Mapping) else None
    return _shown(value)


def keys_of(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key that ``value_at`` finds a value for."""
    for name, value in config.items():
        key = f"{prefix}{name}"
        yield key
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping):
                yield from keys_of(part, f"{key}.")


def _shown(value: Any) -> Any:
    """Components as their names, chains of them joined by ``+``; anything else as it is."""
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        return "+".join(str(item["name"]) for item in value)
    return value
