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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError, PackedRecordsError, RecordError
from bwbench.records.files import read_record, write_record
from bwbench.records.lock import CLAIM, claim_of, locked
from bwbench.records.packed import PACKED, PackedExperiment, PackedFiles, dump, id_of, read_packed, write_packed
from bwbench.records.schema import CellRecord, JsonObject, PlanRecord, PublishedRun
from bwbench.records.store import CellFolder

Outcome = tuple[str, str, str]  # name of a published cell, what became of it, and why
COPIED, SAME, REPLACED, KEPT, SKIPPED, REFUSED = "copied", "already there", "replaced", "kept", "skipped", "refused"
DUPLICATES = ".duplicates"


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
        try:
            yield _merge_cell(source, path, parent)
        except PackedRecordsError:
            raise
        except RecordError as error:  # of the cell that is there already
            yield Merged(source, path.name, SKIPPED, f"the same cell in the target is broken: {error}")
    for experiment in packed_below(source.resolve()):
        for name, outcome, why in merge_packed(experiment, into / experiment.relative_to(top)):
            yield Merged(source, name, outcome, why)
    for plan in sorted({path.parent / "plan.json" for path in _cells(source.resolve())}):
        try:
            _merge_plan(plan, into / plan.parent.relative_to(top) / "plan.json")
        except RecordError as error:
            yield Merged(source, plan.name, SKIPPED, str(error))


def _merge_cell(source: Path, path: Path, parent: Path) -> Merged:
    name = path.name
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
        if more:
            write_record(target, ours.model_copy(update={"cells": (*ours.cells, *more)}))


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
        kept, aside = dict(cells), dict[str, JsonObject]()
        folders = {id_of(entry.name): Path(entry.path) for entry in os.scandir(into) if entry.is_dir()}
        outcomes = []
        for name, files in theirs.cells():
            if (problem := CellFolder(source / name, files).problem) is not None:
                outcomes.append((name, SKIPPED, f"broken: {problem}"))
                continue
            there = folders.get(id_of(name))
            if there is not None and ((there / "status.json").is_file() or claim_of(there) is not None):
                try:
                    outcome, why = _against_folder(files, there)
                except RecordError as error:
                    outcome, why = SKIPPED, f"the same cell in the target is broken: {error}"
                if outcome == KEPT:
                    aside[_aside_name(name, files.content)] = files.content
            else:
                found = ours.find(name) if ours is not None else None
                try:
                    outcome, why = _against_packed(files, found[1] if found is not None else None)
                except RecordError as error:
                    outcome, why = SKIPPED, f"the same cell in the target is broken: {error}"
                if found is not None and outcome == REPLACED:
                    worse = kept.pop(found[0])
                    aside[_aside_name(found[0], worse)] = worse
                if outcome == KEPT:
                    aside[_aside_name(name, files.content)] = files.content
                if outcome in (COPIED, REPLACED):
                    kept[name] = files.content
            outcomes.append((name, outcome, why))
        if aside:
            _set_packed_aside(aside, into / DUPLICATES, theirs.experiment)
        if kept != cells:
            plan = (ours.plan if ours is not None else None) or theirs.plan
            write_packed(into, theirs.experiment, kept, _runs(ours, theirs), plan)
    yield from outcomes


def stands_before(one: CellFolder, other: CellFolder) -> bool:
    """Whether one result of a cell is better than another: done before not done, run whole before composed."""
    return rank_of(one) > rank_of(other)


def rank_of(cell: CellFolder) -> tuple[int, int]:
    """What decides; larger is better."""
    status = cell.status
    if status is None:
        return 0, 1
    return (2 if status.status == "done" else 1), (1 if status.composed is None else 0)


def words_of(cell: CellFolder) -> str:
    """How a cell ended: ``done (composed)``."""
    if cell.status is None:
        return "unfinished"
    return cell.status.status if cell.status.composed is None else f"{cell.status.status} (composed)"


def _against_folder(files: PackedFiles, there: Path) -> tuple[str, str]:
    mine, other = CellFolder(there, files), CellFolder(there)
    if claim_of(there) is not None:
        return SKIPPED, "the same cell runs in the target at this moment"
    if mine.cell.config != other.cell.config:
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
    if mine.cell.config != other.cell.config:
        return REFUSED, "the target has a published cell with the same id and another configuration"
    if files.content == there.content:
        return SAME, ""
    about = f"{words_of(mine)} here, {words_of(other)} there"
    if stands_before(mine, other):
        return REPLACED, f"{about}; the other is in {DUPLICATES}"
    return KEPT, f"{about}; this one is in {DUPLICATES}"


def _aside_name(name: str, content: JsonObject) -> str:
    return f"{name}~{hashlib.sha256(dump(content).encode()).hexdigest()[:_DIGEST_DIGITS]}"


def _set_packed_aside(cells: Mapping[str, JsonObject], place: Path, experiment: str) -> None:
    before = read_packed(place)
    known = {name: files.content for name, files in before.cells()} if before is not None else {}
    if not cells.keys() <= known.keys():
        write_packed(place, experiment, {**known, **cells}, [])


def _runs(ours: PackedExperiment | None, theirs: PackedExperiment) -> list[PublishedRun]:
    runs = [*theirs.runs, *(ours.runs if ours is not None else ())]
    found = {(run.kind, run.id): run for run in runs}
    return [found[key] for key in sorted(found)]
