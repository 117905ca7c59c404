"""Records as files: written so that a crash, a ``kill -9`` or a full disk leaves either the old content or the new one,
and read so that no file, whatever it is, can hang, flood or confuse the reader."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
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
_MOST_TORN = 8  # lines that a full disk has cut off
_LINE = re.compile(b"[^\n]+")
_BLOCK_BYTES = 1 << 22
_HOLES = 64
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe without a writer must not be waited for
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW  # nor a link that waits for us
LEAST_FREE_BYTES = 64 * 1024  # with less on the disk a worker's failure is most probably the disk's
_NOT_WRITABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.EEXIST,
    errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ESTALE,
)  # fmt: skip
_LIMITS = {
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "let the machine have more open files (sysctl fs.file-max)",
}
_OF_LIMITS = {"SIGXCPU": "allow more processor time (ulimit -t)", "SIGXFSZ": _LIMITS[errno.EFBIG]}
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

    Raises OSError where the disk is full or not writable, or where a pipe or a device has that name: /dev/stdout is to
    stay what it is. The old file is intact then and no partial one is left.
    """
    if os.path.exists(path) and (kind := _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))) is not None:
        raise OSError(errno.EEXIST, f"it is {kind}, which no file replaces", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(temporary, _WRITING, 0o666), "wb") as file:
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
    with _opened(path, most_bytes) as descriptor:
        return None if descriptor is None else _content(descriptor, most_bytes)


@contextlib.contextmanager
def _opened(path: str | Path, most_bytes: int) -> Iterator[int | None]:
    """A regular file's descriptor; None where it is missing. Raises RecordError as ``read_bytes`` does."""
    try:
        descriptor = os.open(path, _READING)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
            raise RecordError(f"{path}: is {kind}, where a record is a regular file; remove it")
        if found.st_size > most_bytes:
            size = f"{found.st_size / 1e6:.0f} MB, where a record has {most_bytes / 1e6:.0f} MB at most"
            raise RecordError(f"{path}: has {size}; {REMEDY}")
        yield descriptor
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    finally:
        os.close(descriptor)


def _content(descriptor: int, most_bytes: int) -> bytes:
    size = os.fstat(descriptor).st_size
    content = os.read(descriptor, size + 1)
    if len(content) == size:
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
    events: list[Event] = []
    torn: list[RecordError] = []
    for number, line in _lines(path):
        if torn and (_ERROR not in line or len(torn) > _MOST_TORN):
            raise torn[0]
        try:
            events.append(parse_event(line, f"{path}:{number}", REMEDY))
        except RecordError as error:
            torn.append(error)
    return events


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with its number, from 1 on.

    A block of them is in memory at once: a file of nothing but holes, or of newlines, has any length.
    """
    number, rest = 1, b""
    with _opened(path, MOST_EVENT_BYTES) as descriptor:
        while descriptor is not None and (block := os.read(descriptor, _BLOCK_BYTES)):
            text, after, rest = rest + block, 0, b""
            for line in _LINE.finditer(text):
                number += text.count(b"\n", after, line.start())
                after = line.start()
                if line.end() < len(text):
                    yield number, line[0]
                else:
                    rest = line[0]
            if after == 0 and len(text) > _LONGEST_LINE:
                raise RecordError(f"{path}:{number}: has no event in {len(text) / 1e6:.0f} MB; {REMEDY}")
            number += 0 if rest else text.count(b"\n", after)
    if rest:
        yield number, rest


def read_last_events(path: Path, tail_bytes: int = 1 << 18) -> list[Event]:
    """The whole events among the last ``tail_bytes`` of a file that may be written at this moment."""
    events = []
    for line in read_tail(path, tail_bytes).split(b"\n"):
        with contextlib.suppress(RecordError):  # the first and the last one may be cut
            events += [parse_event(line, path, REMEDY)] if line else []
    return events


def leads_out(path: Path, folder: Path) -> bool:
    """Whether ``path``, which lies below ``folder`` by its name, is or goes through a link to elsewhere, or nowhere."""
    try:
        return not path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return True


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


def full_of_holes(file: BinaryIO) -> bool:
    """Whether next to nothing of a long file lies on the disk: to read or copy it all would take for ever.

    A disk that compresses takes a thirtieth of it; one that knows no holes has none.
    """
    size, data, place = os.fstat(file.fileno()).st_size, 0, 0
    with contextlib.suppress(OSError):  # there is nothing but a hole behind
        while size > MOST_BYTES and _HOLES * data < size:
            begin = os.lseek(file.fileno(), place, os.SEEK_DATA)
            place = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            data += place - begin
    file.seek(0)
    return size > MOST_BYTES and _HOLES * data < size


def worker_met_limit(folder: Path, reason: str) -> str | None:
    """That a full disk or a limit of the machine has ended a worker, in words; None where neither did."""
    if not folder.is_dir():
        return _no_room(_vanished(folder), "bring it back, or choose another with --results")
    for code, remedy in _LIMITS.items():
        if os.strerror(code) in reason:
            return _no_room(f"{folder}: {os.strerror(code)}", remedy)
    for name, remedy in _OF_LIMITS.items():
        if f"was killed by {name}" in reason:
            return _no_room(f"{folder}: a worker {reason[reason.index('was killed') :].splitlines()[0]}", remedy)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes >= LEAST_FREE_BYTES and os.strerror(errno.ENOSPC) not in reason:
        return None
    return _no_room(f"{folder}: {free_bytes / 1e6:.1f} MB are free on its disk")


def _vanished(folder: Path) -> str:
    return f"{folder}: it was removed or unmounted while a cell ran"


def _no_room(what: str, remedy: str = "make room, or choose another folder with --results") -> str:
    return f"cannot write {what}. Cells that are done are kept; {remedy}, and run the same command again"


def machine_fault(error: OSError, folder: Path | None = None) -> str | None:
    """What a disk or a limit of the machine has refused, in words; None where the error is of another kind."""
    if folder is not None and error.errno == errno.ENOENT and not folder.exists():
        return _no_room(_vanished(folder), "bring it back, or choose another with --results")
    if error.errno not in _NOT_WRITABLE:
        return None
    if error.filename is None and folder is None:
        return f"cannot write the output: {error.strerror}; send it elsewhere, and run the same command again"
    what = f"{error.filename or folder}: {error.strerror}"
    return _no_room(what, _LIMITS[error.errno]) if error.errno in _LIMITS else _no_room(what)


@contextlib.contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """Turn a disk that is full, gone or not writable, and limits of the machine, into one clear message; what was
    recorded before stays."""
    try:
        yield
    except OSError as error:
        if (text := machine_fault(error, folder)) is None:
            raise
        raise UnfitMachineError(text) from error
