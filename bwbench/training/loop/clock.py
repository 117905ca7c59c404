"""The training clock: monotonic, and still whenever something happens that is not training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bwbench.base import emulated_time


class TrainingClock:
    """Seconds of training since ``start``; evaluations and other held sections do not count. For one thread.

    Each rank has its own. All are started and held right after a barrier on the control path, so that they agree to
    within the time of such a barrier; nothing is sent to read them. Where the control path is the network that is
    measured, such a barrier takes none of its time: ``ControlPath.meet`` puts all of them forward to the last one's.

    Args:
        tally: a number that only grows; read where the clock stands, so that reading it takes no training time.

    Attributes:
        tallied: by how much it has grown while the clock ran, up to when the clock was last held.
    """

    def __init__(self, tally: Callable[[], int] = int) -> None:
        self._tally = tally
        self._tally_before = tally()
        self.tallied = 0
        self._zero_mono_s = emulated_time.monotonic()
        self._held_s = 0.0
        self._held_since_mono_s: float | None = None

    def start(self, at_s: float = 0.0, tallied: int = 0) -> float:
        """Let the clock go on from ``at_s`` and ``tallied``; returns the monotonic time of this moment."""
        emulated_time.forget_computed()
        self.tallied, self._tally_before = tallied, self._tally()
        self._held_s, self._held_since_mono_s = 0.0, None
        now = emulated_time.monotonic()
        self._zero_mono_s = now - at_s
        return now

    def now_s(self) -> float:
        """Training seconds so far."""
        now = self._held_since_mono_s if self._held_since_mono_s is not None else emulated_time.monotonic()
        return now - self._zero_mono_s - self._held_s

    def put_forward(self, to_s: float) -> None:
        """While it is held: show ``to_s``, unless that is earlier than what it shows."""
        assert self._held_since_mono_s is not None, "a clock that runs shows the time"
        self._zero_mono_s -= max(0.0, to_s - self.now_s())

    @contextmanager
    def held(self) -> Iterator[None]:
        """The clock stands still inside. May be nested."""
        if self._held_since_mono_s is not None:
            yield
            return
        self._held_since_mono_s = emulated_time.monotonic()
        self.tallied += self._tally() - self._tally_before
        try:
            yield
        finally:
            self._tally_before = self._tally()
            emulated_time.forget_computed()
            self._held_s += emulated_time.monotonic() - self._held_since_mono_s
            self._held_since_mono_s = None
