"""Mean of logarithms of which some are known only to exceed a limit: a censored normal fit (Tobin 1958).

The maximum of the likelihood is found by expectation and maximization: what is beyond its limit is replaced by what it
is expected to be, until nothing changes. The variance of the mean is that of the observed information, with the
estimate of the spread made larger by n/(n - 1), as for values that are all known. docs/statistics.md says how often
its intervals cover.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
