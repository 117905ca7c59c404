"""Where the files of one cell lie: in a folder of its own, or packed into the published file of its experiment."""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from pathlib import Path

from bwbench.base.plain_data import Json
from bwbench.records.files import read_json, read_record, read_tail
from bwbench.records.schema import Digest
from bwbench.records.schema.record import R

OF_ATTEMPTS = ("link.json", "environment.json")
LOG_LINES = 20  # of the end of a log; enough for a traceback's end
LOG_BYTES = 1 << 20  # a progress bar writes lines that never end
_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK = re.compile(r"\brank (\d+)")


class AbstractCellFiles(ABC):
    """The recorded files of one cell, read when asked for."""

    @abstractmethod
    def read(self, model: type[R], name: str) -> R | None:
        """The record in ``cell.json``, ``status.json`` or ``composed.json``; None where there is none.

        Raises RecordError where it does not fit.
        """

    @abstractmethod
    def raw(self, name: str, attempt: int | None = None) -> Json:
        """A file as it stands, with fields that this version ignores: for those who only hand it on. None where it is
        missing or no JSON.

        Args:
            attempt: that a file of OF_ATTEMPTS is of; the last one where it has none.
        """

    @abstractmethod
    def read_of_attempt(self, model: type[R], number: int | None, name: str) -> R | None:
        """The record in ``link.json`` or ``environment.json`` of an attempt, of the last one where it has none."""

    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first; none where the cell has no folder."""
        return []

    def num_attempts(self) -> int:
        """How many attempts there were, whether they are still there or not."""
        return len(self.attempts())

    def digest(self) -> Digest | None:
        """What stands for the events of a run where they are not there; None where they are."""
        return None

    @abstractmethod
    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Last lines of the logs of the last attempt by file name: of the rank that ``reason`` names, or of every one
        that is there."""


class FolderFiles(AbstractCellFiles):
    """Files in the cell's own folder, as a run writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, model: type[R], name: str) -> R | None:
        """The record in a file of the cell."""
        return read_record(model, f"{self._path}/{name}")

    def raw(self, name: str, attempt: int | None = None) -> Json:
        """As it stands in the folder."""
        if name not in OF_ATTEMPTS:
            whole: Json = read_json(self._path / name)
            return whole
        content: Json = read_json(self._path / f"attempt-{attempt}" / name) if attempt else None
        if content is None and (attempts := self.attempts()):
            content = read_json(attempts[-1] / name)
        return content

    def read_of_attempt(self, model: type[R], number: int | None, name: str) -> R | None:
        """By number first, which status.json knows, so that ten thousand folders need no listing."""
        found = read_record(model, f"{self._path}/attempt-{number}/{name}") if number else None
        if found is None and (attempts := self.attempts()):
            found = read_record(model, attempts[-1] / name)
        return found

    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first."""
        found = {}
        with contextlib.suppress(OSError):  # a cell that is only planned may have no folder
            entries = [(_ATTEMPT.fullmatch(entry.name), entry) for entry in os.scandir(self._path)]
            found = {int(match[1]): Path(entry.path) for match, entry in entries if match and entry.is_dir()}
        return [found[number] for number in sorted(found)]

    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Read from the logs of the last attempt."""
        attempts, named = self.attempts(), _RANK.search(reason)
        pattern = f"rank{named[1]}.log" if named else "rank*.log"
        return {
            log.name: read_tail(log, LOG_BYTES).decode(errors="replace").splitlines()[-LOG_LINES:]
            for log in (sorted(attempts[-1].glob(pattern)) if attempts else ())
        }
