"""One cell at a time on a machine: two would take each other's processors, and both their times be wrong."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bwbench.errors import UnfitMachineError

SHARE = "BWBENCH_SHARE_MACHINE"  # in the environment, not empty: whoever sets it accepts that times disturb each other
LIMIT_S = 48 * 3600.0  # another sweep may well take a day
_LOOK_S = 0.2


@contextlib.contextmanager
def machine_turn(waits: Callable[[], None], limit_s: float = LIMIT_S) -> Iterator[None]:
    """Hold the machine: of all who ask on it, whichever their user, one at a time gets on. Dies with its holder.

    Args:
        waits: called once where another process has to be waited for.

    Raises UnfitMachineError after ``limit_s``.
    """
    descriptor = None if os.environ.get(SHARE) else _open(Path(tempfile.gettempdir()) / "bwbench-machine.lock")
    if descriptor is None:
        yield
        return
    try:
        _take(descriptor, waits, limit_s)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, waits: Callable[[], None], limit_s: float) -> None:
    deadline, told = time.monotonic() + limit_s, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        if not told:
            waits()
            told = True
        if time.monotonic() > deadline:
            text = f"another bwbench has been running cells on this machine for {limit_s / 3600:.0f} h; is it stopped?"
            raise UnfitMachineError(f"{text} End it, or run beside it with {SHARE}=1 in the environment")
        time.sleep(_LOOK_S)


def _open(path: Path) -> int | None:
    """A descriptor to lock, of a file that any user may have made; None where there can be none."""
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        try:  # not created where it is there: the kernel forbids that in /tmp to all but the file's owner
            return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError:
            continue
    return None
