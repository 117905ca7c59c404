"""Short names of cells for folders and tables, made from what varies in the experiment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.dotted_keys import Key
from bwbench.experiment.config.experiment import Point

MAX_LENGTH = 100  # with the id and ".part" it fits everywhere, encrypted file systems included (143 bytes)
_METHOD = ("algorithm", "collective", "compression")  # the arm's name says it
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def slug(point: Point, arm: str, varying: Sequence[Key], seed: int) -> str:
    """``ring-fp16-10Mbit-s0``: the method, the values of the axes that vary, the seed; safe in a file name."""
    parts = [arm]
    values = dict(point.values)
    for key in varying:
        if key[0] in (*_METHOD, "seed") or (key[0] == "link" and _has_no_link(point.config)):
            continue
        parts.append(_value(key, values[key], point.config))
    text = "-".join(filter(None, map(_safe, parts)))[:MAX_LENGTH].rstrip("-._")
    return f"{text}-s{seed}"


def _has_no_link(config: CellConfig) -> bool:
    return config.algorithm.name == "single"


def _value(key: Key, value: Any, config: CellConfig) -> str:
    if key == ("link",):
        return config.link.describe().partition(" (")[0].replace(" one way", "")
    speaks_for_itself = key == ("link", "bandwidth") or key[-1] in ("name", "preset") or len(key) == 1
    if speaks_for_itself and isinstance(value, (str, Mapping)):
        return _name(value)
    return f"{key[-1]}{_name(value)}"


def _name(value: Any) -> str:
    """A value in few letters; of a component its name and its options."""
    if isinstance(value, Mapping):
        parts = [value["name"]] if isinstance(value.get("name"), str) else []
        for key, item in value.items():
            if key != "name":
                inner = _name(item)
                parts.append(f"{key}-{inner}" if isinstance(item, Mapping) else f"{key}{inner}")
        return "-".join(parts)
    if isinstance(value, list):
        return "-".join(map(_name, value))
    return "none" if value is None else str(value)


def _safe(text: str) -> str:
    """The text with a unit closed up (``10Mbit``) and nothing that a shell or a file system minds."""
    text = text.replace("/s", "").replace(" ", "").replace("=", "")
    return _UNSAFE.sub("-", text).strip("-._")
