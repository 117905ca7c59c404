"""Links with a name. ``presets.yaml`` holds them with their sources; users keep their own in a YAML file alike."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from bwbench.base.errors import ConfigError
from bwbench.network.link.preset_merge import as_written, on_top

BUILT_IN = Path(__file__).with_name("presets.yaml")
_KEYS = ("summary", "link", "source")
_MOST_NESTED = 5  # a preset may build on another one
_OWN = "your own as 'preset: path/to/file.yaml:NAME'"


@dataclass(frozen=True)
class Preset:
    """A link with a name.

    Attributes:
        name: what ``preset:`` says.
        summary: one line.
        link: the keys of a link, as written, without ``preset``; traces are absolute.
        source: where the figures come from; empty for those of users who do not say.
    """

    name: str
    summary: str
    link: Mapping[str, Any]
    source: str


def expand_preset(link: Mapping[str, Any]) -> dict[str, Any]:
    """The link that ``preset`` stands for, with the other keys of ``link`` on top.

    A key that is given replaces what it contradicts: ``bandwidth`` the preset's ``up``, ``down`` and ``trace``;
    ``standard`` its ``efficiency`` and ``aggregation``; ``medium: switched`` all that belongs to a shared air.

    Args:
        link: keys as users write them; without ``preset`` it comes back as it is.

    Raises:
        PydanticCustomError: there is no such preset, or the file that ``preset`` names is not in order.
    """
    if "preset" not in link:
        return dict(link)
    try:
        preset = _find(link["preset"], 0)
    except ConfigError as error:
        raise PydanticCustomError("link", "{message}", {"message": str(error)}) from None
    return on_top(preset.link, {key: value for key, value in link.items() if key != "preset"})


def absolute_preset(link: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same keys; where ``preset`` names a file relative to ``folder``, its path is made absolute."""
    value = link.get("preset")
    if not isinstance(value, str) or ":" not in value:
        return dict(link)
    file, _, name = value.rpartition(":")
    return {**link, "preset": f"{os.path.abspath(folder / Path(file).expanduser())}:{name}"}


def preset_names() -> list[str]:
    """The built-in names, in the order of the file."""
    return list(_built_in())


def preset_table() -> list[dict[str, str]]:
    """A row for each built-in preset: ``name``, ``summary``, ``link`` (in words) and ``source``."""
    from bwbench.network.link.link import Link

    return [
        {
            "name": preset.name,
            "summary": preset.summary,
            "link": Link.model_validate(preset.link).describe(),
            "source": preset.source,
        }
        for preset in _built_in().values()
    ]


def _find(value: Any, depth: int) -> Preset:
    """The preset of that name; raises ConfigError."""
    from bwbench.base.explain import nearest, show

    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"preset: {show(value)} is not a name; 'bwbench link presets' lists them, or name {_OWN}")
    if depth > _MOST_NESTED:
        raise ConfigError(f"preset {value!r}: presets refer to each other more than {_MOST_NESTED} deep; in a circle?")
    if ":" in value:
        file, _, name = value.rpartition(":")
        path = Path(file).expanduser()
        known = _in_file(path, depth)
    else:
        name, known = value, _built_in()
    if name in known:
        return known[name]
    if ":" not in value and (value.endswith((".yaml", ".yml")) or "/" in value):
        raise ConfigError(f"preset: {value!r} is a file; add which of its links it is: '{value}:NAME'")
    where = f" in {value.rpartition(':')[0]}" if ":" in value else ""
    also = "" if where else f"; {_OWN}"
    raise ConfigError(f"unknown preset {name!r}{where}.{nearest(name, known)} Known: {', '.join(known)}{also}")


@lru_cache(maxsize=1)
def _built_in() -> dict[str, Preset]:
    return _parse(BUILT_IN, 0)


def _in_file(path: Path, depth: int) -> dict[str, Preset]:
    version: tuple[int, ...] = ()
    try:
        status = path.stat()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        pass  # reading it will say what is wrong
    return _in_version(os.path.abspath(path), version, depth)


@lru_cache(maxsize=16)  # every cell of a matrix names the same file
def _in_version(path: str, version: tuple[int, ...], depth: int) -> dict[str, Preset]:
    return _parse(Path(path), depth)


def _parse(path: Path, depth: int) -> dict[str, Preset]:
    """All presets of a file; raises ConfigError with everything that is wrong in it, by line."""
    from bwbench.base.explain import show, unknown_key
    from bwbench.base.yaml_document import MAX_BYTES, parse_yaml, read_text_file

    document = parse_yaml(read_text_file(path, MAX_BYTES), str(path))
    problems = list(document.problems)
    presets: dict[str, Preset] = {}
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
            link = _whole(as_written(written, path.parent), path.parent, depth)
        except ConfigError as error:
            problems.append(document.problem(f"preset {name!r}: {error}", (name, "link")))
        except ValidationError as error:
            problems += _explained(error, document, name)
        else:
            presets[name] = Preset(name, str(entry.get("summary", "")), link, str(entry.get("source", "")))
    if problems:
        raise ConfigError(problems)
    return presets


def _whole(link: dict[str, Any], folder: Path, depth: int) -> dict[str, Any]:
    """A preset's link with what it builds on; raises ValidationError where that is no link."""
    from bwbench.network.link.link import Link

    if "preset" in link:
        below = _find(absolute_preset(link, folder)["preset"], depth + 1)
        link = on_top(below.link, {key: value for key, value in link.items() if key != "preset"})
    Link.model_validate(link)
    return link


def _explained(error: ValidationError, document: Any, name: str) -> list[Any]:
    from bwbench.base.explain import explain
    from bwbench.network.link.link import Link

    return [
        document.problem(f"preset {name!r}: {message}", (name, "link", *loc)) for loc, message in explain(error, Link)
    ]
