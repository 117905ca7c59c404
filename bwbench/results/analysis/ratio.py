"""How many times faster one arm is than another: unpaired, Welch's t on log time; paired by seed within kin alone.

Two arms that learn differently have little in common at equal seeds (correlation 0.17 in the published records), and
pairing them halves the degrees of freedom. Arms that compute the same mean at the same rate learn alike, seed by seed
(0.9 to 1.0): there pairing takes out what seeds share. Which arms are kin is what their components declare.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bwbench.results.analysis.statistics import Arrival, Estimate, around, estimate, grid_floor, timing_part
from bwbench.results.analysis.welch import Cause, MeanError, of_seeds


@dataclass(frozen=True)
class Ratio:
    """Ratio of two arms' times, reference over arm: above 1 the arm is faster. Limits as in ``Estimate``.

    Attributes:
        bound: ">" where the reference is a bound, so that the ratio is at least ``value``; "<" where the arm is.
        num: pairs of equal seeds, or the smaller of the two arms' numbers of repeats.
        num_censored: repeats of both arms that did not reach the target, among those that count.
        paired: taken seed by seed.
        middle, error: as of an ``Estimate``.
    """

    value: float
    low: float | None
    high: float | None
    num: int
    bound: str = ""
    num_censored: int = 0
    paired: bool = False
    middle: float = field(default=math.nan, compare=False)
    error: MeanError | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """What ``value`` is: ``geometric mean``, ``censored fit`` or ``bound``."""
        if self.bound:
            return "bound"
        return "censored fit" if self.num_censored else "geometric mean"

    @property
    def dominant(self) -> Cause | None:
        """What makes the interval as wide as it is: more of that would make it narrower."""
        return None if self.error is None else self.error.dominant

    def ends(self, confidence: float) -> tuple[float, float] | None:
        """The interval at another confidence; None where there is none."""
        return None if self.error is None else around(self.value, self.middle, self.error, confidence)


def ratio_of(reference: Mapping[int, Arrival], arm: Mapping[int, Arrival]) -> Ratio | None:
    """How many times faster ``arm`` is than ``reference``, both by seed.

    None where one of them has no repeat, or where so much is censored on both sides that nothing is left to say.
    """
    if not reference or not arm:
        return None
    shared = sorted(reference.keys() & arm.keys())
    if len(shared) > 1 and are_kin([*reference.values(), *arm.values()]):
        pairs = [(reference[seed], arm[seed]) for seed in shared]
        if all(one.time_s is not None and other.time_s is not None for one, other in pairs):
            return _paired(pairs)
    return _unpaired(list(reference.values()), list(arm.values()))


def are_kin(arrivals: Iterable[Arrival]) -> bool:
    """Whether all of them learn alike, seed by seed."""
    names = {arrival.kin for arrival in arrivals}
    return len(names) == 1 and "" not in names


def _paired(pairs: Sequence[tuple[Arrival, Arrival]]) -> Ratio:
    reference, arm = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    value = math.exp(statistics.fmean(math.log(one.or_infinity / other.or_infinity) for one, other in pairs))
    logs = [math.log(one.middle_s / other.middle_s) for one, other in pairs]
    are_of_pilot = [one.of_pilot and other.of_pilot for one, other in pairs]
    parts = (of_seeds(logs, are_of_pilot), timing_part(reference), timing_part(arm))
    error, middle = MeanError(parts, grid_floor([reference, arm])), statistics.fmean(logs)
    low, high = around(value, middle, error)
    return Ratio(value, low, high, len(pairs), paired=True, middle=middle, error=error)


def _unpaired(references: Sequence[Arrival], arms: Sequence[Arrival]) -> Ratio | None:
    reference, arm = estimate(references), estimate(arms)
    num, num_censored = min(reference.num, arm.num), reference.num_censored + arm.num_censored
    if math.isinf(reference.value) or math.isinf(arm.value):
        return _bound(reference, arm, num, num_censored)
    value, middle = reference.value / arm.value, reference.middle - arm.middle
    if reference.error is None or arm.error is None:
        return Ratio(value, None, None, num, "", num_censored, middle=middle)
    reached = [[one for one in side if one.time_s is not None] for side in (references, arms)]
    error = MeanError((*reference.error.parts, *arm.error.parts), grid_floor(reached))
    low, high = around(value, middle, error)
    return Ratio(value, low, high, num, "", num_censored, middle=middle, error=error)


def _bound(reference: Estimate, arm: Estimate, num: int, num_censored: int) -> Ratio | None:
    """One side is known only to take longer than its limit; of the other the end of its interval counts."""
    if math.isinf(reference.value) and math.isinf(arm.value):
        return None
    if math.isinf(reference.value):
        slowest = arm.value if arm.high is None else arm.high
        return Ratio(reference.at_least / slowest, None, None, num, ">", num_censored)
    slowest = reference.value if reference.high is None else reference.high
    return Ratio(slowest / arm.at_least, None, None, num, "<", num_censored)
