"""Padding each step to a declared duration, so that nodes that share cores look like devices of a stated speed."""

from __future__ import annotations

import statistics
import time
from collections import deque

REMEMBERED_STEPS = 21  # enough for a steady median, few enough to follow a machine that slows down


class Pacer:
    """Sleeps before the last backward pass of a step.

    There, and not at the end of the step: gradients then appear at the same pace as on the slower device that is
    imitated, and communication overlaps with the backward pass as it would there. What backward and optimizer will
    take is the median of the steps before.
    """

    def __init__(self, step_time_s: float | None) -> None:
        self._step_time_s = step_time_s
        self._tails_s: deque[float] = deque(maxlen=REMEMBERED_STEPS)

    def observe(self, tail_s: float) -> None:
        """Take in what a step computed after its padding: backward and optimizer, without any waiting."""
        self._tails_s.append(tail_s)

    def missing_s(self, elapsed_s: float) -> float:
        """How long to sleep in a step that has taken ``elapsed_s`` so far; 0 where no step time is declared."""
        if self._step_time_s is None:
            return 0.0
        tail_s = statistics.median(self._tails_s) if self._tails_s else 0.0
        return max(0.0, self._step_time_s - elapsed_s - tail_s)

    def pad(self, elapsed_s: float) -> None:
        """Sleep for what is missing."""
        missing_s = self.missing_s(elapsed_s)
        if missing_s > 0.0:
            time.sleep(missing_s)
