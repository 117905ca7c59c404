"""An attempt as one block of bytes: how a machine that does not see the results folder brings back what it recorded."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

COMPRESSION = 1  # records are text that shrinks eightfold at the lowest level; the machine has other work to do


def pack(attempt: Path) -> bytes:
    """The folder of an attempt as a compressed tar, under its own name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=COMPRESSION) as archive:
        archive.add(attempt, arcname=attempt.name)
    return buffer.getvalue()


def unpack(bundle: bytes, cell_folder: Path) -> None:
    """Put what ``pack`` made into the cell's folder.

    Links and paths that lead out of the folder are refused (tarfile's ``data`` filter). Raises OSError where the disk
    is full or not writable, tarfile.TarError where the bundle is broken.
    """
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as archive:
        archive.extractall(cell_folder, filter="data")
