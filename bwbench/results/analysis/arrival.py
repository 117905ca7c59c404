"""One repeat's time to the target, with what the grid of evaluations leaves open, or the limit it exceeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsFloat, cast

COLUMNS = (
    "seed", "time_to_target_s", "censored_at_s", "timing_share",
    "evaluate_every_samples", "samples_to_target", "global_batch",
)  # fmt: skip
"""Those of ``cells.cell_row`` that an arrival is made of."""
SHORTEST_TIME_S = 1e-6  # stands for 0 s (a target met before the first step), which has no logarithm


@dataclass(frozen=True)
class Arrival:
    """One repeat's time to the target, or the limit at which it was given up. Exactly one of the two is set.

    Attributes:
        time_s: training clock at the first evaluation that met the target.
        grid_s: training clock between that evaluation and the one before: the target was reached somewhere in between.
            0 where nothing is known of it.
        timing_share: standard error that all repeats share, as a share of the time: of the timing run that composed
            values rest on. 0 for cells that ran whole.
    """

    time_s: float | None
    censored_at_s: float | None = None
    grid_s: float = 0.0
    timing_share: float = 0.0

    @property
    def or_infinity(self) -> float:
        """The time; infinity where the target was not reached."""
        return math.inf if self.time_s is None else max(self.time_s, SHORTEST_TIME_S)

    @property
    def at_least(self) -> float:
        """The time, or the limit that it is known to exceed."""
        if self.time_s is not None:
            return self.or_infinity
        return math.inf if self.censored_at_s is None else self.censored_at_s

    @property
    def middle_s(self) -> float:
        """The middle between the two evaluations: what is to be expected, where ``time_s`` is the latest possible."""
        return max(self.or_infinity - min(self.grid_s, self.or_infinity) / 2, SHORTEST_TIME_S)

    @property
    def grid_share(self) -> float:
        """Width of the interval between the two evaluations as a share of ``middle_s``; 0 for a censored repeat."""
        return 0.0 if self.time_s is None else min(self.grid_s, self.or_infinity) / self.middle_s

    @property
    def evaluation(self) -> int:
        """Which evaluation it was, counted in intervals; 0 where the grid is not known."""
        return round(self.or_infinity / self.grid_s) if self.time_s is not None and self.grid_s > 0 else 0


def by_seed(rows: Iterable[Mapping[str, object]]) -> dict[int, Arrival]:
    """Each seed's time to the target, or the limit it is censored at. Cells without either are left out.

    Args:
        rows: of ``cells.cell_row``; COLUMNS of them suffice.
    """
    found: dict[int, Arrival] = {}
    for row in rows:
        arrival, seed = arrival_of(row), int(number(row["seed"]) or 0)
        if arrival is None:
            continue
        known = found.get(seed)  # one node alone may stand there twice, under unlike training limits
        if known is None or _says_more(arrival, known):
            found[seed] = arrival
    return found


def _says_more(one: Arrival, known: Arrival) -> bool:
    """Whether ``one`` is to stand for a seed: a time before a limit, the higher limit before the lower one.

    Of two times the first stands, whatever they are: taking the shorter one would flatter.
    """
    if known.time_s is not None:
        return False
    return one.time_s is not None or one.at_least > known.at_least


def arrival_of(row: Mapping[str, object]) -> Arrival | None:
    """The arrival in one cell's row; None where the cell has neither a time nor a limit."""
    time_s, limit_s = number(row.get("time_to_target_s")), number(row.get("censored_at_s"))
    if time_s is None:
        return None if limit_s is None else Arrival(None, limit_s)
    return Arrival(time_s, None, _grid_s(row, time_s), number(row.get("timing_share")) or 0.0)


def _grid_s(row: Mapping[str, object], time_s: float) -> float:
    """Training clock of the last interval between evaluations, taken as its share of all samples until the target.

    Evaluations stand at the first step after every multiple of the interval: their distance is at least a step.
    """
    every, samples = number(row.get("evaluate_every_samples")), number(row.get("samples_to_target"))
    if every is None or not samples:
        return 0.0
    return time_s * min(1.0, max(every, number(row.get("global_batch")) or 0.0) / samples)


def number(value: object) -> float | None:
    """``value`` as a float; None where it is missing or, in a table of pandas, NaN."""
    if value is None:
        return None
    found = float(cast(SupportsFloat, value))
    return None if math.isnan(found) else found
