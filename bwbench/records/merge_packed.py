"""Published cells of one results folder into another: its file grows by those that are not there yet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bwbench.records.lock import claim_of, locked
from bwbench.records.packed import PACKED, PackedExperiment, id_of, read_packed, write_packed
from bwbench.records.packed_cell import PackedFiles
from bwbench.records.shared_parts import dump
from bwbench.records.store import CellFolder

# cell, outcome as in merge.py, and why
Outcome = tuple[str, str, str]
COPIED, SAME, REPLACED, KEPT, SKIPPED, REFUSED = "copied", "already there", "replaced", "kept", "skipped", "refused"
DUPLICATES = ".duplicates"
_DIGEST_DIGITS = 8


def packed_below(folder: Path) -> list[Path]:
    """Experiments with published cells: ``folder`` itself, or those in it."""
    children = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return [place for place in (folder, *sorted(children)) if (place / PACKED).is_file()]


def merge_packed(source: Path, into: Path) -> Iterator[Outcome]:
    """Take the published cells of one experiment into another, made where it is missing.

    What stands where both sides have a cell is decided as for folders; a folder stands before an equal published cell,
    because it holds more. What does not stand is kept in a published file below ``.duplicates/``.

    Raises PackedRecordsError where one of the files is broken, OSError where the disk is full or not writable.
    """
    theirs = read_packed(source)
    if theirs is None:
        return
    with locked(into):
        ours = read_packed(into)
        cells = {name: files.content for name, files in ours.cells()} if ours is not None else {}
        kept, aside = dict(cells), dict[str, Mapping[str, Any]]()
        folders = {id_of(entry.name): Path(entry.path) for entry in os.scandir(into) if entry.is_dir()}
        outcomes = []
        for name, files in theirs.cells():
            there = folders.get(id_of(name))
            if there is not None and ((there / "status.json").is_file() or claim_of(there) is not None):
                outcome, why = _against_folder(files, there)
                if outcome == KEPT:
                    aside[_aside_name(name, files.content)] = files.content
            else:
                found = ours.find(name) if ours is not None else None
                outcome, why = _against_packed(files, found[1] if found is not None else None)
                if found is not None and outcome == REPLACED:
                    worse = kept.pop(found[0])
                    aside[_aside_name(found[0], worse)] = worse
                if outcome == KEPT:
                    aside[_aside_name(name, files.content)] = files.content
                if outcome in (COPIED, REPLACED):
                    kept[name] = files.content
            outcomes.append((name, outcome, why))
        if aside:
            _set_aside(aside, into / DUPLICATES, theirs.experiment)
        if kept != cells:
            plan = (ours.plan if ours is not None else None) or theirs.plan
            write_packed(into, theirs.experiment, kept, _runs(ours, theirs), plan)
    yield from outcomes


def stands_before(one: CellFolder, other: CellFolder) -> bool:
    """Whether one result of a cell is better than another: done before not done, run whole before composed."""
    return rank_of(one) > rank_of(other)


def rank_of(cell: CellFolder) -> tuple[int, int]:
    """What decides; larger is better."""
    status = cell.status or {}
    return (2 if status.get("status") == "done" else 1 if status else 0, 0 if status.get("composed") else 1)


def words_of(cell: CellFolder) -> str:
    """How a cell ended: ``done (composed)``."""
    status = cell.status or {}
    text = str(status.get("status") or "unfinished")
    return f"{text} (composed)" if status.get("composed") else text


def _against_folder(files: PackedFiles, there: Path) -> tuple[str, str]:
    mine, other = CellFolder(there, files), CellFolder(there)
    if claim_of(there) is not None:
        return SKIPPED, "the same cell runs in the target at this moment"
    if mine.cell.get("config") != other.cell.get("config"):
        return REFUSED, f"{there} has the same id and another configuration"
    if mine.status == other.status:
        return SAME, ""
    if stands_before(mine, other):
        return SKIPPED, f"{words_of(mine)} here, {words_of(other)} there; delete {there}, and merge again, to take it"
    return KEPT, f"{words_of(mine)} here, {words_of(other)} there; this one is in {DUPLICATES}"


def _against_packed(files: PackedFiles, there: PackedFiles | None) -> tuple[str, str]:
    if there is None:
        return COPIED, ""
    nowhere = Path()
    mine, other = CellFolder(nowhere, files), CellFolder(nowhere, there)
    if mine.cell.get("config") != other.cell.get("config"):
        return REFUSED, "the target has a published cell with the same id and another configuration"
    if files.content == there.content:
        return SAME, ""
    about = f"{words_of(mine)} here, {words_of(other)} there"
    if stands_before(mine, other):
        return REPLACED, f"{about}; the other is in {DUPLICATES}"
    return KEPT, f"{about}; this one is in {DUPLICATES}"


def _aside_name(name: str, content: Mapping[str, Any]) -> str:
    return f"{name}~{hashlib.sha256(dump(content).encode()).hexdigest()[:_DIGEST_DIGITS]}"


def _set_aside(cells: Mapping[str, Mapping[str, Any]], place: Path, experiment: str) -> None:
    before = read_packed(place)
    known = {name: files.content for name, files in before.cells()} if before is not None else {}
    if not cells.keys() <= known.keys():
        write_packed(place, experiment, {**known, **cells}, [])


def _runs(ours: PackedExperiment | None, theirs: PackedExperiment) -> list[dict[str, Any]]:
    runs = [*theirs.runs, *(ours.runs if ours is not None else ())]
    found = {(str(run.get("kind")), str(run.get("id"))): run for run in runs}
    return [found[key] for key in sorted(found)]
