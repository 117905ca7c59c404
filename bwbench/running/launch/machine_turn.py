"""One cell at a time on a machine: two would take each other's processors, and both their times be wrong."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bwbench.base.errors import UnfitMachineError

SHARE = "BWBENCH_SHARE_MACHINE"  # in the environment, not empty: whoever sets it accepts that times disturb each other
LIMIT_S = 48 * 3600.0  # another sweep may well take a day
_LOCK = "bwbench-machine.lock"
_NEXT = "bwbench-next.lock"  # held by who comes next: a sweep that has just ended a cell gets behind it
_LOOK_S = 0.2


@contextlib.contextmanager
def machine_turn(waits: Callable[[], None], limit_s: float = LIMIT_S) -> Iterator[None]:
    """Hold the machine: of all who ask on it, whichever their user, one at a time gets on. Dies with its holder.

    Args:
        waits: called once where another process has to be waited for.

    Raises UnfitMachineError after ``limit_s``.
    """
    folder = Path(tempfile.gettempdir())
    deadline, told = time.monotonic() + limit_s, False

    def take(descriptor: int) -> None:
        """Return once the lock is ours; the limit is one for both locks."""
        nonlocal told
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
                text = f"another bwbench has been running cells on this machine for {limit_s / 3600:.0f} h"
                hint = f"is it stopped? End it, or run beside it with {SHARE}=1 in the environment"
                raise UnfitMachineError(f"{text}; {hint}")
            time.sleep(_LOOK_S)

    with contextlib.ExitStack() as held:
        machine = None if os.environ.get(SHARE) else _open(folder / _LOCK, held)
        if machine is not None:
            with contextlib.ExitStack() as queue:
                if (in_front := _open(folder / _NEXT, queue)) is not None:
                    take(in_front)
                take(machine)
        yield


def _open(path: Path, held: contextlib.ExitStack) -> int | None:
    """A descriptor to lock, of a file that any user may have made; None where there can be none."""
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        try:  # not created where it is there: the kernel forbids that in /tmp to all but the file's owner
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError:
            continue
        held.callback(os.close, descriptor)
        return descriptor
    return None
