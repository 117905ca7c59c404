"""How the agent tells the relay that time-varying things begin: one word of memory that both share."""

from __future__ import annotations

import mmap
import time
from typing import Protocol

_STEADY = 0


class _Player(Protocol):
    def play(self, since_s: float) -> None: ...

    def hold(self, now_s: float) -> None: ...


class Playback:
    """Written by the agent, read by the relay in every turn of its loop: hence a word and no message.

    The word holds the time at which the link began to play (CLOCK_MONOTONIC in ns; negative where that was before the
    machine started, as after an interruption), 0 while it is steady. So it does
    not matter how late the relay notices, and a second ``play`` is noticed as well.
    """

    def __init__(self) -> None:
        self._word = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
        self._obeyed_ns = _STEADY

    def play(self, at_s: float = 0.0) -> None:
        """In the agent: what varies is ``at_s`` after its begin now."""
        self._word[0] = time.monotonic_ns() - round(at_s * 1e9) or 1

    def hold(self) -> None:
        """In the agent: the link is steady again."""
        self._word[0] = _STEADY

    def obey(self, player: _Player) -> None:
        """In the relay: pass on what the agent has said since the last call. Cheap where it has said nothing."""
        since_ns = self._word[0]
        if since_ns == self._obeyed_ns:
            return
        self._obeyed_ns = since_ns
        if since_ns == _STEADY:
            player.hold(time.monotonic())
        else:
            player.play(since_ns * 1e-9)
