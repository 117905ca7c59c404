"""Writing files so that a crash, a ``kill -9`` or a full disk leaves either the old content or the new one."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

SCHEMA = 1  # of every file in a result folder; docs/results-format.md has the history


def write_json_atomic(path: Path, content: Any, sync: bool = True) -> None:
    """Write ``content`` as JSON by rename: readers see the old file or the whole new one.

    With ``sync`` that holds for a machine that loses its power as well; it waits for the disk.

    Raises OSError where the disk is full or not writable; the old file is intact then and no partial one is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
            file.write("\n")
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


def read_json(path: Path) -> Any | None:
    """Content of a JSON file; None where it is missing or not (yet) whole."""
    try:
        with open(path, "rb", buffering=0) as file:  # half the time of a text file, and there are tens of thousands
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def _finite(value: Any) -> Any:
    """``value`` with NaN and infinities as None: JSON has no word for them, and a diverged run is full of them."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def dump_line(event: dict[str, Any]) -> str:
    """One event as one line of JSON, newline included; non-finite numbers become null."""
    return json.dumps(_finite(event), separators=(",", ":")) + "\n"


class EventWriter:
    """Append-only file of JSON lines.

    Events are kept in memory until ``flush``, so that writing costs no time on the training clock.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._pending: list[dict[str, Any]] = []

    def write(self, event: dict[str, Any]) -> None:
        """Keep ``event`` for the next flush; it must not be changed afterwards."""
        self._pending.append(event)

    def flush(self) -> None:
        """Hand everything kept so far to the operating system. Raises OSError on a full disk."""
        lines = "".join(dump_line(event) for event in self._pending)
        self._pending.clear()
        self._file.write(lines)
        self._file.flush()

    def sync(self) -> None:
        """Flush, then wait until the disk has it."""
        self.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if not self._file.closed:
            self.sync()
            self._file.close()


def read_events(path: Path) -> list[dict[str, Any]]:
    """All whole events of a file of JSON lines; a torn last line (a killed writer) is left out."""
    try:
        return _events(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except FileNotFoundError:
        return []


def read_last_events(path: Path, tail_bytes: int = 1 << 18) -> list[dict[str, Any]]:
    """The whole events among the last ``tail_bytes`` of a file that may be written at this moment."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - tail_bytes))
            return _events(file.read().decode("utf-8", errors="replace").splitlines())
    except FileNotFoundError:
        return []


def _events(lines: list[str]) -> list[dict[str, Any]]:
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
