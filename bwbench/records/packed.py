"""Published records: a set for each experiment, ``results/published/<experiment>/cells.jsonl.gz``, with all its cells.

The first line says what follows, and holds what cells have in common; then there is one line a cell, by name. Equal
records give equal bytes. docs/results-format.md describes the format.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bwbench.base.errors import PackedRecordsError, RecordError
from bwbench.base.plain_data import Json, JsonObject
from bwbench.records.files import write_bytes_atomic
from bwbench.records.schema import Digest, PublishedHead, PublishedPlan, PublishedRun, parse_content
from bwbench.records.schema.record import R, refusal

PACKED = "cells.jsonl.gz"
PUBLISHED = "published"  # the folder of the sets in a results folder, apart from what was run there
MOST_BYTES = 256 << 20  # unpacked: some hundred thousand cells; what unpacks to more would fill the memory
_COLUMNS = "columns"
LEAST_CHARACTERS = 120  # of a part that is worth a reference
MOST_OF_A_CELL = 16 << 20  # with its shared parts; a curve of ten thousand points has 2 MB
_MANY_PARTS = 100  # that a cell may speak of before it is asked how large they are
_REFERENCE = "="  # {"=": 7} stands for the seventh part
_AGAIN = "get the file anew (git checkout), or publish again"


@dataclass(frozen=True)
class PackedExperiment:
    """The published cells of one experiment.

    Attributes:
        path: of the file.
        names: of the cells' folders, sorted; ``lines`` are in the same order.
        shared: parts that several cells have in common.
        runs: what else took machine time: convergence, timing and tuning runs.
        plan: what plan.json says of the experiment and the order of its cells; None where there was none.
    """

    path: Path
    experiment: str
    names: tuple[str, ...]
    lines: tuple[bytes, ...]
    shared: tuple[Json, ...]
    runs: tuple[PublishedRun, ...]
    plan: PublishedPlan | None

    def cells(self) -> Iterator[tuple[str, PackedFiles]]:
        """Every cell by the name of its folder, in order."""
        for name, line in zip(self.names, self.lines, strict=True):
            yield name, self._files(name, line)

    def find(self, name: str) -> tuple[str, PackedFiles] | None:
        """The cell whose folder has this name, or another name with the same id."""
        number = self._numbers.get(id_of(name))
        return None if number is None else (self.names[number], self._files(self.names[number], self.lines[number]))

    @cached_property
    def ids(self) -> frozenset[str]:
        """Ids of all cells."""
        return frozenset(self._numbers)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {id_of(name): number for number, name in enumerate(self.names)}

    def _files(self, name: str, line: bytes) -> PackedFiles:
        return PackedFiles(line, self.shared, f"{self.path}: {name}")


def id_of(folder_name: str) -> str:
    """Id of the cell that lies in a folder ``<slug>-<id>``."""
    return folder_name.rpartition("-")[2]


def read_packed(experiment_folder: Path) -> PackedExperiment | None:
    """The published cells of an experiment; None where it has none.

    Raises PackedRecordsError where the file is broken or of a newer version.
    """
    path = os.path.join(experiment_folder, PACKED)
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _read(path, found.st_mtime_ns, found.st_size)


def published_beside(experiment_folder: Path) -> Path:
    """Where the published set of an experiment lies whose own runs are in ``experiment_folder``."""
    folder = Path(os.path.abspath(experiment_folder)) if experiment_folder.name in ("", "..") else experiment_folder
    return folder.parent / PUBLISHED / folder.name


def find_packed(cell_folder: Path) -> tuple[Path, PackedFiles] | None:
    """The published cell whose folder is or would be there, and that folder by its published name.

    Looked for in a published file in the experiment's own folder, then in the set beside it.
    """
    for experiment in (cell_folder.parent, published_beside(cell_folder.parent)):
        packed = read_packed(experiment)
        if packed is not None and (found := packed.find(cell_folder.name)) is not None:
            return experiment / found[0], found[1]
    return None


def write_packed(
    experiment_folder: Path,
    experiment: str,
    cells: Mapping[str, JsonObject],
    runs: Sequence[PublishedRun],
    plan: PublishedPlan | None = None,
) -> Path:
    """Write the file as a whole or not at all; returns its path.

    Args:
        cells: content of each cell by the name of its folder.
        runs, plan: as in ``PackedExperiment``.

    Raises OSError where the disk is full or not writable.
    """
    names = sorted(cells)
    shared, contents = share(cells[name] for name in names)
    head = PublishedHead(
        experiment=experiment, cells=tuple(names), runs=tuple(runs), plan=plan, shared=tuple(shared)
    ).to_json()
    text = "".join(f"{dump(line)}\n" for line in (head, *contents))
    experiment_folder.mkdir(parents=True, exist_ok=True)
    path = experiment_folder / PACKED
    write_bytes_atomic(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))
    return path


@lru_cache(maxsize=32)
def _read(path: str, mtime_ns: int, size_bytes: int) -> PackedExperiment:
    """Once for every state of a file: looking up ten thousand cells must not read it ten thousand times."""
    if not os.path.isfile(path):
        raise PackedRecordsError(f"{path}: is no regular file; {_AGAIN}")
    try:
        with gzip.open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise PackedRecordsError(f"{path}: unpacks to more than {MOST_BYTES / 1e6:.0f} MB; {_AGAIN}")
        first, *lines = text.splitlines()
        content = json.loads(first)
    except OSError as error:  # gzip's own errors are of this kind, too
        raise PackedRecordsError(f"{path}: cannot be read ({error.strerror or error}); {_AGAIN}") from None
    except (EOFError, zlib.error, ValueError, RecursionError) as error:
        raise PackedRecordsError(f"{path}: broken ({error}); {_AGAIN}") from None
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise PackedRecordsError(f"{path}: its first line says no schema; {_AGAIN}")
    try:
        head = PublishedHead.model_validate(content)
    except ValidationError as error:
        raise PackedRecordsError(str(refusal(error, PublishedHead, path, _AGAIN))) from None
    if len(head.cells) != len(lines):
        raise PackedRecordsError(f"{path}: broken ({len(lines)} cells follow, and its first line says other); {_AGAIN}")
    if len({id_of(name) for name in head.cells}) != len(head.cells):
        raise PackedRecordsError(f"{path}: broken (its first line names a cell twice); {_AGAIN}")
    return PackedExperiment(Path(path), head.experiment, head.cells, tuple(lines), head.shared, head.runs, head.plan)


class PackedFiles:
    """A line of a published file in the place of a folder. Decoded when asked for; its values are not to be changed.

    Its keys are the names of files (``cell.json``, ``status.json``, ``composed.json``; of the last attempt
    ``link.json`` and ``environment.json``), ``attempts`` (their number), ``digest`` (what tables need of the events)
    and ``logs``.

    Args:
        line: JSON of the cell, as ``share`` left it; ``parts`` is what that took out.
        where: file and cell, for messages.
    """

    def __init__(self, line: bytes, parts: Sequence[Json], where: str) -> None:
        self._line, self._parts, self._where = line, parts, where
        self._records: dict[str, Any] = {}  # that were read, by file: cells at several targets share them

    @cached_property
    def content(self) -> JsonObject:
        """The cell as it was packed. Raises PackedRecordsError where the line is broken."""
        try:
            content = restored(self._line, self._parts)
        except (ValueError, RecursionError) as error:
            raise PackedRecordsError(f"{self._where}: broken ({error}); {_AGAIN}") from None
        if not isinstance(content, dict):
            raise PackedRecordsError(f"{self._where}: is no cell; {_AGAIN}")
        return content

    def read(self, model: type[R], name: str, attempt: int | None = None) -> R | None:
        """The record in a file of the cell, as its folder had it; of attempts the one that counts alone is kept."""
        found: R | None = self._records.get(name)
        if found is None and (content := self._as_in_folder(name)) is not None:
            found = self._records[name] = parse_content(model, content, f"{self._where}: {name}", _AGAIN)
        return found

    def raw(self, name: str, attempt: int | None) -> Json:
        """As its folder had it."""
        try:
            return self._as_in_folder(name)
        except RecordError:
            return None

    def num_attempts(self) -> int:
        """How many there were."""
        number = self.content.get("attempts")
        return number if isinstance(number, int) else 0

    @cached_property
    def digest(self) -> Digest:
        """Made when the cell was packed; empty where it has recorded nothing."""
        digest = self.content.get("digest")
        if not isinstance(digest, dict):
            return Digest()
        points = self._points(digest.get("curve"), "digest")
        return parse_content(Digest, {**digest, "curve": points}, f"{self._where}: digest", _AGAIN)

    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Those that were kept."""
        logs = self.content.get("logs")
        found = logs.items() if isinstance(logs, dict) else ()
        return {name: [str(line) for line in lines] for name, lines in found if isinstance(lines, list)}

    def _as_in_folder(self, name: str) -> Json:
        content = self.content.get(name)
        if not isinstance(content, dict):
            return content
        if name == "composed.json":
            points = self._points(content.get("curve"), name)
            return {**content, "curve": points, "link": self._whole(content.get("link"))}
        return self._whole(content) if name == "link.json" else content

    def _points(self, curve: Json, name: str) -> list[Json]:
        try:
            return points_of(curve)
        except (AttributeError, TypeError, ValueError) as error:
            raise RecordError(f"{self._where}: {name}: curve: {error}; {_AGAIN}") from None

    def _whole(self, link: Json) -> Json:
        """What was asked of the link stands in the configuration already; it is kept once."""
        if not isinstance(link, dict) or "requested" in link:
            return link
        cell = self.content.get("cell.json")
        config = cell.get("config") if isinstance(cell, dict) else None
        asked = config.get("link") if isinstance(config, dict) else None
        return {"schema": link.get("schema"), "requested": asked, **link}


def columns_of(points: Json) -> Json:
    """A curve by columns: those that do not depend on the link are the same for many cells, and are then kept once."""
    if not isinstance(points, list) or not points:
        return points
    whole = [point for point in points if isinstance(point, dict)]
    if len(whole) < len(points) or any(list(point) != list(whole[0]) for point in whole):
        return points
    return {_COLUMNS: {key: [point[key] for point in whole] for key in whole[0]}}


def points_of(curve: Json) -> list[Json]:
    """The points of a curve again. Raises ValueError, TypeError or AttributeError where it is none."""
    if not isinstance(curve, dict):
        return list(curve or [])  # type: ignore[arg-type]  # what is no list raises TypeError
    columns: Any = curve.get(_COLUMNS) or {}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def share(contents: Iterable[Json]) -> tuple[list[Json], list[Json]]:
    """Take out what several of ``contents`` have in common, largest parts first.

    Returns:
        The shared parts, which hold no references themselves, and the contents with references to them. ``restored``
        undoes it.
    """
    contents = list(contents)
    counted: Counter[str] = Counter()
    for content in contents:
        _count(content, counted)
    numbers: dict[str, int] = {}
    parts: list[Json] = []

    def replaced(value: Json) -> Json:
        if not isinstance(value, (dict, list)):
            return value
        text = dump(value)
        if _stands_apart(value) or (len(text) >= LEAST_CHARACTERS and counted[text] > 1):
            if text not in numbers:
                numbers[text] = len(parts)
                parts.append(value)
            return {_REFERENCE: numbers[text]}
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        return [replaced(item) for item in value]

    return parts, [replaced(content) for content in contents]


def restored(line: str | bytes, parts: Sequence[Json]) -> Json:
    """A content out of its JSON, with the shared parts in it; these are not to be changed.

    Raises ValueError where it is no JSON, speaks of a part that is not there, or is larger with its parts than any cell
    is: what is short here is long wherever it is written out.
    """
    spoken_of: Counter[int] = Counter()

    def with_part(value: JsonObject) -> Json:
        if not _stands_apart(value):
            return value
        number = value[_REFERENCE]
        if not isinstance(number, int) or not 0 <= number < len(parts):
            raise ValueError(f"there is no shared part {number}")
        spoken_of[number] += 1
        return parts[number]

    content: Json = json.loads(line, object_hook=with_part)
    if spoken_of.total() > _MANY_PARTS:
        size = sum(times * len(dump(parts[number])) for number, times in spoken_of.items())
        if size > MOST_OF_A_CELL:
            raise ValueError(f"it unpacks to {size / 1e6:.0f} MB, where a cell has {MOST_OF_A_CELL / 1e6:.0f} at most")
    return content


def dump(value: object) -> str:
    """As JSON without blanks; keys keep their order, which tables show."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _count(value: Json, counted: Counter[str]) -> None:
    """Count parts; those inside of one that has been seen stand and fall with it."""
    if not isinstance(value, (dict, list)):
        return
    text = dump(value)
    if len(text) < LEAST_CHARACTERS:
        return
    counted[text] += 1
    if counted[text] == 1:
        for item in value.values() if isinstance(value, dict) else value:
            _count(item, counted)


def _stands_apart(value: Json) -> bool:
    """Whether a dictionary looks like a reference: one in the records is shared always, so that it is none."""
    return isinstance(value, dict) and len(value) == 1 and _REFERENCE in value
