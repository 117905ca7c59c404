"""``bwbench verify``: whether the records of cells are whole, are those of their cells, and can be true.

It reads everything, checksums included, which no other command does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError, ForeignCellError, PackedRecordsError, RecordError
from bwbench.records import CellFolder, iter_cells
from bwbench.records.cell_identity import unchecked_id
from bwbench.records.checksums import SEAL, changed, seal
from bwbench.records.own_and_published import Taken
from bwbench.records.packed import PACKED, PUBLISHED, PackedFiles
from bwbench.records.store import OF_ATTEMPTS
from bwbench.results.analysis.plausibility import capacity_of, doubts
from bwbench.results.analysis.trial import EventsByRank

SCHEMA, ID, CHECKSUM, PLAUSIBILITY = "schema", "id", "checksum", "plausibility"
HIDDEN = (".timing", ".convergence", ".tuning")  # cells that serve others

_OF_NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class RecordFinding:
    """One thing that is wrong, or that could not be looked at.

    Attributes:
        check: ``schema``, ``id``, ``checksum`` or ``plausibility``.
        text: what, in words.
    """

    check: str
    text: str


@dataclass(frozen=True)
class Verified:
    """What became of one cell.

    Attributes:
        path: of its folder, or where that would lie; of a published file that is broken, that file.
        findings: what is wrong.
        unchecked: what could not be checked, and why.
    """

    path: Path
    findings: tuple[RecordFinding, ...]
    unchecked: tuple[RecordFinding, ...]


def verify(taken: Taken) -> Iterator[Verified]:
    """Look at every cell that is taken of a results folder, an experiment, or a cell; hidden ones included.

    Raises ConfigError where there is none.
    """
    found, seen, folder = False, dict[str, Path](), taken.folder
    for place in _places(taken):
        for one in _verified_in(place, seen):
            found = True
            yield one
    if not found:
        hint = "name a results folder, an experiment or a cell"
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")


def _places(taken: Taken) -> list[Path]:
    """One by one, so that one broken published file hides no other; with the folders of cells that serve others."""
    folder, sets = taken.folder, taken.sets if taken.published else ()
    if not folder.is_dir():
        return list(sets) or [folder]
    return [*_own_places(folder), *sets]


def _own_places(folder: Path) -> list[Path]:
    if os.path.lexists(folder / "cell.json"):
        return [folder]
    inner = [child for child in sorted(folder.iterdir()) if child.is_dir() and child.name[0] != "."]
    inner = [child for child in inner if child.name != PUBLISHED]
    holds_cells = (folder / PACKED).exists() or any(os.path.lexists(child / "cell.json") for child in inner)
    shown = [folder] if holds_cells else inner
    return [
        *shown,
        *(parent / name for parent in dict.fromkeys((folder, *shown)) for name in HIDDEN if (parent / name).is_dir()),
    ]


def _verified_in(place: Path, seen: dict[str, Path]) -> Iterator[Verified]:
    try:
        for cell in iter_cells(place):
            try:
                yield _verified(cell, seen)
            except PackedRecordsError as error:
                yield Verified(cell.path, (RecordFinding(SCHEMA, str(error)),), ())
    except PackedRecordsError as error:
        yield Verified(place, (RecordFinding(SCHEMA, str(error)),), ())
    except RecordError as error:
        raise ConfigError(str(error)) from None


def _verified(cell: CellFolder, seen: dict[str, Path]) -> Verified:
    if (problem := cell.problem) is not None:
        check = ID if isinstance(problem, ForeignCellError) else SCHEMA
        return Verified(cell.path, (RecordFinding(check, str(problem)),), ())
    events: EventsByRank = {}
    findings = [RecordFinding(CHECKSUM, text) for text in (*_changed(cell), *_of_another(cell, seen))]
    try:
        events = cell.events() if cell.composed is None else {}
    except RecordError as error:
        findings.append(RecordFinding(SCHEMA, str(error)))
    else:
        findings += [RecordFinding(PLAUSIBILITY, text) for text in doubts(cell, events)]
    return Verified(cell.path, tuple(findings), tuple(_unchecked(cell, events)))


def _changed(cell: CellFolder) -> list[str]:
    if isinstance(cell.files, PackedFiles):
        told = cell.files.content.get(SEAL)
        is_whole = told is None or told == seal(cell.files.content)
        return [] if is_whole else ["the published cell was changed after it had been published"]
    status = cell.status
    if status is None or status.files_sha256 is None:
        return []
    return changed(cell.path, status.files_sha256, status.attempt or 0)


def _of_another(cell: CellFolder, seen: dict[str, Path]) -> Iterator[str]:
    """Events that another cell has as well, to the last byte: no two trainings take the same times.

    Args:
        seen: the cells so far by the checksums of their events; this one's are added.
    """
    recorded = (cell.status.files_sha256 if cell.status is not None else None) or {}
    for name, digest in sorted(recorded.items()):
        if name.endswith(".jsonl") and digest != _OF_NOTHING:
            if (other := seen.setdefault(digest, cell.path)) != cell.path:
                yield f"{name}: is that of {other} too"


def _unchecked(cell: CellFolder, events: EventsByRank) -> Iterator[RecordFinding]:
    config, status = cell.cell.config, cell.status
    if (why := unchecked_id(config)) is not None:
        yield RecordFinding(ID, f"{why}, so that its id cannot be computed")
    if status is None:
        yield RecordFinding(PLAUSIBILITY, "it has not ended")
        return
    if isinstance(cell.files, PackedFiles):
        if SEAL not in cell.files.content:
            yield RecordFinding(CHECKSUM, "it was published without a checksum, by an earlier version")
    elif status.files_sha256 is None:
        yield RecordFinding(CHECKSUM, "it has none: it ended under an earlier version")
    link = config.get("link")
    if cell.composed is None and status.steps:
        for name in OF_ATTEMPTS:
            if cell.raw(name) is None:
                yield RecordFinding(PLAUSIBILITY, f"there is no {name}")
    asked = isinstance(link, dict) and link.get("shaped", True) is not False
    if status.payload_bytes and asked and capacity_of(config) is None:
        yield RecordFinding(PLAUSIBILITY, "the rate of its link varies, so that bytes say nothing about times")
    if not events and not cell.is_packed and status.composed is None and status.steps:
        yield RecordFinding(PLAUSIBILITY, "the events of its last attempt are not there")
