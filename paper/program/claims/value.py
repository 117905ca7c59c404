"""What a claim comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["ratio", "s", "bit/s", "bytes", "samples", "share", "points", "number", "h", "scale", "words"]


@dataclass(frozen=True)
class Value:
    """A number from records, with what must be said beside it.

    Attributes:
        value: None where it is known only to lie between ``low`` and ``high``, or where ``words`` stand for it.
        low, high: 95 % interval; None where there is none, or where it is open on that side.
        num: repeats, pairs, cells or probes that it rests on.
        bound: ``>`` where it is at least ``value``, ``<`` where at most.
        side: 1 where the interval lies above "no difference", -1 where below, 0 where it cannot be told. Of a
            crossover: 1 where the arm is faster below it, -1 where above.
        words: for values that are no numbers: a name, or why there is none.
        composed: whether composed cells are among those it rests on.
        num_censored: those of the repeats that did not reach the target.
        cells: ids of the cells it rests on, for whoever wants to look.
    """

    unit: Unit
    value: float | None
    num: int
    low: float | None = None
    high: float | None = None
    bound: str = ""
    side: int = 0
    words: str = ""
    composed: bool = False
    num_censored: int = 0
    cells: tuple[str, ...] = ()

    @property
    def has_interval(self) -> bool:
        """Whether at least one end of an interval is known."""
        return self.low is not None or self.high is not None
