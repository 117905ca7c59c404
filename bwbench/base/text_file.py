"""Reading a file that a user named, with a message for everything that it may turn out to be."""

from __future__ import annotations

import difflib
import stat
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem


def read_text_file(path: Path, max_bytes: int) -> str:
    """The text in ``path``; raises ConfigError where there is none to be had."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{path} is a folder; name an experiment file (YAML) in it")
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is no regular file; name an experiment file (YAML)")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.{_near_files(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL inside the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if b"\0" in content:
        raise ConfigError(f"{path} is not a text file: it contains NUL bytes; name an experiment file (YAML)")
    if len(content) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes // 1024} KiB: no experiment is that long")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: is this a text file? Save it as UTF-8"
        raise ConfigError(Problem(message, str(path), line)) from None


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f" There is no folder {path.parent} either"
    try:
        names = [entry.name for entry in path.parent.glob("[!.]*.y*ml")]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f" Did you mean {str(path.parent / near[0])!r}?"
    return f" Experiment files there: {', '.join(sorted(names)[:20])}" if names else " There is no YAML file there"
