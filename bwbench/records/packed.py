"""Published records: all cells of an experiment in one small file, ``results/<experiment>/cells.jsonl.gz``.

The first line says what follows, and holds what cells have in common; then there is one line a cell, by name. Equal
records give equal bytes. docs/results-format.md describes the format.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from bwbench.base.errors import PackedRecordsError
from bwbench.records.files import SCHEMA, sync_folder
from bwbench.records.packed_cell import PackedFiles
from bwbench.records.shared_parts import dump, share

PACKED = "cells.jsonl.gz"
_AGAIN = "get the file anew (git checkout), or publish again"


@dataclass(frozen=True)
class PackedExperiment:
    """The published cells of one experiment.

    Attributes:
        path: of the file.
        names: of the cells' folders, sorted; ``lines`` are in the same order.
        shared: parts that several cells have in common.
        runs: what else took machine time: convergence, timing and tuning runs; ``kind`` and fields of status.json.
        plan: what plan.json says of the experiment and the order of its cells; None where there was none.
    """

    path: Path
    experiment: str
    names: tuple[str, ...]
    lines: tuple[bytes, ...]
    shared: tuple[Any, ...]
    runs: tuple[dict[str, Any], ...]
    plan: dict[str, Any] | None

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


def write_packed(
    experiment_folder: Path,
    experiment: str,
    cells: Mapping[str, Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any] | None = None,
) -> Path:
    """Write the file as a whole or not at all; returns its path.

    Args:
        cells: content of each cell by the name of its folder.
        runs, plan: as in ``PackedExperiment``.

    Raises OSError where the disk is full or not writable.
    """
    names = sorted(cells)
    shared, contents = share(cells[name] for name in names)
    head = {"schema": SCHEMA, "experiment": experiment, "cells": names, "runs": list(runs), "plan": plan}
    head["shared"] = shared
    text = "".join(f"{dump(line)}\n" for line in (head, *contents))
    experiment_folder.mkdir(parents=True, exist_ok=True)
    path = experiment_folder / PACKED
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(gzip.compress(text.encode(), compresslevel=9, mtime=0))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(experiment_folder)
    return path


@lru_cache(maxsize=32)
def _read(path: str, mtime_ns: int, size_bytes: int) -> PackedExperiment:
    """Once for every state of a file: looking up ten thousand cells must not read it ten thousand times."""
    try:
        with gzip.open(path, "rb") as file:
            first, *lines = file.read().splitlines()
        head = json.loads(first)
    except OSError as error:  # gzip's own errors are of this kind, too
        raise PackedRecordsError(f"{path}: cannot be read ({error.strerror or error}); {_AGAIN}") from None
    except (EOFError, zlib.error, ValueError) as error:
        raise PackedRecordsError(f"{path}: broken ({error}); {_AGAIN}") from None
    if not isinstance(head, dict) or not isinstance(head.get("schema"), int):
        raise PackedRecordsError(f"{path}: its first line says no schema; {_AGAIN}")
    if head["schema"] > SCHEMA:
        text = f"schema {head['schema']} is newer than this bwbench reads ({SCHEMA})"
        raise PackedRecordsError(f"{path}: {text}; use a newer bwbench")
    names = head.get("cells")
    if not isinstance(names, list) or len(names) != len(lines):
        raise PackedRecordsError(f"{path}: broken ({len(lines)} cells follow, and its first line says other); {_AGAIN}")
    shared, runs = tuple(head.get("shared") or ()), tuple(head.get("runs") or ())
    plan = head.get("plan")
    return PackedExperiment(Path(path), str(head.get("experiment")), tuple(names), tuple(lines), shared, runs, plan)
