"""From options and a YAML file to a link; whatever is wrong is said with its option, or with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location, explain, show, unknown_key, yaml_names
from bwbench.base.units import DURATION
from bwbench.base.yaml_document import MAX_BYTES, Place, parse_yaml, read_text_file
from bwbench.cli.link.link_options import LinkOptions
from bwbench.network.link import Link
from bwbench.network.link.link import SHORTHANDS
from bwbench.network.link.link_checks import unknown_nodes
from bwbench.network.link.named_links import absolute_preset, expand_preset, on_top
from bwbench.network.link.trace_file import freeze_link

_RATES = ("bandwidth", "up", "down", "trace")
_ELSEWHERE = {"link_file", "trace", "columns", "outage", "override", "congestion_control"}
_Parsed = TypeVar("_Parsed")
_OPTION_OF_KEY = {"outages": "--outage", "overrides": "--override"}
_NO_RATE = (
    "how fast is the link? Give --bandwidth '10 Mbit/s', --up and --down, --trace FILE, --preset NAME ('bwbench link "
    "presets' lists them) or --link FILE"
)
_NO_RATE_THERE = (
    "how fast is the link? Write 'bandwidth: 10 Mbit/s', 'up' and 'down', 'trace' or 'preset' there, or give one of "
    "them as an option: --bandwidth '10 Mbit/s'"
)


def read_link(options: LinkOptions, num_nodes: int) -> Link:
    """The link of ``options`` with its traces read; raises ConfigError with everything that is wrong."""
    said = _Said(options)
    file = _File.read(Path(options.link_file)) if options.link_file is not None else None
    content = _merged(file.content if file else {}, said.expanded())
    if not content.keys() & {*_RATES, "preset", "shaped"}:
        if options.trace is None and options.preset is None:
            said.problems.append(file.place.problem(_NO_RATE_THERE) if file else Problem(_NO_RATE))
        content["bandwidth"] = "1 Mbit/s"  # so that all else that is wrong is found too
    try:
        link = Link.model_validate(content)
    except ValidationError as error:
        found = [_problem(loc, message, said, file) for loc, message in explain(error, Link)]
        raise ConfigError(list(dict.fromkeys([*said.problems, *found]))) from error
    if said.problems:
        raise ConfigError(said.problems)
    link = freeze_link(link, file.folder if file else Path.cwd())
    if wrong := unknown_nodes(link, num_nodes):
        raise ConfigError([_problem((key,), text, said, file) for key, text in wrong])
    return link


def in_machine_time(link: Link, dilation: float) -> Link:
    """What ``--dilation`` makes of the link; raises ConfigError where it can make nothing of it."""
    try:
        return link.dilated(dilation)
    except ValueError as error:
        raise ConfigError(f"--dilation {dilation:g}: {error}") from None


def dilation_words(dilation: float) -> str:
    """``8 times slower``, ``4 times faster``."""
    return f"{dilation:.4g} times slower" if dilation > 1 else f"{1 / dilation:.4g} times faster"


class _Said:
    """What the options say, as a link's mapping, and which option said what; what cannot be read becomes a problem."""

    def __init__(self, options: LinkOptions) -> None:
        self.values: dict[str, Any] = {}
        self.option_at: dict[Location, str] = {}
        self.problems: list[Problem] = []
        for field in fields(options):
            value = getattr(options, field.name)
            if value is not None and value != [] and field.name not in _ELSEWHERE:
                self.values[field.name] = value
                self.option_at[(field.name,)] = _as_option(field.name)
        if options.congestion_control is not None:
            self.values["tcp"] = {"congestion_control": options.congestion_control}
            self.option_at["tcp", "congestion_control"] = "--congestion-control"
        for trace in self._parsed("--trace", as_trace, [options.trace] if options.trace is not None else []):
            self.values["trace"] = trace if options.columns is None else {**trace, "columns": options.columns}
            self.option_at[("trace",)] = "--trace"
        if options.columns is not None and options.trace is None:
            self.problems.append(Problem("--columns names those of a CSV trace; give its file: --trace office.csv"))
        as_outage = partial(key_values, example="at=5 s,duration=2 s")
        for index, said in enumerate(self._parsed("--outage", as_outage, options.outage or [])):
            nodes = said.get("nodes")  # with + between them: a comma ends a key's value
            outage = said if nodes is None else {**said, "nodes": nodes.split("+")}
            self.values.setdefault("outages", []).append(outage)
            self.option_at["outages", index] = "--outage"
        for node, values in self._parsed("--override", as_override, options.override or []):
            self.values.setdefault("overrides", {}).setdefault(node, {}).update(values)
            self.option_at["overrides", node] = f"--override {node}"

    def _parsed(self, option: str, parse: Callable[[str], _Parsed], texts: Sequence[str]) -> Iterator[_Parsed]:
        for text in texts:
            try:
                yield parse(text)
            except ValueError as error:
                self.problems.append(Problem(f"{option} {text!r}: {error}"))

    def expanded(self) -> dict[str, Any]:
        """The values, with the preset's below them; a preset that does not exist becomes a problem."""
        try:
            return expand_preset(self.values, Link)
        except PydanticCustomError as error:
            self.problems.append(Problem(f"--preset: {error}"))
            return {key: value for key, value in self.values.items() if key != "preset"}


class _File:
    """A YAML file with a link in it."""

    def __init__(self, folder: Path, content: dict[str, Any], place: Place) -> None:
        self.folder, self.content, self.place = folder, content, place

    @classmethod
    def read(cls, path: Path) -> _File:
        """The link in ``path``: the whole file, or its key ``link``; raises ConfigError where there is none."""
        document = parse_yaml(read_text_file(path, MAX_BYTES), str(path))
        if document.problems:
            raise ConfigError(document.problems)
        content, place = document.data, Place(document)
        if isinstance(content, Mapping) and "link" in content:
            content, place = content["link"], place.inside("link")
        elif isinstance(content, Mapping):
            known = {*yaml_names(Link), *SHORTHANDS}
            for key in content:
                if key not in known:
                    raise ConfigError(place.inside(key).problem(unknown_key(key, ["link", *sorted(known)])))
        if content == "unshaped":
            content = {"shaped": False}
        if not isinstance(content, Mapping):
            raise ConfigError(place.problem(f"{show(content)} is not a link; write one such as 'bandwidth: 10 Mbit/s'"))
        return cls(path.parent, absolute_preset(content, path.parent), place)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` on top of ``below``; of TCP and of the nodes that differ, key by key."""
    if above.keys() & set(_RATES):
        below = {key: value for key, value in below.items() if key != "shaped"}
    merged = on_top(below, above)
    for key in ("tcp", "overrides"):
        lower, upper = below.get(key), above.get(key)
        if isinstance(lower, Mapping) and isinstance(upper, Mapping):
            both = [node for node in upper if key == "overrides" and isinstance(lower.get(node), Mapping)]
            merged[key] = {**lower, **upper, **{node: on_top(lower[node], upper[node]) for node in both}}
    return merged


def _problem(loc: Location, message: str, said: _Said, file: _File | None) -> Problem:
    """A problem with its option, or its line in the file; a refusal of the whole link speaks of options."""
    for length in range(len(loc), 0, -1):
        if option := said.option_at.get(loc[:length]):  # what it said stands at ``loc`` or around it
            inner = [str(part) for part in loc[length:] if not (option == "--trace" and part in ("up", "down"))]
            return Problem(": ".join([option, *([".".join(inner)] if inner else []), message]))
    if len(loc) == 1 and loc[0] in said.values:
        return Problem(f"{_OPTION_OF_KEY[str(loc[0])]}: {message}")
    if file is not None:
        key = ".".join(str(part) for part in ("link", *loc))
        return file.place.inside(*loc).problem(f"{key}: {message}")
    where = f"{_as_option(str(loc[0]))}: " if loc else ""
    return Problem(where + _in_options(message))


def _as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _in_options(message: str) -> str:
    """``'jitter: 1 ms'`` as ``--jitter '1 ms'``, ``'bandwidth'`` as ``--bandwidth``."""
    names = {field.name for field in fields(LinkOptions)}

    def replace(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in names:
            return match[0]
        quoted = f" '{value}'" if value and " " in value else f" {value}" if value else ""
        return _as_option(name) + quoted

    return re.sub(r"'([a-z_]+)(?:: ([^']+))?'", replace, message)


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


def as_duration(option: str, text: str) -> float:
    """Seconds; raises ConfigError where the text after an option is no duration."""
    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


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
