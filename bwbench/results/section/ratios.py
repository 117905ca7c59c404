"""A ratio in words that say no more than its interval supports."""

from __future__ import annotations

from dataclasses import dataclass

from bwbench.results.analysis.statistics import Ratio
from bwbench.results.text import Number, Phrase, phrase, significant


@dataclass(frozen=True)
class RatioWords:
    """What may be said of a ratio.

    Attributes:
        side: 1 where the arm is certainly the faster one, -1 where the reference is, 0 where that cannot be told.
        value: the ratio, with ``>`` or ``<`` where it is a bound.
        basis: in brackets: interval, n, how many did not reach the target.
    """

    side: int
    value: Phrase
    basis: Phrase


def ratio_words(ratio: Ratio | None, key: str) -> RatioWords | None:
    """Words for a ratio (reference over arm); None where there is none.

    A bound tells a side where it lies on it. Without interval and bound (one pair; a median of censored repeats) no
    side is certain.
    """
    if ratio is None:
        return None
    side = side_of(ratio.value, ratio.low, ratio.high, ratio.bound)
    bound = f"{ratio.bound} " if ratio.bound else ""
    value = phrase(Number(f"ratio {key}", f"{bound}{significant(ratio.value, apart_from=1.0)}"))
    count = phrase("n = ", Number(f"ratio n {key}", str(ratio.num)))
    if ratio.low is not None and ratio.high is not None:
        low, high = (significant(end, apart_from=1.0) for end in (ratio.low, ratio.high))
        ends = phrase("95 % interval ", Number(f"ratio low {key}", low), " to ", Number(f"ratio high {key}", high))
    elif ratio.num_censored:
        missed = Number(f"ratio censored {key}", f"{ratio.num_censored} of {ratio.num}")
        ends = phrase("bound, " if ratio.bound else "median, ", missed, " pairs with a target not reached")
    else:
        ends = phrase("no interval")
    return RatioWords(side, value, phrase("(", ends, ", ", count, ")"))


def side_of(value: float, low: float | None, high: float | None, bound: str, reference: float = 1.0) -> int:
    """1 where the value is certainly above ``reference``, -1 where below, 0 where that cannot be told."""
    if low is not None and high is not None:
        return (low > reference) - (high < reference)
    if bound == ">":
        return int(value > reference)
    return -int(value < reference) if bound == "<" else 0
