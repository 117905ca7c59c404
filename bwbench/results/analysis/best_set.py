"""Which arms may be the fastest: all that are not certainly slower than the one with the shortest time.

"First" is a draw among those that noise alone puts in order. Each arm is tested against the one with the shortest
time, one-sided, Welch on log time with its own variance, at 5 % over the number of tests (Bonferroni). So the truly
fastest one is in the set with 95 % (a selection, as Gupta's and Hsu's multiple comparisons with the best, which pool
variances; a noisy arm defeats that). Of an arm that left the set it follows that it is not the fastest, and not that it
is slower than the one in front: that one is picked since its mean is the shortest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival, Estimate, estimate
from bwbench.results.analysis.student import together


@dataclass(frozen=True)
class BestSet:
    """The arms that may be the fastest, and how far the others are behind.

    Attributes:
        first: the arm with the shortest time; None where no arm reached the target.
        members: ``first`` and those that may be as fast, by their times.
        untold: members of which nothing tells, since one of the two has a single repeat, or none that says it.
        behind: of every other arm its time over that of ``first``.
        times: of all arms, fastest first.
    """

    first: str | None
    members: tuple[str, ...]
    untold: tuple[str, ...]
    behind: Mapping[str, Ratio | None]
    times: Mapping[str, Estimate]


def best_set(arms: Mapping[str, Mapping[int, Arrival]]) -> BestSet:
    """Of arms by name, each with its arrivals by seed; those without any take no part."""
    centres = {name: estimate(list(arrivals.values())) for name, arrivals in arms.items() if arrivals}
    order = sorted(centres, key=lambda name: (centres[name].value, centres[name].at_least, name))
    times = {name: centres[name] for name in order}
    if not order or math.isinf(times[order[0]].value):
        return BestSet(None, (), (), {}, times)
    first, *others = order
    behind = {name: ratio_of(arms[name], arms[first]) for name in others}
    told = {name: is_behind(ratio, len(others)) for name, ratio in behind.items()}
    members = (first, *(name for name in others if not told[name]))
    return BestSet(first, members, tuple(name for name in others if told[name] is None), behind, times)


def is_behind(ratio: Ratio | None, num_tests: int) -> bool | None:
    """Whether an arm with this ``ratio`` to the first one is certainly slower; None where nothing tells."""
    if ratio is None or ratio.bound == "<":
        return None
    if ratio.bound == ">":
        return True if ratio.value > 1 else None
    # A one-sided test at 5 % is the lower end of the two-sided interval at 90 %.
    ends = ratio.ends(1 - 2 * (1 - together(num_tests)))
    return None if ends is None else ends[0] > 1
