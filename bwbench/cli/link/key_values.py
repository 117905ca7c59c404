"""Options that hold several values: ``3:bandwidth=2 Mbit/s,latency=20 ms``. Wrong ones raise ValueError."""

from __future__ import annotations

import re
from pathlib import Path

_OVERRIDE = re.compile(r"\s*(\d+)\s*:(.*)", re.DOTALL)
_SETTINGS_OF_TRACE = re.compile(r"((?:,\s*[a-z_0-9]+\s*=[^,=]*)*)$")


def key_values(text: str, example: str) -> dict[str, str]:
    """``at=5 s,duration=2 s`` as a mapping; the keys' names are for the link's own validation to judge."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise ValueError(f"{part.strip()!r} is not KEY=VALUE; write it like {example!r}")
        if key in found:
            raise ValueError(f"{key!r} stands twice; keep one")
        found[key] = value
    return found


def as_override(text: str) -> tuple[str, dict[str, str]]:
    """``3:bandwidth=2 Mbit/s`` as the node's number and what differs there; a trace's path is made absolute."""
    example = "3:bandwidth=2 Mbit/s,latency=20 ms"
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        raise ValueError(f"which node, and what of it? Write it like {example!r}")
    values = key_values(match[2], example)
    if "trace" in values:
        values["trace"] = str(Path.cwd() / values["trace"])
    return str(int(match[1])), values


def as_outage(text: str) -> dict[str, str]:
    """``at=5 s,duration=2 s`` as the mapping of an outage."""
    return key_values(text, "at=5 s,duration=2 s")


def as_trace(text: str) -> dict[str, str]:
    """``office.csv,measures=tcp-goodput`` as the mapping of a trace, its path absolute."""
    match = _SETTINGS_OF_TRACE.search(text)
    settings = match[1] if match else ""
    name = text.removesuffix(settings)
    if not name.strip():
        raise ValueError("name a file: office.tsv")
    values = key_values(settings[1:], "office.csv,measures=tcp-goodput") if settings else {}
    if "file" in values:
        raise ValueError("the file stands first, without 'file='")
    return {"file": str(Path.cwd() / name), **values}
