"""Result folders of several machines made into one. Nothing is overwritten, nothing half-written is ever visible.

A cell is copied beside its place and renamed into it, so a merge that was cut off goes on where it ended. Where both
sides have finished the same cell, the better one stands and the other is kept below ``.duplicates/`` of its
experiment, which no other command reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError, RecordError
from bwbench.records.files import read_json, write_json_atomic
from bwbench.records.lock import CLAIM, claim_of, locked
from bwbench.records.merge_packed import (
    COPIED,
    DUPLICATES,
    KEPT,
    REFUSED,
    REPLACED,
    SAME,
    SKIPPED,
    merge_packed,
    packed_below,
    rank_of,
    stands_before,
    words_of,
)
from bwbench.records.packed import PACKED, read_packed
from bwbench.records.store import CellFolder

__all__ = ["COPIED", "DUPLICATES", "KEPT", "REFUSED", "REPLACED", "SAME", "SKIPPED", "Merged", "merge"]

_PART = ".merging-"  # of a folder that is being copied
_LOCK = ".merge.lock"
_DEPTH = 3  # results/<experiment>/.timing/<cell>
_DIGEST_DIGITS = 8


@dataclass(frozen=True)
class Merged:
    """What became of one cell of one source.

    Attributes:
        outcome: ``copied``, ``already there`` (equal to the last byte), ``replaced`` (the source's stands, the other is
            kept aside), ``kept`` (the one there stands, the source's is kept aside), ``skipped``, ``refused``.
        why: for people; empty where the outcome says it all.
    """

    source: Path
    cell: str
    outcome: str
    why: str = ""


def merge(sources: list[Path], into: Path) -> Iterator[Merged]:
    """Copy every finished cell of ``sources`` below ``into``, made where it is missing; yields what became of each.

    Args:
        sources: results folders, or single experiments in them; the first one counts more where all else is equal.

    Raises ConfigError where a source is no folder, lies in ``into`` or holds it, or where another merge is at it;
    RecordError where the disk is full or not writable: run it again then, it goes on.
    """
    _check(sources, into)
    try:
        into.mkdir(parents=True, exist_ok=True)
        with _alone(into):
            for source in sources:
                yield from _merge_source(source, into)
    except OSError as error:
        raise RecordError(f"{error.filename or into}: {error.strerror or error}; run it again, it goes on") from None


def _check(sources: list[Path], into: Path) -> None:
    if into.exists() and not into.is_dir():
        raise ConfigError(f"--into: {into} is not a folder")
    if (into / "cell.json").exists() or _is_experiment(into):
        raise ConfigError(f"--into: {into} is a cell or an experiment; name the results folder that shall hold it")
    for source in sources:
        if not source.is_dir():
            raise ConfigError(f"{source} is not a folder; name a results folder or one experiment in it")
        if (source / "cell.json").exists():
            raise ConfigError(f"{source} is a single cell; name the experiment or the results folder that holds it")
        here, there = source.resolve(), into.resolve()
        if here == there or here in there.parents or there in here.parents:
            raise ConfigError(f"{source} and --into {into} are the same folder, or one lies in the other")
        if next(_cells(source), None) is None and not packed_below(source):
            raise ConfigError(f"{source} holds no records: no <experiment>/<cell>/cell.json in it")


def _is_experiment(folder: Path) -> bool:
    return (
        (folder / PACKED).is_file()
        or folder.is_dir()
        and any((child / "cell.json").is_file() for child in _folders(folder))
    )


def _merge_source(source: Path, into: Path) -> Iterator[Merged]:
    top = source.resolve().parent if _is_experiment(source) else source.resolve()
    for path in _cells(source.resolve()):
        parent = into / path.parent.relative_to(top)
        yield _merge_cell(source, path, parent)
    for experiment in packed_below(source.resolve()):
        for name, outcome, why in merge_packed(experiment, into / experiment.relative_to(top)):
            yield Merged(source, name, outcome, why)
    for plan in sorted({path.parent / "plan.json" for path in _cells(source.resolve())}):
        _merge_plan(plan, into / plan.parent.relative_to(top) / "plan.json")


def _merge_cell(source: Path, path: Path, parent: Path) -> Merged:
    name = path.name
    if why := _unfit(path):
        return Merged(source, name, SKIPPED, why)
    cell = CellFolder(path).cell
    there = _same_cell(parent, path, str(cell.get("id")))
    if there is None:
        return _beside_published(source, path, parent)
    if claim_of(there) is not None:
        return Merged(source, name, SKIPPED, "the same cell runs in the target at this moment")
    known = read_json(there / "cell.json")
    if isinstance(known, dict) and known.get("config") != cell.get("config"):
        return Merged(source, name, REFUSED, f"{there} has the same id and another configuration")
    if _digest(path) == _digest(there):
        return Merged(source, name, SAME)
    better = stands_before(CellFolder(path), CellFolder(there))
    about = f"{words_of(CellFolder(path))} here, {words_of(CellFolder(there))} there"
    if better:
        if not (there / "status.json").is_file() and not CellFolder(there).attempts:  # planned there, never begun
            shutil.rmtree(there)
            _copy(path, parent / name)
            return Merged(source, name, COPIED)
        _set_aside(there, parent)
        _copy(path, parent / name)
    else:
        _copy(path, _aside(path, parent))
    loser = "the other" if better else "this one"
    return Merged(source, name, REPLACED if better else KEPT, f"{about}; {loser} is in {parent.name}/{DUPLICATES}")


def _beside_published(source: Path, path: Path, parent: Path) -> Merged:
    """Copy a cell that has no folder there yet, unless a better result of it is published there."""
    packed = read_packed(parent)
    found = packed.find(path.name) if packed is not None else None
    mine, published = CellFolder(path), CellFolder(parent / found[0], found[1]) if found is not None else None
    if published is not None and rank_of(published) > rank_of(mine):
        _copy(path, _aside(path, parent))
        about = f"{words_of(mine)} here, {words_of(published)} published there"
        return Merged(source, path.name, KEPT, f"{about}; this one is in {parent.name}/{DUPLICATES}")
    _copy(path, parent / path.name)
    return Merged(source, path.name, COPIED)


def _unfit(path: Path) -> str:
    """Why a cell is no finished record; empty where it is one."""
    try:
        cell = CellFolder(path).cell
    except RecordError as error:
        return str(error)
    if not isinstance(cell.get("config"), dict) or not cell.get("id"):
        return "broken: cell.json has no id or no configuration"
    if claim_of(path) is not None:
        return "it runs at this moment"
    folder = CellFolder(path)
    if not (path / "status.json").is_file():
        return "unfinished: an attempt without status.json" if folder.attempts else "planned, not run yet"
    if folder.status is None or not folder.status.get("status"):
        return "broken: status.json is not readable"
    attempt = folder.status.get("attempt")
    if not folder.status.get("composed") and attempt and not (path / f"attempt-{attempt}").is_dir():
        return f"broken: status.json speaks of attempt-{attempt}, which is not there"
    return ""


def _same_cell(parent: Path, path: Path, cell_id: str) -> Path | None:
    """Where the cell is already: under the same name, or under another slug with the same id."""
    if (parent / path.name).is_dir():
        return parent / path.name
    if parent.name == DUPLICATES:
        return None
    same = [child for child in _folders(parent) if child.name.rpartition("-")[2] == cell_id]
    return next((child for child in same if (child / "cell.json").is_file()), None)


def _aside(path: Path, parent: Path) -> Path:
    return parent / DUPLICATES / f"{path.name}~{_digest(path)[:_DIGEST_DIGITS]}"


def _set_aside(there: Path, parent: Path) -> None:
    place = _aside(there, parent)
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():  # an equal one lies there from before
        shutil.rmtree(there)
    else:
        os.rename(there, place)


def _copy(path: Path, place: Path) -> None:
    """Copy a cell's regular files to ``place``, which appears as a whole or not at all."""
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.parent / f"{_PART}{place.name}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        for file in _files(path):
            target = part / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target, follow_symlinks=False)
            with target.open("rb") as written:
                os.fsync(written.fileno())
        os.rename(part, place)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _merge_plan(source: Path, target: Path) -> None:
    """Keep the plan of the target, with the cells that only the source has planned behind its own."""
    theirs = read_json(source)
    if not isinstance(theirs, dict) or not target.parent.is_dir():
        return
    with locked(target.parent):
        ours: dict[str, Any] | None = read_json(target)
        if not isinstance(ours, dict):
            write_json_atomic(target, theirs)
            return
        planned = {cell.get("id") for cell in ours.get("cells", [])}
        more = [cell for cell in theirs.get("cells", []) if cell.get("id") not in planned]
        if more:
            write_json_atomic(target, {**ours, "cells": [*ours.get("cells", []), *more]})


def _cells(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Every cell below, those of hidden folders (timing and convergence runs) included."""
    for child in _folders(folder):
        if child.name.startswith(_PART):
            continue
        if (child / "cell.json").is_file():
            yield child
        elif depth > 1:
            yield from _cells(child, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(root, name)
            if name != CLAIM and not name.endswith(".part") and path.is_file() and not path.is_symlink():
                yield path


def _digest(folder: Path) -> str:
    """SHA-256 over names and contents of a cell's files."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _alone(into: Path) -> Iterator[None]:
    with (into / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another merge into {into} is running; wait for it") from None
        yield
