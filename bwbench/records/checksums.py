"""Checksums of a cell's records: made when an attempt has ended, looked at by ``bwbench verify`` alone.

They tell what was changed by a disk, a copy or a hand afterwards. Whoever forges records can make them anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.base.plain_data import JsonObject
from bwbench.records.files import MOST_EVENT_BYTES, full_of_holes, regular_file
from bwbench.records.schema import Status
from bwbench.records.store import FolderFiles

OF_THE_CELL = ("cell.json", "composed.json")
SEAL = "sha256"  # of a published cell, among its files
_BLOCK_BYTES = 1 << 20


def with_checksums(status: Status, cell: Path) -> Status:
    """What is to be written as status.json, with the checksums of all that lies beside it."""
    return status.model_copy(update={"files_sha256": checksums(cell)})


def checksums(cell: Path) -> dict[str, str]:
    """SHA-256 of the records of a cell and of its attempts by their path in its folder; what cannot be read has none.

    Checkpoints and what begins with a dot come and go, and are left out.
    """
    found = {}
    for name in _recorded(cell):
        with contextlib.suppress(RecordError):
            found[name] = checksum(cell / name)
    return found


def checksum(file: Path) -> str:
    """SHA-256 of a regular file. Raises RecordError where it is none, or cannot be read."""
    digest, left = hashlib.sha256(), MOST_EVENT_BYTES
    try:
        with regular_file(file) as opened:
            if full_of_holes(opened):
                raise RecordError(f"{file}: is full of holes")
            while left > 0 and (block := opened.read(min(left, _BLOCK_BYTES))):
                digest.update(block)
                left -= len(block)
    except OSError as error:
        raise RecordError(f"{file}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def changed(cell: Path, recorded: Mapping[str, str], last_attempt: int) -> list[str]:
    """What is not as its checksum says, or has none, a line each, by path.

    An attempt that is gone as a whole was cleaned away, and is nothing to speak of. One behind ``last_attempt``, the
    one that status.json is of, has begun since; and a cell that ran whole may have been composed since.
    """
    there, found = set(_recorded(cell)), []
    for name, digest in sorted(recorded.items()):
        if name in there:
            with contextlib.suppress(RecordError):
                if checksum(cell / name) == digest:
                    continue
            found.append(f"{name}: was changed after the cell had ended")
        elif name in OF_THE_CELL or os.path.isdir(os.path.dirname(cell / name)):  # a name of any length
            found.append(f"{name}: is missing")
    newest = max([last_attempt, *map(_attempt_of, recorded)])
    added = [name for name in sorted(there - set(recorded)) if name != "composed.json" and _attempt_of(name) <= newest]
    return [*found, *(f"{name}: was added after the cell had ended" for name in added)]


def _attempt_of(name: str) -> int:
    """0 for the files of the cell itself."""
    attempt = re.match(r"attempt-(\d{1,9})/", name)
    return int(attempt[1]) if attempt is not None else 0


def _recorded(cell: Path) -> Iterator[str]:
    yield from (name for name in OF_THE_CELL if os.path.lexists(cell / name))
    for attempt in FolderFiles(cell).attempts():
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(attempt), key=lambda entry: entry.name):
                if not entry.name.startswith(".") and not entry.is_dir(follow_symlinks=False):
                    yield f"{attempt.name}/{entry.name}"


def seal(published: JsonObject) -> str:
    """SHA-256 of the content of a published cell, its own seal left out."""
    content = {key: value for key, value in published.items() if key != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
