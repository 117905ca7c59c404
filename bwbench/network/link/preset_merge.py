"""A link's keys on top of a preset's: what is given wins, and takes along what it contradicts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FIELDS = {
    "bandwidth_bps": "bandwidth",
    "up_bps": "up",
    "down_bps": "down",
    "latency_s": "latency",
    "jitter_s": "jitter",
}
_OF_A_SHARED_AIR = ("standard", "efficiency", "aggregation", "fairness", "wired")
_OF_BURSTS = ("loss_burst", "loss_in_bad", "loss_in_good")
_OF_JITTER = ("jitter_distribution", "reorder")


def on_top(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of ``preset`` with those of ``given`` on top."""
    own = {_FIELDS.get(key, key): value for key, value in given.items()}
    kept = {key: value for key, value in preset.items() if key not in own}
    dropped: list[str] = []
    if own.get("bandwidth") is not None:
        dropped += ["up", "down", "trace"]
    if own.get("trace") is not None:
        directions = _directions(own["trace"])
        dropped += [*directions, "bandwidth"] if len(directions) == 2 else directions
    if own.get("standard") is not None:
        dropped += ["efficiency", "aggregation"]
    if own.get("medium") == "switched":
        dropped += _OF_A_SHARED_AIR
    if _is_nothing(own.get("loss")):
        dropped += _OF_BURSTS
    if _is_nothing(own.get("jitter")):
        dropped += _OF_JITTER
    kept = {key: value for key, value in kept.items() if key not in dropped}
    if "trace" in kept:
        rest = {key: value for key, value in _by_direction(kept.pop("trace")).items() if own.get(key) is None}
        kept |= {"trace": rest} if rest else {}
    elif isinstance(own.get("trace"), Mapping) and "trace" in preset:
        own["trace"] = {**_by_direction(preset["trace"]), **_by_direction(own["trace"])}
    return {**kept, **own}


def as_written(link: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The keys of a link in a file in ``folder``, with trace files made absolute."""
    made = dict(link)
    if "trace" in made:
        made["trace"] = _absolute(made["trace"], folder)
    if isinstance(made.get("overrides"), dict):
        made["overrides"] = {
            node: as_written(override, folder) if isinstance(override, dict) else override
            for node, override in made["overrides"].items()
        }
    return made


def _absolute(trace: Any, folder: Path) -> Any:
    if isinstance(trace, str):
        return os.path.abspath(folder / Path(trace).expanduser())
    if not isinstance(trace, dict):
        return trace
    return {
        key: _absolute(value, folder) if key in ("file", "up", "down") and value else value
        for key, value in trace.items()
    }


def _by_direction(trace: Any) -> dict[str, Any]:
    if isinstance(trace, Mapping) and "file" not in trace:
        return {key: trace[key] for key in ("up", "down") if trace.get(key) is not None}
    return {"up": trace, "down": trace}


def _directions(trace: Any) -> list[str]:
    if isinstance(trace, Mapping):
        return list(_by_direction(trace))
    return [key for key in ("up", "down") if getattr(trace, key, trace) is not None]


def _is_nothing(value: Any) -> bool:
    """Whether a loss or a jitter says 0: ``0``, ``0.0``, ``0 ms``."""
    if isinstance(value, str):
        value = value.split()[0] if value.split() else "x"
    try:
        return value is not None and not isinstance(value, bool) and float(value) == 0
    except (TypeError, ValueError):
        return False
