"""How the agent tells the relay that time-varying things begin: two words of memory that both share."""

from __future__ import annotations

import mmap
import time
from typing import Protocol

_STEADY = 0


class _Player(Protocol):
    def play(self, now_s: float, at_s: float) -> None: ...

    def hold(self, now_s: float) -> None: ...


class Playback:
    """Written by the agent, read by the relay in every turn of its loop: hence two words and no message.

    The first holds the time at which the agent said ``play`` (CLOCK_MONOTONIC in ns), 0 while the link is steady. So it
    does not matter how late the relay notices, and a second ``play`` is noticed as well. The second, written before it,
    says how far what varies had got by then (ns).
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._obeyed_ns = _STEADY

    def play(self, at_s: float = 0.0) -> None:
        """In the agent: what varies is ``at_s`` after its begin now."""
        self._words[1] = round(at_s * 1e9)
        self._words[0] = time.monotonic_ns()

    def hold(self) -> None:
        """In the agent: the link is steady again."""
        self._words[0] = _STEADY

    def obey(self, player: _Player) -> None:
        """In the relay: pass on what the agent has said since the last call. Cheap where it has said nothing."""
        said_ns = self._words[0]
        if said_ns == self._obeyed_ns:
            return
        self._obeyed_ns = said_ns
        if said_ns == _STEADY:
            player.hold(time.monotonic())
        else:
            player.play(said_ns * 1e-9, self._words[1] * 1e-9)
