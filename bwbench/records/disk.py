"""A disk that is full or not writable, in words."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bwbench.base.errors import UnfitMachineError

LEAST_FREE_BYTES = 64 * 1024  # with less on the disk a worker's failure is most probably the disk's
_NOT_WRITABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip


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
