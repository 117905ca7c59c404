"""Links with a name. ``presets.yaml`` holds them with their sources; users keep their own in a YAML file alike.

Keys that are given beside a preset go on top of its own: what is given wins, and takes along what it contradicts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from bwbench.base.errors import ConfigError
from bwbench.base.explain import explain, nearest, refused, show, unknown_key
from bwbench.base.plain_data import Json, JsonObject
from bwbench.network.link.data_file import absolute_path

BUILT_IN = Path(__file__).with_name("presets.yaml")
_KEYS = ("summary", "link", "source")
_MOST_NESTED = 5  # a preset may build on another one
_OWN = "your own as 'preset: path/to/file.yaml:NAME'"


@dataclass(frozen=True)
class NamedLink:
    """A link with a name.

    Attributes:
        name: what ``preset:`` says.
        summary: one line.
        link: the keys of a link, as written, without ``preset``; traces are absolute.
        source: where the figures come from; empty for those of users who do not say.
    """

    name: str
    summary: str
    link: Mapping[str, object]
    source: str


def expand_preset(link: Mapping[str, object], link_type: type[BaseModel]) -> dict[str, object]:
    """The link that ``preset`` stands for, with the other keys of ``link`` on top.

    A key that is given replaces what it contradicts: ``bandwidth`` the preset's ``up``, ``down`` and ``trace``;
    ``standard`` its ``efficiency`` and ``aggregation``; ``medium: switched`` all that belongs to a shared air.

    Args:
        link: keys as users write them; without ``preset`` it comes back as it is.
        link_type: the model that checks the links of a file: ``Link``, which is built on this module.

    Raises:
        PydanticCustomError: there is no such preset, or the file that ``preset`` names is not in order.
    """
    if "preset" not in link:
        return dict(link)
    try:
        preset = _find(link["preset"], link_type, 0)
    except ConfigError as error:
        raise refused(str(error)) from None
    return on_top(preset.link, {key: value for key, value in link.items() if key != "preset"})


def absolute_preset(link: Mapping[str, Json], folder: Path) -> JsonObject:
    """The same keys; where ``preset`` names a file relative to ``folder``, its path is made absolute."""
    value = link.get("preset")
    if not isinstance(value, str) or ":" not in value:
        return dict(link)
    file, _, name = value.rpartition(":")
    return {**link, "preset": f"{absolute_path(file, folder)}:{name}"}


@lru_cache(maxsize=1)
def named_links(link_type: type[BaseModel]) -> Mapping[str, NamedLink]:
    """The built-in ones by name, in the order of the file."""
    return _parse(str(BUILT_IN), (), link_type, 0)


def _find(value: object, link_type: type[BaseModel], depth: int) -> NamedLink:
    """The preset of that name; raises ConfigError."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"preset: {show(value)} is not a name; 'bwbench link presets' lists them, or name {_OWN}")
    if depth > _MOST_NESTED:
        raise ConfigError(f"preset {value!r}: presets refer to each other more than {_MOST_NESTED} deep; in a circle?")
    if ":" in value:
        file, _, name = value.rpartition(":")
        path = Path(os.path.expanduser(file))
        version: tuple[int, ...] = ()
        with contextlib.suppress(OSError, ValueError):  # reading it will say what is wrong
            status = path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = _parse(os.path.abspath(path), version, link_type, depth)
    else:
        name, known = value, named_links(link_type)
    if name in known:
        return known[name]
    if ":" not in value and (value.endswith((".yaml", ".yml")) or "/" in value):
        raise ConfigError(f"preset: {value!r} is a file; add which of its links it is: '{value}:NAME'")
    where = f" in {value.rpartition(':')[0]}" if ":" in value else ""
    also = "" if where else f"; {_OWN}"
    raise ConfigError(f"unknown preset {name!r}{where}.{nearest(name, known)} Known: {', '.join(known)}{also}")


@lru_cache(maxsize=16)  # every cell of a matrix names the same file
def _parse(file: str, version: tuple[int, ...], link_type: type[BaseModel], depth: int) -> Mapping[str, NamedLink]:
    """All presets of a file; raises ConfigError with everything that is wrong in it, by line."""
    from bwbench.base import yaml_document  # PyYAML: not for links without a preset

    folder = Path(file).parent
    document = yaml_document.parse_yaml(yaml_document.read_text_file(Path(file), yaml_document.MAX_BYTES), file)
    problems = list(document.problems)
    presets: dict[str, NamedLink] = {}
    if not isinstance(document.data, dict) or not document.data:
        text = f"{show(document.data)} holds no presets; write 'NAME: {{summary: …, link: {{bandwidth: …}}}}'"
        raise ConfigError(document.problem(text))
    for name, entry in document.data.items():
        written = entry.get("link") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(written, dict):
            text = f"preset {name!r} has no link; write '{name}: {{link: {{bandwidth: 10 Mbit/s}}}}'"
            problems.append(document.problem(text, (name,)))
            continue
        problems += [document.problem(unknown_key(key, _KEYS), (name, key)) for key in entry if key not in _KEYS]
        for key in ("summary", "source"):
            if not isinstance(entry.get(key, ""), str):
                problems.append(document.problem(f"{key}: {show(entry[key])} is not text", (name, key)))
        try:
            written = as_written(written, folder)
            link: Mapping[str, object] = written
            if "preset" in written:  # it builds on another one
                below = _find(absolute_preset(written, folder)["preset"], link_type, depth + 1)
                link = on_top(below.link, {key: value for key, value in written.items() if key != "preset"})
            link_type.model_validate(link)
        except ConfigError as error:
            problems.append(document.problem(f"preset {name!r}: {error}", (name, "link")))
        except ValidationError as error:
            problems += [
                document.problem(f"preset {name!r}: {message}", (name, "link", *loc))
                for loc, message in explain(error, link_type)
            ]
        else:
            presets[name] = NamedLink(name, str(entry.get("summary", "")), link, str(entry.get("source", "")))
    if problems:
        raise ConfigError(problems)
    return presets


_FIELDS = {
    "bandwidth_bps": "bandwidth",
    "up_bps": "up",
    "down_bps": "down",
    "latency_s": "latency",
    "jitter_s": "jitter",
}
_OF_A_SHARED_AIR = ("standard", "efficiency", "aggregation", "fairness", "wired")
_OF_BURSTS = ("loss_burst", "loss_in_bad", "loss_in_good")
OF_JITTER = ("jitter_kind", "jitter_distribution", "reorder")


def on_top(preset: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """The keys of ``preset`` with those of ``given`` on top."""
    own = {_FIELDS.get(key, key): value for key, value in given.items()}
    kept = {key: value for key, value in preset.items() if key not in own}
    dropped: list[str] = []
    if own.get("bandwidth") is not None:
        dropped += ["up", "down", "trace"]
    if own.get("trace") is not None:
        trace = own["trace"]
        directions = [key for key in ("up", "down") if getattr(trace, key, trace) is not None]
        if isinstance(trace, Mapping):
            directions = list(_by_direction(trace))
        dropped += [*directions, "bandwidth"] if len(directions) == 2 else directions
    if own.get("standard") is not None:
        dropped += ["efficiency", "aggregation"]
    if any(own.get(key) is not None for key in ("sites", "regions")):
        dropped += ["sites", "regions", "paths"]
    if own.get("medium") == "switched":
        dropped += _OF_A_SHARED_AIR
    if is_nothing(own.get("loss")):
        dropped += _OF_BURSTS
    if is_nothing(own.get("jitter")):
        dropped += OF_JITTER
    kept = {key: value for key, value in kept.items() if key not in dropped}
    if "trace" in kept:
        rest = {key: value for key, value in _by_direction(kept.pop("trace")).items() if own.get(key) is None}
        kept |= {"trace": rest} if rest else {}
    elif isinstance(own.get("trace"), Mapping) and "trace" in preset:
        own["trace"] = {**_by_direction(preset["trace"]), **_by_direction(own["trace"])}
    return {**kept, **own}


def as_written(link: Mapping[str, Json], folder: Path) -> JsonObject:
    """The keys of a link in a file in ``folder``, with the files of traces and paths made absolute."""
    made = dict(link)
    if isinstance(paths := made.get("paths"), str):
        made["paths"] = absolute_path(paths, folder)
    elif isinstance(paths, dict) and isinstance(file := paths.get("file"), str):
        made["paths"] = {**paths, "file": absolute_path(file, folder)}
    if "trace" in made:
        made["trace"] = _absolute(made["trace"], folder)
    if isinstance(overrides := made.get("overrides"), dict):
        made["overrides"] = {
            node: as_written(override, folder) if isinstance(override, dict) else override
            for node, override in overrides.items()
        }
    return made


def _absolute(trace: Json, folder: Path) -> Json:
    if isinstance(trace, str):
        return absolute_path(trace, folder)
    if not isinstance(trace, dict):
        return trace
    return {
        key: _absolute(value, folder) if key in ("file", "up", "down") and value else value
        for key, value in trace.items()
    }


def _by_direction(trace: object) -> dict[str, object]:
    if isinstance(trace, Mapping) and "file" not in trace:
        return {key: trace[key] for key in ("up", "down") if trace.get(key) is not None}
    return {"up": trace, "down": trace}


def is_nothing(value: object) -> bool:
    """Whether a loss or a jitter says 0: ``0``, ``0.0``, ``0 ms``."""
    if isinstance(value, str):
        return re.fullmatch(r"[-+]?(0+\.?0*|\.0+)([eE][-+]?\d+)?", (value.split() or [""])[0]) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
