"""Files of data that a link or a node names: found, told from what is none, and read as text.

Pipes, devices and folders are refused before they are opened, so that nothing waits for ever.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem

_COMPRESSED = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open))


@dataclass(frozen=True)
class FileKind:
    """What a file is to be, for messages.

    Attributes:
        name: a noun, such as ``trace``.
        forms: what such a file may hold.
        max_bytes: hardly any is longer, decompressed or not.
        where: where to look, or how to get one, where there is none and no name is near.
        shorten: what to do about one that is longer.
    """

    name: str
    forms: str
    max_bytes: int
    where: str
    shorten: str


def absolute_path(file: str, folder: Path) -> str:
    """A name as the user wrote it, against the folder of the file in which it stands."""
    with contextlib.suppress(ValueError):  # a NUL behind ~; an unknown user's folder stays as it is written
        file = os.path.expanduser(file)
    return os.path.abspath(os.path.join(folder, file))


def file_version(path: str, shown: str, kind: FileKind) -> tuple[int, ...]:
    """What changes when a file does.

    Args:
        shown: its name in messages.

    Raises ConfigError where there is no such file, or where it is none.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise ConfigError(f"{kind.name} {shown}: no such file.{_near(path, shown, kind)}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL inside the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{kind.name} {shown}: cannot be read: {reason}") from None
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ConfigError(f"{kind.name} {shown}: is {what}; name a file with {kind.forms}")
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _near(path: str, shown: str, kind: FileKind) -> str:
    folder, name = os.path.split(path)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
    except (OSError, ValueError):
        return f" There is no folder {folder}, either; is the path right?"
    if near:
        return f" Did you mean {os.path.join(os.path.dirname(shown), near[0])!r}?"
    return f" {kind.where}"


def text_of(path: str, shown: str, kind: FileKind) -> tuple[str, str]:
    """The text in a file, decompressed where it is compressed, and the SHA-256 of the file as it lies there.

    Args:
        path: of a regular file, as ``file_version`` tells.
        shown: its name in messages.

    Raises ConfigError where it cannot be read, or is no text.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(kind.max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{kind.name} {shown}: cannot be read: {error.strerror}") from None
    if len(raw) > kind.max_bytes:
        raise _too_large(shown, kind)
    return _text(raw, shown, kind), hashlib.sha256(raw).hexdigest()


def _too_large(shown: str, kind: FileKind) -> ConfigError:
    message = f"larger than {kind.max_bytes >> 20} MiB: no {kind.name} is that long; {kind.shorten}"
    return ConfigError(Problem(message, shown))


def _text(raw: bytes, shown: str, kind: FileKind) -> str:
    content = raw
    for magic, opened in _COMPRESSED:
        if raw.startswith(magic):
            try:
                with opened(io.BytesIO(raw)) as file:
                    content = file.read(kind.max_bytes + 1)
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise ConfigError(Problem(f"is compressed, and damaged or cut off: {error}", shown)) from None
    if len(content) > kind.max_bytes:
        raise _too_large(shown, kind)
    if not content.strip():
        raise ConfigError(Problem(f"the file is empty; a {kind.name} has {kind.forms}", shown))
    if b"\0" in content:
        message = f"is no text file: it contains NUL bytes; a {kind.name} has {kind.forms}"
        raise ConfigError(Problem(message, shown))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: is this a text file?"
        raise ConfigError(Problem(message, shown, line)) from None
