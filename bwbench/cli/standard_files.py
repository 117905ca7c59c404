"""The three files that a program is started with, made such that whatever they are does no harm."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def mend_standard_files() -> None:
    """Open those that are closed, so that no socket gets their numbers; messages that nobody can take end nothing.

    A terminal that is gone, or a full disk under ``2> file``, is no reason to lose the cell that trains. Data on
    standard output is another thing: where that cannot be written, the command fails.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is sys.__stderr__:  # else somebody who calls us has put a stream of their own there
        raw = _Lossy(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.getdefaultencoding(), "backslashreplace", None, True, True
        )


class _Lossy(io.FileIO):
    """A file that takes everything, whether it can keep it or not."""

    def write(self, content: ReadableBuffer, /) -> int:
        """As much as can be written."""
        try:
            return super().write(content) or 0
        except BlockingIOError:
            raise
        except OSError:
            return memoryview(content).nbytes
