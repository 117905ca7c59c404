"""The result folder: where each file of a cell lies, and what has been recorded so far.

``<root>/<experiment>/<slug>-<id>/{cell.json, attempt-N/…, status.json}``, or packed into the published set of the
experiment, ``<root>/published/<experiment>/cells.jsonl.gz``; docs/results-format.md describes every file.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bwbench.base.errors import ForeignCellError, PackedRecordsError, RecordError
from bwbench.base.plain_data import Json, JsonObject, leaves, mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.network.link.node_link import queue_words
from bwbench.records.cell_identity import QUEUE_BEFORE, id_problem
from bwbench.records.files import REMEDIES, leads_out, read_events, read_json, read_record, read_tail
from bwbench.records.packed import PACKED, PUBLISHED, PackedFiles, find_packed, id_of, published_beside, read_packed
from bwbench.records.schema import CellRecord, Composed, Digest, Environment, Event, LinkRecord, Status
from bwbench.records.schema.record import R

OF_ATTEMPTS = ("link.json", "environment.json")
LOG_LINES = 20  # of the end of a log; enough for a traceback's end
LOG_BYTES = 1 << 20  # a progress bar writes lines that never end
_LEADS_OUT = "(not shown: a link that leads out of the cell's folder)"
_ATTEMPT = re.compile(r"attempt-(\d+)")
_NAMED = re.compile(r"-([0-9a-f]{10})$")  # the folder of a cell
_RANK = re.compile(r"\brank (\d+)")
_RANK_FILE = re.compile(r"rank(\d+)\.jsonl")
_STEP_TIMES = ("compute.step_time.", "compute.overrides.")
_RANK_LOG = re.compile(r"rank(\d+)\.log")  # a name of other bytes would stand in what is published


class FolderFiles:
    """The files of one cell in its own folder, as a run writes them; read when asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, model: type[R], name: str, attempt: int | None = None) -> R | None:
        """The record in a file; None where there is none.

        Args:
            attempt: that a file of OF_ATTEMPTS is of; the last one where it has none.

        Raises RecordError where it does not fit.
        """
        records = (read_record(model, place) for place in self._places(name, attempt))
        return next((record for record in records if record is not None), None)

    def raw(self, name: str, attempt: int | None) -> Json:
        """A file as it stands, with fields that this version ignores: for those who only hand it on. None where it is
        missing or no JSON."""
        contents = (read_json(place) for place in self._places(name, attempt))
        return next((content for content in contents if content is not None), None)

    def _places(self, name: str, attempt: int | None) -> Iterator[str]:
        """Where a file may lie, the likeliest first: ten thousand folders then need no listing."""
        if name not in OF_ATTEMPTS:
            yield f"{self._path}/{name}"
            return
        if attempt:
            yield f"{self._path}/attempt-{attempt}/{name}"
        if attempts := self.attempts():
            yield f"{attempts[-1]}/{name}"

    def attempts(self) -> list[Path]:
        """Folders of the attempts, oldest first."""
        found = {}
        with contextlib.suppress(OSError):  # a cell that is only planned may have no folder
            entries = [(_ATTEMPT.fullmatch(entry.name), entry) for entry in os.scandir(self._path)]
            found = {int(match[1]): Path(entry.path) for match, entry in entries if match and _is_dir(entry)}
        return [found[number] for number in sorted(found)]

    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Last lines of the logs of the last attempt by file name: of the rank that ``reason`` names, or of every one
        that is there."""
        attempts, named = self.attempts(), _RANK.search(reason)
        names = sorted(filter(_RANK_LOG.fullmatch, os.listdir(attempts[-1]))) if attempts else []
        if named:
            names = [name for name in names if name == f"rank{named[1]}.log"]
        return {name: self._tail(attempts[-1] / name) for name in names}

    def _tail(self, log: Path) -> list[str]:
        """Last lines of a log. They are shown, published and sent on: nothing from outside the cell gets into them."""
        if leads_out(log, self._path):
            return [_LEADS_OUT]
        return read_tail(log, LOG_BYTES).decode(errors="replace").splitlines()[-LOG_LINES:]


@dataclass(frozen=True)
class CellFolder:
    """One cell's records. Files are read when asked for and then kept.

    Attributes:
        path: of its folder; of a published cell, where that would lie.
        files: where its files are read from; by default the folder.
        asked_target: metric and value that analysis looks at in place of the recorded target.
        made: what analysis has made of its records, by name; shared by all that stand for the same records.
    """

    path: Path
    files: PackedFiles | None = field(default=None, compare=False, repr=False)
    asked_target: tuple[str, float] | None = field(default=None, compare=False, repr=False)
    made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _files(self) -> FolderFiles | PackedFiles:
        return self.files or FolderFiles(self.path)

    def asked(self, target: tuple[str, float]) -> CellFolder:
        """The same records, to be looked at with another target; what was read of them is not read again."""
        other = copy.copy(self)
        object.__setattr__(other, "asked_target", target)
        return other

    @property
    def is_packed(self) -> bool:
        """Whether the cell is one of a published file: it has no folder, no attempts and no events."""
        return self.files is not None

    @cached_property
    def cell(self) -> CellRecord:
        """The planned cell (cell.json).

        Raises RecordError where it is missing, broken or of a newer schema, ForeignCellError where its configuration is
        not that of its id, or its id not that of its folder.
        """
        found = self._files.read(CellRecord, "cell.json")
        if found is None:
            raise RecordError(f"{self.path / 'cell.json'}: is missing; {REMEDIES['cell.json']}")
        problem = id_problem(found.id, found.config)
        if (named := _NAMED.search(self.path.name)) is not None and named[1] != found.id:
            problem = f"id: is {found.id}, in the folder of cell {named[1]}"
        if problem is not None:
            raise ForeignCellError(f"{self.path / 'cell.json'}: {problem}; {REMEDIES['cell.json']}")
        return found

    @cached_property
    def flat_config(self) -> JsonObject:
        """The cell's configuration by flat names (``link.latency``); lists as JSON, and the queue that held, in words.

        Step times that are drawn, or follow a trace, or are nodes' own, are one setting in words each.
        """
        flat: JsonObject = {  # thousands of cells have the same names
            sys.intern(key): json.dumps(value, sort_keys=True) if isinstance(value, list) else value
            for key, value in leaves(self.cell.config)
        }
        compute = mapping_at(self.cell.config, "compute")
        if isinstance(compute.get("step_time"), dict) or compute.get("overrides"):
            flat = {key: value for key, value in flat.items() if not key.startswith(_STEP_TIMES)}
            flat["compute.step_time"] = str(recorded_step_times(compute))
        if isinstance(managed := mapping_at(self.cell.config, "link").get("queue"), dict):
            flat = {key: value for key, value in flat.items() if not key.startswith("link.queue.")}
            flat["link.queue"] = queue_words(managed)
        if flat.get("link.queue") is None and flat.get("link.shaped"):
            flat["link.queue"] = QUEUE_BEFORE
        return flat

    @cached_property
    def status(self) -> Status | None:
        """How the cell ended (status.json); None while it is not finished. Raises RecordError where it does not fit."""
        return self._files.read(Status, "status.json")

    @property
    def _attempt(self) -> int | None:
        return self.status.attempt if self.status is not None else None

    @cached_property
    def problem(self) -> RecordError | None:
        """Why the cell cannot be read; None where it can be.

        This is the one place that decides: of a cell that can be read, no record raises any more but the events of its
        ranks, which are read line by line.

        Raises PackedRecordsError where a published file is broken as a whole.
        """
        return self.problem_at_a_glance or self._problem_of("link", "composed_beside", *(["digest"] * self.is_packed))

    @cached_property
    def problem_at_a_glance(self) -> RecordError | None:
        """The same without looking into its link, which would take most of the time of a list of ten thousand cells.

        Raises PackedRecordsError as ``problem``.
        """
        return self._problem_of("cell", "status", "composed", "environment") or self._problem_of_ids()

    def _problem_of_ids(self) -> RecordError | None:
        if self.status is None or self.status.id == self.cell.id:
            return None
        text = f"id: is {self.status.id}, where cell.json says {self.cell.id}"
        return ForeignCellError(f"{self.path / 'status.json'}: {text}; {REMEDIES['status.json']}")

    def _problem_of(self, *records: str) -> RecordError | None:
        try:
            for name in records:
                getattr(self, name)
        except PackedRecordsError:
            raise
        except RecordError as error:
            return error
        return None

    @cached_property
    def attempts(self) -> list[Path]:
        """The attempt folders, oldest first; none of a published cell."""
        return FolderFiles(self.path).attempts() if self.files is None else []

    @property
    def num_attempts(self) -> int:
        """How many attempts there were, also of a published cell."""
        return len(self.attempts) if self.files is None else self.files.num_attempts()

    @property
    def last_attempt(self) -> Path | None:
        """The newest attempt folder."""
        return self.attempts[-1] if self.attempts else None

    def events(self) -> dict[int, list[Event]]:
        """The events of the last attempt by rank; none of a published or a composed cell.

        Raises RecordError where a line is none.
        """
        files = os.listdir(self.last_attempt) if self.last_attempt is not None else ()
        ranks = sorted(int(match[1]) for name in files if (match := _RANK_FILE.fullmatch(name)))
        return {rank: read_events(self.attempts[-1] / f"rank{rank}.jsonl") for rank in ranks}

    @cached_property
    def digest(self) -> Digest | None:
        """What stands for the events of a cell that has none: a composed or a published one.

        None where they are to be made from the events.
        """
        if self.composed is not None:
            return self.composed
        return None if self.files is None else self.files.digest

    def log_tails(self) -> dict[str, list[str]]:
        """Last lines of the logs of the last attempt: of the rank that failed, or of every rank; of a published cell
        that is done, of rank 0 alone."""
        return self._files.log_tails((self.status.reason if self.status is not None else None) or "")

    def raw(self, name: str) -> Json:
        """A file as it stands, with fields that this version ignores: for those who only hand it on; of an attempt that
        of the one that counts. None where it is missing or no JSON."""
        return self._files.raw(name, self._attempt)

    @property
    def composed_file(self) -> Path:
        """Where a cell's composed result lies, also of one that ran whole as well."""
        return self.path / "composed.json"

    @cached_property
    def composed_beside(self) -> Composed | None:
        """What stands in composed.json, also of a cell that ran whole as well; None where it was not composed."""
        return self._files.read(Composed, "composed.json")

    @cached_property
    def composed(self) -> Composed | None:
        """What the result was put together from (composed.json); None for a cell that ran whole.

        Raises RecordError where it should be there and is not.
        """
        if self.status is None or self.status.composed is None:
            return None
        if self.composed_beside is None:
            raise RecordError(
                f"{self.composed_file}: is missing, and status.json says that the cell was composed; "
                f"{REMEDIES['status.json']}"
            )
        return self.composed_beside

    @cached_property
    def link(self) -> LinkRecord | None:
        """What was asked of the link and what it did (link.json of the last attempt, or of the timing run)."""
        if self.composed is not None:
            return self.composed.link
        return self._files.read(LinkRecord, "link.json", self._attempt)

    @cached_property
    def environment(self) -> Environment | None:
        """Host, kernel and versions (environment.json of the last attempt, or of the timing run)."""
        if self.composed is not None:
            return self.composed.environment
        return self._files.read(Environment, "environment.json", self._attempt)

    def new_attempt(self) -> Path:
        """Make and return the next attempt folder."""
        number = int(_ATTEMPT.fullmatch(self.last_attempt.name)[1]) + 1 if self.last_attempt else 1  # type: ignore[index]
        path = self.path / f"attempt-{number}"
        path.mkdir(parents=True)
        self.__dict__.pop("attempts", None)
        return path


def readable(cells: Iterable[CellFolder]) -> tuple[list[CellFolder], list[RecordError]]:
    """The cells that can be read, and why each of the others cannot be.

    Raises PackedRecordsError where a published file is broken as a whole.
    """
    found, refused = [], []
    with uncollected():
        for cell in cells:
            if (problem := cell.problem) is None:
                found.append(cell)
            else:
                refused.append(problem)
    return found, refused


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage inside: records are many small objects without a cycle, and it took a third of the time
    to read them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def cell_at(path: Path) -> CellFolder:
    """The cell whose folder is or would be ``path``: the folder where it has a result, else the published one.

    Raises PackedRecordsError where the experiment's published file is broken.
    """
    found = None if os.path.lexists(path / "status.json") else find_packed(path)
    return CellFolder(path) if found is None else CellFolder(*found)


def iter_cells(folder: Path, *, published: bool = False) -> Iterator[CellFolder]:
    """Every cell below ``folder``: a results root, one experiment in it, or one cell. Sorted by experiment and name.

    Where a cell has a folder and is published too, the folder counts as soon as it holds a result.

    Args:
        published: also the cells of the published sets that lie beside the runs of that root or experiment. A folder
            of such sets, or one of them, is itself a root or an experiment, and needs no asking.

    Raises RecordError where ``folder`` does not exist, PackedRecordsError where a published file is broken.
    """
    beside = published_beside(folder) if published else None
    if beside is not None and not (beside / PACKED).is_file():
        beside = None
    if not folder.is_dir():
        if (found := cell_at(folder)).is_packed:
            yield found
        elif beside is not None:
            yield from cells_of_experiment(folder, beside)
        else:
            raise RecordError(f"there is no folder {folder}; name a results folder, an experiment or a cell")
        return
    if os.path.lexists(folder / "cell.json"):
        yield cell_at(folder)
        return
    if beside is not None or os.path.isfile(folder / PACKED):
        yield from cells_of_experiment(folder, beside)
        return
    children = {entry.name for entry in os.scandir(folder) if _is_dir(entry) and not entry.name.startswith(".")}
    for name in sorted(children | set(published_sets(folder) if published else ())):
        if os.path.lexists(folder / name / "cell.json"):
            yield CellFolder(folder / name)
        elif not _ATTEMPT.fullmatch(name):
            yield from cells_of_experiment(folder / name, folder / PUBLISHED / name if published else None)


def published_sets(folder: Path) -> list[str]:
    """Names of the published sets that lie beside the runs of a results root, or of one experiment; sorted."""
    beside = published_beside(folder)
    if os.path.isfile(beside / PACKED):
        return [beside.name]
    with contextlib.suppress(OSError):
        found = sorted(entry.name for entry in os.scandir(folder / PUBLISHED) if _is_dir(entry))
        return [name for name in found if os.path.isfile(folder / PUBLISHED / name / PACKED)]
    return []


def _is_dir(entry: os.DirEntry[str]) -> bool:
    """Also of a link that leads nowhere, or to itself, and without asking the disk once more of any other entry."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def cells_of_experiment(folder: Path, beside: Path | None = None) -> Iterator[CellFolder]:
    """The cells of one experiment: in folders, in a published file among them, and in the published set ``beside``."""
    cells = {}
    with contextlib.suppress(FileNotFoundError):  # all of it is published
        cells = {
            entry.name: CellFolder(Path(entry.path))
            for entry in os.scandir(folder)
            if _is_dir(entry) and os.path.lexists(f"{entry.path}/cell.json")
        }
    for place in filter(None, (folder, beside)):
        if (packed := read_packed(place)) is None:
            continue
        names = {id_of(name): name for name in cells}
        for packed_name, files in packed.cells():
            name = names.get(id_of(packed_name))
            if name is not None and (cells[name].is_packed or os.path.lexists(folder / name / "status.json")):
                continue
            cells.pop(name or "", None)
            cells[packed_name] = CellFolder(place / packed_name, files)
    for name in sorted(cells):
        yield cells.pop(name)  # what has been looked at need not stay in memory
