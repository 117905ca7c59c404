"""Records as files: written so that a crash, a ``kill -9`` or a full disk leaves either the old content or the new one,
and read so that no file, whatever it is, can hang, flood or confuse the reader."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from bwbench.base.errors import RecordError, UnfitMachineError
from bwbench.records.schema.events import Event, parse_event
from bwbench.records.schema.record import R, Record, refusal

MOST_BYTES = 64 << 20  # of one document: a link of 250 nodes takes 100 kB
MOST_EVENT_BYTES = 2 << 30  # of one rank's events: some five million steps
REMEDIES = {
    "cell.json": "delete the folder to plan it anew",
    "status.json": "get it anew, or delete it to run the cell again",
}
REMEDY = "get it anew, or delete the cell's folder to run it again"
_LONGEST_LINE = 1 << 20  # of an event; the start of a model of very many buckets
_ERROR = b'"event":"error"'  # as ``dump_line`` writes it
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe without a writer must not be waited for
LEAST_FREE_BYTES = 64 * 1024  # with less on the disk a worker's failure is most probably the disk's
_NOT_WRITABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}


def write_record(path: Path, record: Record) -> None:
    """Write a record as ``write_json_atomic`` does."""
    write_json_atomic(path, record.to_json())


def write_json_atomic(path: Path, content: object, *, sync: bool = True) -> None:
    """Write ``content`` as JSON as ``write_bytes_atomic`` does."""
    text = json.dumps(content, indent=1, allow_nan=False)
    write_bytes_atomic(path, f"{text}\n".encode(), sync=sync)


def write_bytes_atomic(path: Path, content: bytes | memoryview, *, sync: bool = True) -> None:
    """Write a file by rename: readers see the old one or the whole new one.

    With ``sync`` that holds for a machine that loses its power as well; it waits for the disk.

    Raises OSError where the disk is full or not writable; the old file is intact then and no partial one is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has what was made, renamed or deleted in a folder."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_record(model: type[R], path: str | Path) -> R | None:
    """The record in a file; None where there is none.

    Raises RecordError, which says what is wrong and what to do, where the file is no such record.
    """
    content = read_bytes(path)
    if content is None:
        return None
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise refusal(error, model, path, REMEDIES.get(os.path.basename(path), REMEDY)) from None


def read_bytes(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes | None:
    """Content of a regular file; None where it is missing.

    Raises RecordError where it is no regular file, has more than ``most_bytes``, or cannot be read.
    """
    try:
        descriptor = os.open(path, _READING)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    try:
        return _content(descriptor, path, most_bytes)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    finally:
        os.close(descriptor)


def _content(descriptor: int, path: str | Path, most_bytes: int) -> bytes:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise RecordError(f"{path}: is {kind}, where a record is a regular file; remove it")
    if found.st_size > most_bytes:
        size = f"{found.st_size / 1e6:.0f} MB, where a record has {most_bytes / 1e6:.0f} MB at most"
        raise RecordError(f"{path}: has {size}; {REMEDY}")
    content = os.read(descriptor, found.st_size + 1)
    if len(content) == found.st_size:
        return content
    blocks, left = [content], most_bytes - len(content)  # it grows meanwhile, or is larger than one read gives
    while left > 0 and (block := os.read(descriptor, min(left, 1 << 24))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def read_json(path: str | Path) -> Any | None:
    """Content of a JSON file that is no record; None where it is missing or not (yet) whole."""
    try:
        return json.loads(read_bytes(path) or b"")
    except (RecordError, ValueError, RecursionError):
        return None


def _json_number(value: object) -> object:
    """``value`` with NaN and infinities as None: JSON has no word for them, and a diverged run is full of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _json_number(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_number(item) for item in value]
    return value


def dump_line(content: Mapping[str, object]) -> str:
    """One line of JSON, newline included; non-finite numbers become null."""
    return json.dumps(_json_number(content), separators=(",", ":")) + "\n"


class EventWriter:
    """Append-only file of events, a line of JSON each.

    Events are kept in memory until ``flush``, so that writing costs no time on the training clock.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._pending: list[Event] = []
        self._torn = False

    def write(self, event: Event) -> None:
        """Keep ``event`` for the next flush."""
        self._pending.append(event)

    def flush(self) -> None:
        """Hand everything kept so far to the operating system. Raises OSError on a full disk."""
        lines = "".join(dump_line(event.to_json()) for event in self._pending)
        self._pending.clear()
        begun, self._torn = self._torn, True
        self._file.write("\n" + lines if begun else lines)  # what could not be written whole stays a line of its own
        self._file.flush()
        self._torn = False

    def sync(self) -> None:
        """Flush, then wait until the disk has it."""
        self.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if not self._file.closed:
            self.sync()
            self._file.close()


def read_events(path: Path) -> list[Event]:
    """All events of a file; a missing file has none.

    A torn line is left out: the last one (a killed writer), or one behind which an error alone is told (a full disk).

    Raises RecordError where another line is no event.
    """
    lines = (read_bytes(path, MOST_EVENT_BYTES) or b"").split(b"\n")
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events += [parse_event(line, f"{path}:{number}", REMEDY)] if line else []
        except RecordError:
            if not all(_ERROR in behind for behind in lines[number:] if behind):
                raise
    return events


def read_last_events(path: Path, tail_bytes: int = 1 << 18) -> list[Event]:
    """The whole events among the last ``tail_bytes`` of a file that may be written at this moment."""
    events = []
    for line in read_tail(path, tail_bytes).split(b"\n"):
        with contextlib.suppress(RecordError):  # the first and the last one may be cut
            events += [parse_event(line, path, REMEDY)] if line else []
    return events


def read_tail(path: Path, tail_bytes: int) -> bytes:
    """The end of a file; empty where it is no regular file, or cannot be read."""
    with contextlib.suppress(OSError), regular_file(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - tail_bytes))
        return file.read(tail_bytes)
    return b""


def read_first_event(path: Path) -> Event | None:
    """The first event, the only line that is read of a file that may be long; None where there is none that fits."""
    try:
        with regular_file(path) as file:
            return parse_event(file.readline(_LONGEST_LINE), path, REMEDY)
    except (OSError, RecordError):
        return None


def regular_file(path: Path) -> BinaryIO:
    """A regular file, open; raises OSError where it is none."""
    file = os.fdopen(os.open(path, _READING), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return file


def worker_met_full_disk(folder: Path, reason: str) -> str | None:
    """That a worker met a full disk, in words; None where it did not."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes >= LEAST_FREE_BYTES and os.strerror(errno.ENOSPC) not in reason:
        return None
    return _no_room(f"{folder}: {free_bytes / 1e6:.1f} MB are free on its disk")


def _no_room(what: str) -> str:
    return (
        f"cannot write {what}. Cells that are done are kept; make room, or choose another folder with --results, and "
        "run the same command again"
    )


@contextlib.contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """Turn a disk that is full or not writable into one clear message; what was recorded before stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise UnfitMachineError(_no_room(f"{error.filename or folder}: {error.strerror}")) from error
