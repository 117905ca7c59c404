"""Signals that end a command as Ctrl-C does.

A signal that was ignored when the process began stays ignored: so ``nohup`` asks for SIGHUP, and a shell for SIGINT of
what it starts in the background.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 10.0  # longer than a cell takes to end on this machine
STDERR = 2
_BEING_ENDED = b"\nending already: what runs is being stopped and recorded (Ctrl-\\ ends at once, without a record)\n"


def handle(numbers: Iterable[int], handler: Handler) -> None:
    """Have ``handler`` called for these signals, those left out that are ignored."""
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt() -> None:
    raise KeyboardInterrupt


class Interruption:
    """Makes a KeyboardInterrupt of a signal; what comes within ``PATIENCE_S`` after it is the same wish.

    An exception in the midst of a ``finally`` would leave the rest of it undone, and ``timeout -s INT`` and a
    terminal's hang-up send their signal twice within a millisecond. Later ones interrupt whatever the ending waits for.

    Args:
        interrupt: what is done instead of raising.
    """

    def __init__(self, interrupt: Callable[[], object] = _interrupt) -> None:
        self._interrupt = interrupt
        self._asked_s = -float("inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if time.monotonic() - self._asked_s < PATIENCE_S:
            with contextlib.suppress(OSError):  # not print: it may be what has been interrupted
                os.write(STDERR, _BEING_ENDED)
            return
        self._asked_s = time.monotonic()
        self._interrupt()
