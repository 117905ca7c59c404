"""Checkpoints of a cell on disk: where they lie, which one can be gone on from, and how an attempt does so.

``attempt-N/checkpoint-<step>/{rank<r>.pt, rank<r>.json}``: the folder gets its name once every rank has written its
part, so that there is a whole checkpoint or none. What is inside ``rank<r>.pt`` is the worker's business.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.records.files import read_record, regular_file, sync_folder, write_bytes_atomic, write_record
from bwbench.records.schema import Carried, CheckpointHead, CheckpointPlace, Environment, Extent
from bwbench.records.store import CellFolder

_FOLDER = re.compile(r"checkpoint-(\d+)")
# A cell's clock belongs to one machine, and its steps to one program: what of environment.json has to be the same.
SAME = ("host", "cpu", "cores", "python", "bwbench", "packages", "source_sha256", "plugins_sha256", "virtual")


def _blocks(path: Path, num_bytes: int) -> Iterator[bytes]:
    """The first ``num_bytes`` of a file, in parts. Raises OSError."""
    with regular_file(path) as file:
        while num_bytes > 0 and (block := file.read(min(num_bytes, 1 << 20))):
            num_bytes -= len(block)
            yield block


def _extent_of(path: Path, num_bytes: int | None = None) -> Extent:
    """Of the first ``num_bytes`` of a file, of all of it by default. Raises OSError."""
    digest, found = hashlib.sha256(), 0
    for block in _blocks(path, os.path.getsize(path) if num_bytes is None else num_bytes):
        digest.update(block)
        found += len(block)
    return Extent(bytes=found, sha256=digest.hexdigest())


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, checked.

    Attributes:
        folder: where it lies.
        attempt: number of the attempt that took it.
        step, samples, clock_s: where training was.
        carried: what the launcher gave to be kept: traffic and times of the attempts up to here.
    """

    folder: Path
    attempt: int
    step: int
    samples: int
    clock_s: float
    carried: Carried
    num_ranks: int

    def begin(self, attempt: Path) -> None:
        """Let the records of a new attempt begin with the events up to the checkpoint. Raises OSError."""
        for rank in range(self.num_ranks):
            name, extent = f"rank{rank}.jsonl", _part(self.folder, rank).events
            with (attempt / name).open("xb") as target:
                target.writelines(_blocks(self.folder.parent / name, extent.bytes))
                target.flush()
                os.fsync(target.fileno())


class Refusal(Exception):  # noqa: N818 (no error: training then begins anew)
    """Why a checkpoint is not gone on from."""


def find_checkpoint(cell: Path, num_ranks: int, environment: Environment) -> tuple[Checkpoint | None, str | None]:
    """The newest checkpoint of a cell that can be gone on from, and why newer ones cannot; None where there is none.

    Args:
        cell: the cell's folder.
        environment: as it would be recorded now.
    """
    refused: list[str] = []
    for folder in _newest_first(cell):
        try:
            return _checked(folder, num_ranks, environment), "; ".join(refused) or None
        except (Refusal, OSError) as why:
            refused.append(f"{folder.name} of {folder.parent.name} is not used: {why}")
    return None, "; ".join(refused) or None


def write_rank(folder: Path, rank: int, state: memoryview, place: CheckpointPlace, events: Path) -> None:
    """One rank's part of a checkpoint: on disk when this returns.

    Args:
        folder: of the checkpoint while it is written; made where it is missing.
        state: content of ``rank<r>.pt``.
        place: where training is.
        events: this rank's records so far, on disk already.

    Raises OSError where the disk is full or not writable.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"rank{rank}.pt"
    write_bytes_atomic(path, state)
    head = CheckpointHead(rank=rank, **dict(place), state=_extent_of(path), events=_extent_of(events))
    write_record(folder / f"rank{rank}.json", head)


def complete(unfinished_folder: Path, step: int) -> Path:
    """Give a checkpoint its name, once all ranks have written their part; deletes older ones of its attempt."""
    attempt, folder = unfinished_folder.parent, unfinished_folder.with_name(f"checkpoint-{step}")
    unfinished_folder.replace(folder)
    sync_folder(attempt)
    for older in _of_attempt(attempt):
        if older != folder:
            shutil.rmtree(older, ignore_errors=True)
    return folder


def unfinished(attempt: Path, step: int) -> Path:
    """Where a checkpoint lies while it is written."""
    return attempt / f".checkpoint-{step}.unfinished"


def delete_checkpoints(cell: Path) -> None:
    """Delete all checkpoints of a cell; what cannot be deleted stays."""
    delete_unfinished(cell)
    for folder in _newest_first(cell):
        shutil.rmtree(folder, ignore_errors=True)


def delete_unfinished(cell: Path) -> None:
    """Delete what a killed process was about to write; nobody else may write checkpoints of this cell meanwhile."""
    for folder in filter(Path.is_dir, cell.glob("attempt-*/.checkpoint-*.unfinished")):
        shutil.rmtree(folder, ignore_errors=True)


def has_checkpoint(attempt: Path) -> bool:
    """Whether an attempt left a checkpoint, of whatever worth."""
    return bool(_of_attempt(attempt))


def _newest_first(cell: Path) -> Iterator[Path]:
    for attempt in reversed(CellFolder(cell).attempts if cell.is_dir() else []):
        yield from _of_attempt(attempt)


def _of_attempt(attempt: Path) -> list[Path]:
    """Checkpoints of one attempt, the one of the last step first."""
    found = {}
    with contextlib.suppress(OSError):
        entries = [(entry, _FOLDER.fullmatch(entry.name)) for entry in os.scandir(attempt)]
        found = {  # a link is not followed, and who would delete a pipe as a folder waits for a writer
            entry.name: int(match[1]) for entry, match in entries if match and entry.is_dir(follow_symlinks=False)
        }
    return [attempt / name for name in sorted(found, key=found.__getitem__, reverse=True)]


def _checked(folder: Path, num_ranks: int, environment: Environment) -> Checkpoint:
    """Raises Refusal with the reason."""
    _check_environment(folder.parent / "environment.json", environment)
    parts = [_part(folder, rank) for rank in range(num_ranks)]
    for key in ("step", "samples", "world_size", "carried"):
        values = [getattr(part, key) for part in parts]
        if any(value != values[0] for value in values):
            raise Refusal(f"its ranks differ in {key}: {', '.join(map(str, values))}")
    first = parts[0]
    if first.world_size != num_ranks:
        raise Refusal(f"it is of {first.world_size} nodes, and the cell has {num_ranks}")
    for rank, part in enumerate(parts):
        state, events = folder / f"rank{rank}.pt", folder.parent / f"rank{rank}.jsonl"
        for path, found, written in (
            (state, _extent_of(state), part.state),
            (events, _extent_of(events, part.events.bytes), part.events),
        ):
            if found != written:
                raise Refusal(f"{path.name} is not as it was written (truncated or changed)")
    return Checkpoint(
        folder=folder,
        attempt=int(folder.parent.name.rpartition("-")[2]),
        step=first.step,
        samples=first.samples,
        clock_s=max(part.clock_s for part in parts),
        carried=first.carried,
        num_ranks=num_ranks,
    )


def _part(folder: Path, rank: int) -> CheckpointHead:
    try:
        found = read_record(CheckpointHead, folder / f"rank{rank}.json")
    except RecordError as error:
        raise Refusal(f"rank{rank}.json is missing or not whole: {error}") from None
    if found is None:
        raise Refusal(f"rank{rank}.json is missing or not whole")
    return found


def _check_environment(file: Path, now: Environment) -> None:
    try:
        before = read_record(Environment, file)
    except RecordError as error:
        raise Refusal(f"its environment cannot be read: {error}") from None
    if before is None:
        raise Refusal("its environment.json is missing")
    values: list[tuple[object, object, str]] = [
        (before.git and before.git.commit, now.git and now.git.commit, "git commit"),
        *((getattr(before, key), getattr(now, key), key.replace("_", " ")) for key in SAME),
    ]
    for was, is_now, name in values:
        if was != is_now:
            raise Refusal(f"its {name} is {_brief(was)}, and now it is {_brief(is_now)}")


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in sorted(value.items())) or "None"
    text = str(value)
    return text[:12] if len(text) >= 40 else text
