"""Dotted keys such as ``link.bandwidth``: which exist, and setting one inside a configuration as it was written."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from bwbench.base.errors import ConfigError
from bwbench.base.explain import Location, unknown_key, yaml_names
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, DATASETS, MODELS, OPTIMIZERS
from bwbench.experiment.config.cell_config import CellConfig, ComputeConfig, EvaluateConfig, LimitConfig, TargetConfig
from bwbench.network.link import Link

Key = tuple[str, ...]

CELL_KEYS: tuple[str, ...] = tuple(name for name in CellConfig.model_fields if name not in ("plugins", "hosts"))
COMPONENT_KEYS = {known.kind: known for known in (MODELS, DATASETS, ALGORITHMS, COLLECTIVES, COMPRESSIONS, OPTIMIZERS)}
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
    names = [*yaml_names(SECTIONS[head]), *(["preset"] if head == "link" else [])]
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
