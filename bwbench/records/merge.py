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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError, ForeignCellError, PackedRecordsError, RecordError
from bwbench.base.plain_data import JsonObject
from bwbench.records.files import (
    full_of_holes,
    leads_out,
    read_json,
    read_record,
    regular_file,
    write_json_atomic,
    write_record,
)
from bwbench.records.lock import CLAIM, claim_of, lock_file, locked
from bwbench.records.own_and_published import taken
from bwbench.records.packed import (
    PACKED,
    PackedExperiment,
    PackedFiles,
    dump,
    find_packed,
    id_of,
    published_beside,
    read_packed,
    write_packed,
)
from bwbench.records.schema import CellRecord, PlanRecord
from bwbench.records.store import CellFolder

COPIED, SAME, REPLACED, KEPT, SKIPPED, REFUSED = "copied", "already there", "replaced", "kept", "skipped", "refused"
DUPLICATES = ".duplicates"
_PART = ".merging-"  # of a folder that is being copied
_LOCK = ".merge.lock"
_DEPTH = 3  # results/<experiment>/.timing/<cell>
_NO_WAY_OUT = (
    "to a folder, or out of what is merged, and is not followed: put the files themselves there first "
    "(`dvc unprotect`, `git annex unlock`, `cp -rL`)"
)
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


def merge(sources: list[Path], into: Path, *, published: bool = False) -> Iterator[Merged]:
    """Copy every finished cell of ``sources`` below ``into``, made where it is missing; yields what became of each.

    Args:
        sources: results folders, or single experiments in them; the first one counts more where all else is equal.
        published: take their published sets as well, which are taken anyway of a source that holds nothing else; they
            come below ``published/`` there too.

    Raises ConfigError where a source is no folder, lies in ``into`` or holds it, or where another merge is at it;
    RecordError where the disk is full or not writable: run it again then, it goes on.
    """
    sets = {source: _sets_of(source, published=published) for source in sources}
    _check(sets, into)
    try:
        into.mkdir(parents=True, exist_ok=True)
        with open(lock_file(into / _LOCK), "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another merge into {into} is running; wait for it") from None
            for source in sources:
                yield from _merge_source(source, into, sets[source])
    except OSError as error:
        raise RecordError(f"{error.filename or into}: {error.strerror or error}; run it again, it goes on") from None


def _sets_of(source: Path, *, published: bool) -> tuple[Path, ...]:
    """The published sets that are taken of a source beside its own cells."""
    found = taken(source.resolve(), published=published)
    return found.sets if found.published else ()


def _check(sources: Mapping[Path, Collection[Path]], into: Path) -> None:
    if into.exists() and not into.is_dir():
        raise ConfigError(f"--into: {into} is a file; name a folder, which is made where it is missing")
    if (into / "cell.json").exists() or _is_experiment(into):
        raise ConfigError(f"--into: {into} is a cell or an experiment; name the results folder that shall hold it")
    for source, sets in sources.items():
        if not source.is_dir() and not sets:
            raise ConfigError(f"there is no folder {source}; name a results folder or one experiment in it")
        if (source / "cell.json").exists():
            raise ConfigError(f"{source} is a single cell; name the experiment or the results folder that holds it")
        here, there = source.resolve(), into.resolve()
        if here == there or here in there.parents or there in here.parents:
            raise ConfigError(f"{source} and --into {into} are the same folder, or one lies in the other")
        if next(_cells(source), None) is None and not _packed_below(source) and not sets:
            raise ConfigError(f"{source} holds no records: no <experiment>/<cell>/cell.json in it; name another one")


def _is_experiment(folder: Path) -> bool:
    return (
        (folder / PACKED).is_file()
        or folder.is_dir()
        and any((child / "cell.json").is_file() for child in _folders(folder))
    )


def _merge_source(source: Path, into: Path, sets: Collection[Path]) -> Iterator[Merged]:
    is_one = _is_experiment(source) or published_beside(source.resolve()) in sets
    top = source.resolve().parent if is_one else source.resolve()
    for path in _cells(source.resolve()):
        parent = into / path.parent.relative_to(top)
        try:
            yield _merge_cell(source, path, parent)
        except PackedRecordsError:
            raise
        except RecursionError:
            yield Merged(
                source, path.name, REFUSED, "folders lie too deep in it; a cell has attempts, and files in them"
            )
        except RecordError as error:  # of the cell that is there already
            yield Merged(source, path.name, SKIPPED, f"the same cell in the target is broken: {error}")
    for experiment in (*_packed_below(source.resolve()), *sets):
        yield from _merge_packed(source, experiment, into / experiment.relative_to(top))
    for plan in sorted({path.parent / "plan.json" for path in _cells(source.resolve())}):
        try:
            _merge_plan(plan, into / plan.parent.relative_to(top) / "plan.json")
        except RecordError as error:
            yield Merged(source, plan.name, SKIPPED, str(error))


def _merge_cell(source: Path, path: Path, parent: Path) -> Merged:
    name = path.name
    if (link := _link_out(path, source)) is not None:
        return Merged(source, name, REFUSED, f"{link} is a link {_NO_WAY_OUT}")
    if (file := _full_of_holes(path)) is not None:
        return Merged(source, name, REFUSED, f"{file} is full of holes, and would fill the disk; remove it there")
    if isinstance(problem := CellFolder(path).problem, ForeignCellError):
        return Merged(source, name, REFUSED, str(problem))
    if why := _unfit(path):
        return Merged(source, name, SKIPPED, why)
    cell = CellFolder(path).cell
    there = _same_cell(parent, path, cell.id)
    if there is None:
        return _beside_published(source, path, parent)
    if claim_of(there) is not None:
        return Merged(source, name, SKIPPED, "the same cell runs in the target at this moment")
    known = read_record(CellRecord, there / "cell.json")
    if known is not None and known.config != cell.config:
        return Merged(source, name, REFUSED, f"{there} has the same id and another configuration")
    if _digest(path) == _digest(there):
        return Merged(source, name, SAME)
    mine, other = CellFolder(path), CellFolder(there)
    better = _rank_of(mine) > _rank_of(other)
    if better and other.status is None and not other.attempts:
        shutil.rmtree(there)  # planned there, never begun
        _copy(path, parent / name)
        return Merged(source, name, COPIED)
    if better:
        place = _aside(there, parent)
        place.parent.mkdir(exist_ok=True)
        if place.is_dir():  # an equal one lies there from before
            shutil.rmtree(there)
        else:
            os.rename(there, place)
        _copy(path, parent / name)
    else:
        _copy(path, _aside(path, parent))
    loser = "the other" if better else "this one"
    about = f"{_words_of(mine)} here, {_words_of(other)} there; {loser} is in {parent.name}/{DUPLICATES}"
    return Merged(source, name, REPLACED if better else KEPT, about)


def _beside_published(source: Path, path: Path, parent: Path) -> Merged:
    """Copy a cell that has no folder there yet, unless a better result of it is published there."""
    found = find_packed(parent / path.name)
    mine, published = CellFolder(path), CellFolder(*found) if found is not None else None
    if published is not None and _rank_of(published) > _rank_of(mine):
        _copy(path, _aside(path, parent))
        about = f"{_words_of(mine)} here, {_words_of(published)} published there"
        return Merged(source, path.name, KEPT, f"{about}; this one is in {parent.name}/{DUPLICATES}")
    _copy(path, parent / path.name)
    return Merged(source, path.name, COPIED)


def _link_out(path: Path, source: Path) -> Path | None:
    """A link in a cell's folder that is not followed: to a folder, or out of the source. None where there is none."""
    for root, folders, names in os.walk(path):
        for link in (Path(root, name) for name in sorted([*folders, *names])):
            if link.is_symlink() and (link.is_dir() or leads_out(link, source)):
                return link
    return None


def _full_of_holes(path: Path) -> Path | None:
    """A file of a cell that would take far more room than it takes where it lies; None where there is none."""
    for file in _files(path):
        with contextlib.suppress(OSError), regular_file(file) as opened:
            if full_of_holes(opened):
                return file
    return None


def _unfit(path: Path) -> str:
    """Why a cell is no finished record; empty where it is one."""
    folder = CellFolder(path)
    if folder.problem is not None:
        return f"broken: {folder.problem}"
    if claim_of(path) is not None:
        return "it runs at this moment"
    if folder.status is None:
        return "unfinished: an attempt without status.json" if folder.attempts else "planned, not run yet"
    attempt = folder.status.attempt
    if folder.status.composed is None and attempt and not (path / f"attempt-{attempt}").is_dir():
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


def _copy(path: Path, place: Path) -> None:
    """Copy a cell's files, those that links lead to as well, to ``place``, which appears as a whole or not at all."""
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.parent / f"{_PART}{place.name}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        for file in _files(path):
            target = part / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            with target.open("rb") as written:
                os.fsync(written.fileno())
        os.rename(part, place)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _merge_plan(source: Path, target: Path) -> None:
    """Keep the plan of the target, with the cells that only the source has planned behind its own."""
    theirs = read_record(PlanRecord, source)
    if theirs is None or not target.parent.is_dir():
        return
    with locked(target.parent):
        ours = read_record(PlanRecord, target)
        if ours is None:
            write_record(target, theirs)
            return
        planned = {cell.id for cell in ours.cells}
        more = [cell for cell in theirs.cells if cell.id not in planned]
        if more:  # as the file stands, with what a later version may have written beside it
            cells = [cell.to_json() for cell in (*ours.cells, *more)]
            write_json_atomic(target, {**(read_json(target) or {}), "cells": cells})


def _cells(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Every cell below, those of hidden folders (timing and convergence runs) included."""
    for child in _folders(folder):
        if child.name.startswith(_PART):
            continue
        if os.path.lexists(child / "cell.json"):
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
            if name != CLAIM and not name.endswith(".part") and path.is_file():
                yield path


def _digest(folder: Path) -> str:
    """SHA-256 over names and contents of a cell's files."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _packed_below(folder: Path) -> list[Path]:
    """Experiments with published cells: ``folder`` itself, or those in it."""
    return [place for place in (folder, *_folders(folder)) if (place / PACKED).is_file()]


def _merge_packed(source: Path, experiment: Path, into: Path) -> Iterator[Merged]:
    """Take the published cells of one experiment into another, made where it is missing.

    What stands where both sides have a cell is decided as for folders; a folder stands before an equal published cell,
    because it holds more. What does not stand is kept in a published file below ``.duplicates/``.

    Raises PackedRecordsError where one of the files is broken, OSError where the disk is full or not writable.
    """
    theirs = read_packed(experiment)
    if theirs is None:
        return
    with locked(into):
        ours = read_packed(into)
        cells = _contents(ours)
        kept, aside = dict(cells), dict[str, JsonObject]()
        folders = {id_of(entry.name): Path(entry.path) for entry in os.scandir(into) if os.path.isdir(entry.path)}
        merged = []
        for name, files in theirs.cells():
            mine, there = CellFolder(experiment / name, files), folders.get(id_of(name))
            found = ours.find(name) if ours is not None else None
            other = CellFolder(into / found[0], found[1]) if found is not None else None
            if there is not None and ((there / "status.json").is_file() or claim_of(there) is not None):
                other = CellFolder(there)
            outcome, why = _outcome(mine, other)
            if found is not None and outcome == REPLACED:
                worse = kept.pop(found[0])
                aside[_aside_name(found[0], worse)] = worse
            if outcome == KEPT:
                aside[_aside_name(name, files.content)] = files.content
            if outcome in (COPIED, REPLACED):
                kept[name] = files.content
            merged.append(Merged(source, name, outcome, why))
        if aside:
            before = _contents(read_packed(into / DUPLICATES))
            if not aside.keys() <= before.keys():
                write_packed(into / DUPLICATES, theirs.experiment, {**before, **aside}, [])
        if kept != cells:
            runs = {(run.kind, run.id): run for run in (*theirs.runs, *(ours.runs if ours is not None else ()))}
            plan = (ours.plan if ours is not None else None) or theirs.plan
            write_packed(into, theirs.experiment, kept, [runs[key] for key in sorted(runs)], plan)
    yield from merged


def _contents(packed: PackedExperiment | None) -> dict[str, JsonObject]:
    return {name: files.content for name, files in packed.cells()} if packed is not None else {}


def _outcome(mine: CellFolder, other: CellFolder | None) -> tuple[str, str]:
    """What becomes of a published cell beside the same one in the target, and why."""
    if isinstance(problem := mine.problem, ForeignCellError):
        return REFUSED, str(problem)
    if problem is not None:
        return SKIPPED, f"broken: {problem}"
    try:
        return (COPIED, "") if other is None else _against(mine, other)
    except RecordError as error:
        return SKIPPED, f"the same cell in the target is broken: {error}"


def _against(mine: CellFolder, other: CellFolder) -> tuple[str, str]:
    if not other.is_packed and claim_of(other.path) is not None:
        return SKIPPED, "the same cell runs in the target at this moment"
    if mine.cell.config != other.cell.config:
        which = "the target has a published cell with" if other.is_packed else f"{other.path} has"
        return REFUSED, f"{which} the same id and another configuration"
    if isinstance(mine.files, PackedFiles) and isinstance(other.files, PackedFiles):
        same = mine.files.content == other.files.content
    else:
        same = mine.status == other.status
    if same:
        return SAME, ""
    about = f"{_words_of(mine)} here, {_words_of(other)} there"
    if _rank_of(mine) <= _rank_of(other):
        return KEPT, f"{about}; this one is in {DUPLICATES}"
    if other.is_packed:
        return REPLACED, f"{about}; the other is in {DUPLICATES}"
    return SKIPPED, f"{about}; delete {other.path}, and merge again, to take it"


def _rank_of(cell: CellFolder) -> tuple[int, int, int]:
    """What decides which result of a cell stands, larger is better: done, whole, and timed before what is not."""
    status = cell.status
    if status is None:
        return 0, 1, 1
    return (2 if status.status == "done" else 1), int(status.composed is None), int(not _is_virtual(cell))


def _is_virtual(cell: CellFolder) -> bool:
    """Whether its nodes were virtual, so that its times say nothing. What cannot be read is taken for timed."""
    try:
        return cell.environment is not None and cell.environment.virtual
    except RecordError:
        return False


def _words_of(cell: CellFolder) -> str:
    """How a cell ended: ``done (composed)``."""
    if cell.status is None:
        return "unfinished"
    how = [word for word, so in (("composed", cell.status.composed), ("virtual nodes", _is_virtual(cell))) if so]
    return f"{cell.status.status} ({', '.join(how)})" if how else cell.status.status


def _aside_name(name: str, content: JsonObject) -> str:
    return f"{name}~{hashlib.sha256(dump(content).encode()).hexdigest()[:_DIGEST_DIGITS]}"
