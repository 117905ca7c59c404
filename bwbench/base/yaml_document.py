"""YAML text as plain data in which every value knows its line; or such data of a program, in which it knows its keys.

Composed, never constructed: PyYAML's own types turn ``off`` into False, ``1e7`` into text and ``10:30`` into 630. Here
only ``true`` and ``false`` are booleans, ``1e7`` is a number, and dates or base 60 do not exist.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location
from bwbench.base.plain_data import Json, JsonObject

MAX_BYTES = 256 * 1024  # no experiment is longer; PyYAML reads some 300 kB/s
MAX_VALUES = 100_000  # with every alias counted as what it stands for, so that an alias bomb is no file of 1 kB
MAX_DEPTH = 20
_MOST_NAMES = 20  # of files in a message

_INTEGER = re.compile(r"[-+]?\d+(?:_\d+)*")
_FLOAT = re.compile(r"[-+]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_SPECIAL = {"": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "false": False}
_INFINITE = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_PLAIN, _TEXT, _MAP, _LIST = "plain", "text", "map", "list"


class _Loader(yaml.SafeLoader):
    """Tells plain scalars from quoted ones and leaves their meaning open; any other tag was written by the user."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _TEXT
        return _MAP if kind is yaml.MappingNode else _LIST


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None; keys are text) with the line of each value.

    Attributes:
        file: the name that messages show.
        data: the content; None where there is none.
        lines: 1-based line by path into ``data``.
        problems: what is wrong with single values; ``data`` holds the rest.
    """

    file: str
    data: Json = None
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, loc: Location) -> int | None:
        """The line of a value, or of the innermost one around it that has a line."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc)

    def problem(self, message: str, loc: Location = ()) -> Problem:
        """A problem with the value at ``loc``."""
        return Problem(message, self.file, self.line_of(loc))


class GivenDocument(Document):
    """Plain data that a program has given: problems name the keys that lead to a value, where a file has its line."""

    def problem(self, message: str, loc: Location = ()) -> Problem:
        """A problem with the value at ``loc``: ``experiment['link']['latency']: …``."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return Problem(message, self.file + "".join(f"[{key!r}]" for key in loc))


@dataclass(frozen=True)
class Place:
    """Where a value was written: messages about it, or about a part of it, name this place."""

    document: Document
    loc: Location = ()

    def inside(self, *loc: int | str) -> Place:
        """The place of a part."""
        return Place(self.document, (*self.loc, *loc))

    def problem(self, message: str) -> Problem:
        """A problem with the value written here."""
        return self.document.problem(message, self.loc)


def parse_yaml(text: str, file: str, max_bytes: int = MAX_BYTES) -> Document:
    """The document in ``text``. Raises ConfigError where it is not YAML, or larger than any experiment."""
    if len(text) > max_bytes:
        raise ConfigError(Problem(f"larger than {max_bytes // 1024} KiB: no experiment is that long", file))
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_problem(error, file)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        where = Problem(f"character U+{ord(text[int(error.position)]):04X} cannot stand in YAML; remove it", file, line)
        raise ConfigError(where) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(Problem(f"not valid YAML: {reason}", file)) from None
    document = Document(file)
    if root is not None:
        document.lines[()] = int(root.start_mark.line) + 1
        document.data = _Reader(document).read(root, ())
    return document


def given_document(content: object, name: str) -> Document:
    """What a program has given as plain data: mappings, lists, text, numbers, booleans and None; paths become text.

    Args:
        name: that problems begin with.

    Raises ConfigError where it is nested too deeply, or holds more values than any experiment.
    """
    document = GivenDocument(name)
    document.data = _taken(document, content, ())
    return document


def _taken(document: Document, value: object, path: Location) -> Json:
    """A value as YAML would hold it; what cannot stand there is noted as a problem, and left out."""
    document.lines[path] = len(document.lines)
    if len(path) > MAX_DEPTH:
        raise ConfigError(Problem(f"nested more than {MAX_DEPTH} deep (does a value contain itself?)", document.file))
    if len(document.lines) > MAX_VALUES:
        raise ConfigError(Problem(f"more than {MAX_VALUES} values: no experiment is that long", document.file))
    if isinstance(value, Mapping):
        taken: JsonObject = {}
        for key, item in value.items():
            if isinstance(key, bool) or not isinstance(key, (str, int)):  # numbers name nodes
                text = f"the key {key!r} is no text; write it in quotes, and keys that vary together as 'one, other'"
                document.problems.append(document.problem(text, path))
            else:
                taken[str(key)] = _taken(document, item, (*path, str(key)))
        return taken
    if isinstance(value, (list, tuple)):
        return [_taken(document, item, (*path, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, (bool, str)):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    text = f"a {type(value).__name__} cannot stand in an experiment; write text, a number, true or false, or a list"
    document.problems.append(document.problem(text, path))
    return None


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    text = str(error.problem or error.context)
    context = str(error.context or "")
    if "'\\t'" in text:
        text += "; indent with spaces, not tabs"
    elif "mapping values are not allowed" in text:
        text += "; is there a missing line break, a wrong indentation, or text with ': ' that needs quotes?"
    elif "expected a single document" in context or "expected '<document start>'" in text:
        text += "; one experiment a file, without '---' in the middle"
    elif context and error.problem:
        begins = f" that begins in line {error.context_mark.line + 1}" if error.context_mark else ""
        text = f"{text} ({context}{begins})"
    return Problem(f"not valid YAML: {text}", file, mark.line + 1 if mark else None)


class _Reader:
    """Walks the nodes once, expanding aliases and merge keys."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0

    def read(self, node: yaml.Node, path: Location) -> Json:
        line = int(node.start_mark.line) + 1
        self._count += 1
        if self._count > MAX_VALUES:
            text = f"more than {MAX_VALUES} values, aliases counted as what they stand for: no experiment is that long"
            raise ConfigError(Problem(text, self._document.file, line))
        if len(path) > MAX_DEPTH:
            text = f"nested more than {MAX_DEPTH} deep (does an alias contain itself?)"
            raise ConfigError(Problem(text, self._document.file, line))
        if node.tag not in (_PLAIN, _TEXT, _MAP, _LIST):
            self._add(f"the tag {node.tag!r} is not allowed; write the plain value", line)
        if isinstance(node, yaml.ScalarNode):
            self._document.lines[path] = line
            text = str(node.value)
            if any("\ud800" <= character <= "\udfff" for character in text):
                self._add("half a surrogate pair is no character; write the character itself", line)
                return ""
            return _plain(text) if node.tag == _PLAIN else text
        self._document.lines.setdefault(path, line)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Location) -> JsonObject:
        own: JsonObject = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = int(key_node.start_mark.line) + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._add("a list or a mapping cannot be a key; write 'KEY: VALUE', with text before the colon", line)
                continue
            key = str(key_node.value)
            if key == "<<" and key_node.tag == _PLAIN:
                merged.append(value_node)
                continue
            if key in own:
                first = self._document.lines[(*path, key)]
                self._add(f"key {key!r} stands twice, first in line {first}; keep one", line)
                continue
            self._document.lines[(*path, key)] = line
            own[key] = self.read(value_node, (*path, key))
        for value_node in merged:
            self._merge(own, value_node, path)
        return own

    def _merge(self, own: JsonObject, node: yaml.Node, path: Location, depth: int = 0) -> None:
        line = int(node.start_mark.line) + 1
        if depth > MAX_DEPTH:
            raise ConfigError(Problem("'<<' merges a mapping into itself", self._document.file, line))
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                self._add("'<<' takes a mapping, such as an alias to one", line)
                continue
            for key_node, value_node in source.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    continue
                key = str(key_node.value)
                if key == "<<" and key_node.tag == _PLAIN:
                    self._merge(own, value_node, path, depth + 1)
                elif key not in own:
                    own[key] = self.read(value_node, (*path, key))

    def _add(self, message: str, line: int) -> None:
        self._document.problems.append(Problem(message, self._document.file, line))


def _plain(text: str) -> Json:
    """The meaning of a scalar without quotes."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if text.lower() in _INFINITE:
        return float(_INFINITE[text.lower()])
    if _INTEGER.fullmatch(text) and len(text) < 4000:  # Python refuses to read longer ones
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def read_text_file(path: Path, max_bytes: int) -> str:
    """The text in ``path``; raises ConfigError where there is none to be had."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{path} is a folder; name an experiment file (*.yaml) in it")
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is no regular file; name an experiment file (YAML)")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.{_near_files(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL inside the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if b"\0" in content:
        raise ConfigError(f"{path} is not a text file: it contains NUL bytes; name an experiment file (YAML)")
    if len(content) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes // 1024} KiB: no experiment is that long")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: is this a text file? Save it as UTF-8"
        raise ConfigError(Problem(message, str(path), line)) from None


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f" There is no folder {path.parent}, either; is the path right from here ({Path.cwd()})?"
    try:
        names = [entry.name for entry in path.parent.glob("[!.]*.y*ml")]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f" Did you mean {str(path.parent / near[0])!r}?"
    if names:
        return f" Experiment files there: {', '.join(sorted(names)[:_MOST_NAMES])}"
    return f" The folder {path.parent.absolute()} holds no experiment file (*.yaml); `bwbench init` writes a first one"
