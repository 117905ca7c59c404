"""Where the files of one cell lie: in a folder of its own, or packed into the published file of its experiment."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bwbench.records.files import read_json

LOG_LINES = 20  # of the end of a log; enough for a traceback's end
_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK = re.compile(r"\brank (\d+)")


class AbstractCellFiles(ABC):
    """The recorded files of one cell, read when asked for."""

    @abstractmethod
    def read(self, name: str) -> Any | None:
        """Content of ``cell.json``, ``status.json`` or ``composed.json``; None where it is missing or not whole."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def read_of_attempt(self, number: int | None, name: str) -> Any | None:
        """Content of ``link.json`` or ``environment.json`` of an attempt, of the last one where it has none."""

    @abstractmethod
    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first; none where the cell has no folder."""

    @abstractmethod
    def num_attempts(self) -> int:
        """How many attempts there were, whether they are still there or not."""

    @abstractmethod
    def digest(self) -> Mapping[str, Any] | None:
        """``curve``, ``ledger`` and ``gradient_bytes`` of a run whose events are not there; None where they are."""

    @abstractmethod
    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Last lines of the logs of the last attempt by file name: of the rank that ``reason`` names, or of every one
        that is there."""


class FolderFiles(AbstractCellFiles):
    """Files in the cell's own folder, as a run writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> Any | None:
        """Content of a file of the cell."""
        return read_json(self._path / name)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.isfile(self._path / name)

    def read_of_attempt(self, number: int | None, name: str) -> Any | None:
        """By number first, which status.json knows, so that ten thousand folders need no listing."""
        content = read_json(self._path / f"attempt-{number}" / name) if number else None
        if content is None and (attempts := self.attempts()):
            content = read_json(attempts[-1] / name)
        return content

    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first."""
        found = []
        for entry in os.scandir(self._path):
            match = _ATTEMPT.fullmatch(entry.name)
            if match and entry.is_dir():
                found.append((int(match[1]), Path(entry.path)))
        return [path for _, path in sorted(found)]

    def num_attempts(self) -> int:
        """How many folders of attempts there are."""
        return len(self.attempts())

    def digest(self) -> Mapping[str, Any] | None:
        """None: the events are there."""
        return None

    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Read from the logs of the last attempt."""
        attempts, named = self.attempts(), _RANK.search(reason)
        pattern = f"rank{named[1]}.log" if named else "rank*.log"
        return {log.name: _last_lines(log) for log in sorted(attempts[-1].glob(pattern))} if attempts else {}


def _last_lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
