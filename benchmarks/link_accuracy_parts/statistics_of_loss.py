"""What chance allows: intervals of a count of lost frames, where each is lost by itself and where they go in bursts."""

from __future__ import annotations

import math
from statistics import NormalDist

from bwbench.network.link.chance import GilbertElliott

LEVEL = 0.99


def binomial_interval(trials: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """The counts between which a binomial variable lies with probability ``level`` or more, as much left out each side.

    Sums of the exact probabilities, as a normal approximation is off where few are expected.
    """
    tail = (1 - level) / 2
    low, high, below = None, trials, 0.0
    for count in range(trials + 1):
        below += math.exp(
            math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
            + count * math.log(share) + (trials - count) * math.log1p(-share)
        )  # fmt: skip
        if low is None and below > tail:
            low = count
        if below >= 1 - tail:
            high = count
            break
    return low or 0, high


def burst_interval(trials: int, chain: GilbertElliott, level: float = LEVEL) -> tuple[float, float]:
    """The same for frames lost by a chain with loss 1 in the bad state and 0 in the good one; approximately normal.

    Neighbours are correlated by 1 - p - r, so that the variance is the binomial one times (1 + c) / (1 - c).
    """
    correlation = 1 - chain.good_to_bad - chain.bad_to_good
    share = chain.mean_loss
    deviation = math.sqrt(trials * share * (1 - share) * (1 + correlation) / (1 - correlation))
    reach = NormalDist().inv_cdf(0.5 + level / 2) * deviation
    return trials * share - reach, trials * share + reach
