"""Ctrl-C and its like while an interface is being changed: they wait for a moment at which nothing is half done."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType

_POLL_S = 0.05


class DeferredInterrupts:
    """A context manager in which SIGINT, SIGTERM and SIGHUP are noted instead of raised.

    An exception in the midst of a talk with the kernel leaves its answers unread, and pyroute2 turns it into errors of
    its own (a KeyError, say). All that is done here has limits of its own; who asks a second time is heard at once.

    Attributes:
        asked: whether there was such a signal.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def __enter__(self) -> DeferredInterrupts:
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:  # as `nohup` and background jobs of a shell have them
                signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, limit_s: float) -> bool:
        """Let a time pass; True, at once, after such a signal."""
        end_s = time.monotonic() + limit_s
        while not self.asked and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))
        return self.asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
