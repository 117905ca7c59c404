"""Difference of two arms in a metric: unpaired by Welch's rule, paired by seed within kin alone, as ratios of times.

An accuracy is no time and needs no logarithm; the rule is the same on the values themselves.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from bwbench.results.analysis.welch import MeanError, of_seeds


@dataclass(frozen=True)
class Difference:
    """Arm less reference, with its 95 % interval; None where one of them has a single repeat.

    Attributes:
        num: pairs, or the smaller of the two numbers of repeats.
    """

    value: float
    low: float | None
    high: float | None
    num: int
    paired: bool


def difference_of(arm: Mapping[int, float], reference: Mapping[int, float], *, kin: bool) -> Difference | None:
    """Of values by seed; None where one side has none.

    Args:
        kin: both learn alike, seed by seed: then seeds that both have are paired.
    """
    shared = sorted(arm.keys() & reference.keys()) if kin else []
    if len(shared) > 1:
        changes = [arm[seed] - reference[seed] for seed in shared]
        return _with_ends(statistics.fmean(changes), MeanError((of_seeds(changes),)), len(shared), paired=True)
    if not arm or not reference:
        return None
    mine, others = list(arm.values()), list(reference.values())
    value, num = statistics.fmean(mine) - statistics.fmean(others), min(len(mine), len(others))
    return _with_ends(value, MeanError((of_seeds(mine), of_seeds(others))), num, paired=False)


def _with_ends(value: float, error: MeanError, num: int, *, paired: bool) -> Difference:
    if num < 2:
        return Difference(value, None, None, num, paired)
    half = error.half_width()
    return Difference(value, value - half, value + half, num, paired)
