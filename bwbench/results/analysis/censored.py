"""Times of which some are known only to exceed a limit: the mean of their logarithms, and the share that has arrived.

The mean is a censored normal fit (Tobin 1958). The maximum of the likelihood is found by expectation and maximization:
what is beyond its limit is replaced by what it is expected to be, until nothing changes. The variance of the mean is
that of the observed information, with the estimate of the spread made larger by n/(n - 1), as for values that are all
known. docs/statistics.md says how often its intervals cover.

The share that has arrived (Kaplan and Meier 1958) supposes no distribution. It is for pictures: no number rests on it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_ROUNDS = 2000
_CLOSE = 1e-10  # of a standard deviation
_FAR = 30.0  # standard deviations, beyond which the tail's mean is its asymptote
_LEAST_DEVIATION = 1e-9  # of logarithms: equal times and a limit beyond them


@dataclass(frozen=True)
class CensoredMean:
    """The fitted mean of the logarithms, and the variance of that mean."""

    centre: float
    variance: float


def can_be_fitted(num: int, num_censored: int) -> bool:
    """Whether at least half of ``num`` values are known, and at least two: with fewer the fit extrapolates."""
    known = num - num_censored
    return known >= 2 and 2 * known >= num


def censored_mean(logs: Sequence[float], limits: Sequence[float]) -> CensoredMean:
    """Fit ``logs`` that are known and ``limits`` that the others exceed; ``can_be_fitted`` has to hold."""
    count = len(logs) + len(limits)
    centre = statistics.fmean([*logs, *limits])
    deviation = max(statistics.pstdev([*logs, *limits]), _LEAST_DEVIATION)
    for _ in range(_ROUNDS):
        tails = [_tail((limit - centre) / deviation) for limit in limits]
        expected = [*logs, *(centre + deviation * mean for mean, _ in tails)]
        next_centre = statistics.fmean(expected)
        squares = math.fsum((value - next_centre) ** 2 for value in expected)
        squares += deviation**2 * math.fsum(variance for _, variance in tails)
        next_deviation = max(math.sqrt(squares / count), _LEAST_DEVIATION)
        moved = max(abs(next_centre - centre), abs(next_deviation - deviation))
        centre, deviation = next_centre, next_deviation
        if moved <= _CLOSE * deviation:
            break
    return CensoredMean(centre, _variance(logs, limits, centre, deviation) * count / (count - 1))


def _variance(logs: Sequence[float], limits: Sequence[float], centre: float, deviation: float) -> float:
    """Of the centre: from the inverse of the observed information of centre and deviation."""
    of_centre = of_both = of_deviation = 0.0  # second derivatives, times the square of the deviation
    for value in logs:
        z = (value - centre) / deviation
        of_centre, of_both, of_deviation = of_centre + 1, of_both + 2 * z, of_deviation + 3 * z * z - 1
    for limit in limits:
        z = (limit - centre) / deviation
        mean, variance = _tail(z)
        slope = 1 - variance
        of_centre += slope
        of_both += mean + z * slope
        of_deviation += z * (2 * mean + z * slope)
    determinant = of_centre * of_deviation - of_both**2
    if determinant <= 0 or of_deviation <= 0:
        return deviation**2 / of_centre
    return deviation**2 * of_deviation / determinant


def _tail(z: float) -> tuple[float, float]:
    """Mean and variance of a standard normal value that is known to exceed ``z``."""
    if z > _FAR:
        return z + 1 / z, 1 / z**2
    mean = math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (math.erfc(z / math.sqrt(2)) / 2)
    return mean, min(1.0, max(0.0, 1 - mean * (mean - z)))


@dataclass(frozen=True)
class ArrivalStep:
    """What happened to the repeats of an arm at one time, at which some of them arrived or were given up.

    Attributes:
        num_at_risk: repeats that had neither arrived nor been given up before.
        num_arrived, num_censored: at this very time.
        share: of all repeats, estimated to have arrived by now; exact, so that a half is one.
    """

    time_s: float
    num_at_risk: int
    num_arrived: int
    num_censored: int
    share: Fraction


def arrival_steps(times_s: Sequence[float], limits_s: Sequence[float]) -> list[ArrivalStep]:
    """The share that has arrived by each time, rising: one less the estimate of survival of Kaplan and Meier (1958).

    A repeat that is given up counts until then among those that might arrive. Where one arrives and another is given up
    at the same time, the arrival comes first.

    Args:
        times_s: of the repeats that arrived.
        limits_s: at which the others were given up.
    """
    at_risk, late = len(times_s) + len(limits_s), Fraction(1)
    steps = []
    for time_s in sorted({*times_s, *limits_s}):
        arrived, censored = times_s.count(time_s), limits_s.count(time_s)
        late *= Fraction(at_risk - arrived, at_risk)
        steps.append(ArrivalStep(time_s, at_risk, arrived, censored, 1 - late))
        at_risk -= arrived + censored
    return steps


def half_arrived(steps: Sequence[ArrivalStep]) -> float | None:
    """The median: the first time by which half have arrived; None where fewer do."""
    return next((step.time_s for step in steps if 2 * step.share >= 1), None)
