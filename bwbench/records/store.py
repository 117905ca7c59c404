"""The result folder: where each file of a cell lies, and what has been recorded so far.

``<root>/<experiment>/<slug>-<id>/{cell.json, attempt-N/…, status.json}``; docs/results-format.md describes every file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bwbench.errors import RecordError
from bwbench.records.files import SCHEMA, read_events, read_json

_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK_FILE = re.compile(r"rank(\d+)\.jsonl")


@dataclass(frozen=True)
class CellFolder:
    """One cell's folder. Files are read when asked for and then kept."""

    path: Path

    @cached_property
    def cell(self) -> dict[str, Any]:
        """The planned cell (cell.json); raises RecordError where it is broken or of a newer schema."""
        content = read_json(self.path / "cell.json")
        if not isinstance(content, dict):
            raise RecordError(f"{self.path / 'cell.json'}: not readable as JSON; delete the folder to plan it anew")
        if content.get("schema", 0) > SCHEMA:
            raise RecordError(f"{self.path / 'cell.json'}: schema {content['schema']} is newer than this bwbench reads")
        return content

    @cached_property
    def status(self) -> dict[str, Any] | None:
        """How the cell ended (status.json); None while it is not finished."""
        content = read_json(self.path / "status.json")
        return content if isinstance(content, dict) else None

    @cached_property
    def attempts(self) -> list[Path]:
        """The attempt folders, oldest first."""
        found = []
        for entry in os.scandir(self.path):
            match = _ATTEMPT.fullmatch(entry.name)
            if match and entry.is_dir():
                found.append((int(match[1]), Path(entry.path)))
        return [path for _, path in sorted(found)]

    @property
    def last_attempt(self) -> Path | None:
        """The newest attempt folder."""
        return self.attempts[-1] if self.attempts else None

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks that wrote records in the last attempt."""
        if self.last_attempt is None:
            return []
        return sorted(
            int(match[1]) for entry in os.scandir(self.last_attempt) if (match := _RANK_FILE.fullmatch(entry.name))
        )

    def events(self, rank: int) -> list[dict[str, Any]]:
        """The events that one rank recorded in the last attempt."""
        return read_events(self.last_attempt / f"rank{rank}.jsonl") if self.last_attempt else []

    @property
    def composed_file(self) -> Path:
        """Where a cell's composed result lies, also of one that ran whole as well."""
        return self.path / "composed.json"

    @property
    def has_composed_file(self) -> bool:
        """Whether the cell was composed, be it beside a whole run."""
        return os.path.isfile(self.composed_file)

    @cached_property
    def composed(self) -> dict[str, Any] | None:
        """What the result was put together from (composed.json); None for a cell that ran whole."""
        if not (self.status or {}).get("composed"):
            return None
        content = read_json(self.composed_file)
        return content if isinstance(content, dict) else {}

    @cached_property
    def link(self) -> dict[str, Any] | None:
        """What was asked of the link and what it did (link.json of the last attempt, or of the timing run)."""
        return self.composed.get("link") if self.composed is not None else self._of_last_attempt("link.json")

    @cached_property
    def environment(self) -> dict[str, Any] | None:
        """Host, kernel and versions (environment.json of the last attempt, or of the timing run)."""
        if self.composed is not None:
            return self.composed.get("environment")
        return self._of_last_attempt("environment.json")

    def _of_last_attempt(self, name: str) -> dict[str, Any] | None:
        """A file of the last attempt; status.json says which that is, so that ten thousand folders need no listing."""
        number = (self.status or {}).get("attempt")
        content = read_json(self.path / f"attempt-{number}" / name) if number else None
        if content is None and self.last_attempt is not None:
            content = read_json(self.last_attempt / name)
        return content if isinstance(content, dict) else None

    def new_attempt(self) -> Path:
        """Make and return the next attempt folder."""
        number = int(_ATTEMPT.fullmatch(self.last_attempt.name)[1]) + 1 if self.last_attempt else 1  # type: ignore[index]
        path = self.path / f"attempt-{number}"
        path.mkdir(parents=True)
        self.__dict__.pop("attempts", None)
        return path


def iter_cells(folder: Path) -> Iterator[CellFolder]:
    """Every cell below ``folder``: a results root, one experiment in it, or one cell. Sorted by path.

    Raises RecordError where ``folder`` does not exist.
    """
    if not folder.is_dir():
        raise RecordError(f"no such folder: {folder}")
    if (folder / "cell.json").is_file():
        yield CellFolder(folder)
        return
    for child in sorted(
        entry.path for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")
    ):
        if os.path.isfile(os.path.join(child, "cell.json")):
            yield CellFolder(Path(child))
        elif not _ATTEMPT.fullmatch(os.path.basename(child)):
            yield from _cells_of_experiment(Path(child))


def _cells_of_experiment(folder: Path) -> Iterator[CellFolder]:
    for child in sorted(entry.path for entry in os.scandir(folder) if entry.is_dir()):
        if os.path.isfile(os.path.join(child, "cell.json")):
            yield CellFolder(Path(child))
