"""What timing runs of one cell differ by, and what that leaves open: for composed cells and for any other table.

The steps of a run vary little among themselves and much from one run to the next: where the kernel put the processes,
how the connections began, what else the machine did. A few dozen steps of one run tell nothing of that, and no seed
does, since all seeds of a cell share its timing runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.results.analysis.student import student_t

NORMAL_95 = 1.959964  # half-width of a 95 % interval in standard deviations, were the deviation known

Interval = tuple[float, float]


@dataclass(frozen=True)
class RunTimes:
    """The time of one composed run, once by each of its timing runs.

    Attributes:
        times_s: seconds; 0 only where nothing was trained.
        intervals_s: 95 % interval of each, for the chance in the steps that were timed; None where nothing varies.
        pilot: how many of them, the first ones, count for what runs differ by: where that has said how many there are,
            one that is computed anew from all of them is too small too often (Stein 1945). None: all.
    """

    times_s: Sequence[float]
    intervals_s: Sequence[Interval | None]
    pilot: int | None = None

    @property
    def between_share(self) -> float | None:
        """Variance of the logarithm of the time from run to run; None with one run."""
        logs = self._logs[: self.pilot]
        return statistics.variance(logs) if len(logs) > 1 else None

    @property
    def within_share(self) -> float | None:
        """Standard error that the chance in the timed steps leaves in the mean of all runs; None with one run."""
        logs = self._logs
        if len(logs) < 2:
            return None
        errors = [log_error(interval, time_s) for interval, time_s in zip(self.intervals_s, self.times_s, strict=True)]
        return math.sqrt(statistics.fmean(error**2 for error in errors) / len(errors))

    @property
    def interval_s(self) -> Interval | None:
        """95 % interval of what one more run would take; None where nothing varies.

        With one timing run its own. With k of them Student's t on k - 1 degrees of freedom (of a pilot on its own),
        with the run that it is of as one more draw: s * sqrt(1 + 1/k). What the chance in the steps adds is in s
        already, as far as it is not smaller than s by luck: then it stands beside it.
        """
        between, within = self.between_share, self.within_share
        if between is None or within is None:
            return self.intervals_s[0] if len(self.times_s) == 1 else None
        logs = self._logs
        spread = student_t(len(logs[: self.pilot]) - 1) * math.sqrt(between * (1 + 1 / len(logs)))
        half = math.hypot(spread, NORMAL_95 * within)
        centre = statistics.fmean(logs)
        return (math.exp(centre - half), math.exp(centre + half)) if half > 0 else None

    @property
    def _logs(self) -> list[float]:
        return [math.log(time_s) for time_s in self.times_s] if min(self.times_s, default=0.0) > 0 else []


def log_error(interval_s: Interval | None, time_s: float | None) -> float:
    """Standard error of a time as a share of it, by its 95 % interval; 0 where nothing is known of it."""
    if interval_s is None:
        return 0.0
    low, high = interval_s
    if low <= 0 < high and time_s:  # so wide that it was cut off at 0: no lower than it is high
        low = time_s**2 / high
    return math.log(high / low) / (2 * NORMAL_95) if 0 < low <= high else 0.0
