"""Records small enough to be committed: what tables, figures and reports need of an experiment, in one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from bwbench.base.errors import ConfigError, PackedRecordsError, RecordError
from bwbench.records import CellFolder, iter_cells, read_record
from bwbench.records.checksums import SEAL, seal
from bwbench.records.files import leads_out
from bwbench.records.lock import locked
from bwbench.records.packed import (
    PACKED,
    PUBLISHED,
    PackedFiles,
    columns_of,
    published_beside,
    read_packed,
    write_packed,
)
from bwbench.records.schema import Json, JsonObject, PlanRecord, PublishedPlan
from bwbench.records.schema.record import refused_name
from bwbench.records.store import cells_of_experiment
from bwbench.results.analysis.cells import state_of
from bwbench.results.analysis.crossover import gradient_bytes_of
from bwbench.results.analysis.spent import runs_of
from bwbench.results.analysis.trial import digest_of

_LOG_CHARACTERS = 4000  # of one log's end: enough for a traceback, too little to fill a repository
_OF_THE_LINK_RUN = ("link", "environment")  # of composed.json; a cell that ran whole has its own


def entry_of(cell: CellFolder) -> JsonObject:
    """The content of a cell that has ended: its files as they stand, fields that this version ignores included.

    Raises RecordError where one of its records cannot be read.
    """
    if cell.problem is not None:
        raise cell.problem
    if isinstance(cell.files, PackedFiles):
        return cell.files.content
    entry: JsonObject = {"cell.json": cell.raw("cell.json"), "status.json": cell.raw("status.json")}
    if isinstance(composed := cell.raw("composed.json"), dict):
        entry["composed.json"] = _composed(composed, cell)
    if cell.composed is None:
        entry |= {"link.json": _slim(cell.raw("link.json"), cell), "environment.json": cell.raw("environment.json")}
        entry |= {"attempts": cell.num_attempts, "digest": _digest(cell), "logs": _logs(cell)}
    content = {key: _without_folders(value) for key, value in entry.items()}
    return {**content, SEAL: seal(content)}


def _without_folders(value: Json) -> Json:
    """Files of traces by their names alone: where they lay says nothing elsewhere; checksums tell them apart."""
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _without_folders(item) for key, item in value.items()}
    if isinstance(file := plain.get("file"), str) and "sha256" in plain:
        plain["file"] = PurePath(file).name
    return plain


def _composed(content: JsonObject, cell: CellFolder) -> JsonObject:
    kept = {**content, "curve": columns_of(content.get("curve"))}
    if cell.composed is not None:
        return {**kept, "link": _slim(content.get("link"), cell)}
    return {key: value for key, value in kept.items() if key not in _OF_THE_LINK_RUN}


def _digest(cell: CellFolder) -> JsonObject:
    """As composed.json holds it for a composed cell."""
    digest = digest_of(cell.events(), cell.link).model_copy(update={"gradient_bytes": gradient_bytes_of(cell)})
    return {**digest.to_json(), "curve": columns_of([point.to_json() for point in digest.curve])}


def _logs(cell: CellFolder) -> JsonObject:
    """Of a cell that is done the end of rank 0's log; of another one what ``bwbench show`` shows."""
    tails = cell.log_tails()
    if cell.status is not None and cell.status.status == "done":
        tails = {name: lines for name, lines in tails.items() if name == "rank0.log"}
    return {name: [*"\n".join(lines)[-_LOG_CHARACTERS:].splitlines()] for name, lines in tails.items()}


def _slim(link: Json, cell: CellFolder) -> Json:
    """link.json without what stands in the configuration, and without distributions and rejected measurements that no
    table reads."""
    if not isinstance(link, dict):
        return None
    slim = {key: _without_bulk(value) for key, value in link.items()}
    if slim.get("requested") == cell.cell.config.get("link"):
        del slim["requested"]
    return slim


def _without_bulk(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    bulky = ("lateness_histogram", "histogram", "rejected")
    return {key: _without_bulk(item) for key, item in value.items() if key not in bulky}


@dataclass(frozen=True)
class Published:
    """What became of one experiment.

    Attributes:
        path: of the file.
        num_cells: in it, of which ``num_undone`` ended otherwise than done.
        left_out: a line for each cell that is not in it, and why.
    """

    experiment: str
    path: Path
    num_cells: int
    num_undone: int
    num_bytes: int
    left_out: list[str] = field(default_factory=list)


def publish(folder: Path, out: Path | None = None) -> Iterator[Published]:
    """Write the published set of every experiment in ``folder``: a results folder, or one experiment.

    Args:
        out: folder for the sets, a folder in it each; by default ``published/`` in the results folder. A set that lies
            elsewhere already, in the experiment's own folder or as ``folder`` itself, is written where it is.

    Raises ConfigError where there is nothing to publish, RecordError where a file cannot be read or written.
    """
    experiments = _experiments(folder)
    if not experiments:
        hint = "name a results folder or one experiment in it, or make one with `bwbench run FILE`"
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")
    for experiment in experiments:
        try:
            target = _place_of(experiment) if out is None else out / experiment.name
            with locked(target):
                yield _publish(experiment, target)
        except OSError as error:
            raise RecordError(f"{error.filename or experiment}: {error.strerror or error}") from None


def _experiments(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; name a results folder or one experiment in it")
    if (folder / "cell.json").is_file():
        raise ConfigError(f"{folder} is a single cell; name the experiment that it belongs to: {folder.parent}")
    children = sorted(
        Path(entry.path)
        for entry in os.scandir(folder)
        if os.path.isdir(entry.path) and entry.name[0] != "." and entry.name != PUBLISHED
    )
    if (folder / PACKED).is_file() or any((child / "cell.json").is_file() for child in children):
        return [folder.resolve()]
    return [child for child in children if next(iter_cells(child), None) is not None]


def _place_of(experiment: Path) -> Path:
    """The folder of an experiment's published set. Raises ConfigError where a link leads there from elsewhere."""
    if (experiment / PACKED).is_file():
        return experiment
    place = published_beside(experiment)
    if any(os.path.lexists(part) and leads_out(part, experiment.parent) for part in (place.parent, place)):
        raise ConfigError(f"{place} is a link out of {experiment.parent}; remove it, or name a folder with --to")
    return place


def _publish(experiment: Path, target: Path) -> Published:
    entries, left_out, name, undone = {}, [], experiment.name, 0
    convergence: set[str] = set()
    cells = []
    for cell in cells_of_experiment(experiment, target):  # with those of the set that have no folder any more
        try:
            if cell.problem is None and cell.status is None:
                left_out.append(f"{cell.path.name}: {state_of(cell)}")
                continue
            if (why := refused_name(cell.path.name)) is not None:
                raise RecordError(f"{cell.path}: {why}; rename it")
            entries[cell.path.name] = entry_of(cell)
        except PackedRecordsError:
            raise
        except RecordError as error:
            left_out.append(str(error))
            continue
        name = cell.cell.experiment
        undone += state_of(cell) != "done"
        if (composed := cell.composed_beside) is not None:
            convergence.add(composed.convergence)
        cells.append(cell.cell)
    if not entries:
        raise ConfigError(f"{experiment}: none of its cells has ended; there is nothing to publish")
    before = read_packed(target) or read_packed(experiment)
    about = None
    try:
        if (plan := read_record(PlanRecord, experiment / "plan.json")) is not None:
            about = PublishedPlan(experiment=plan.experiment, order=plan.order)
    except RecordError as error:
        left_out.append(str(error))
    runs = runs_of((target, experiment), convergence, cells)
    path = write_packed(target, name, entries, runs, about or (before.plan if before else None))
    return Published(name, path, len(entries), undone, path.stat().st_size, left_out)
