"""What is left to chance: how a delay varies, as tables of quantiles, and losses in bursts, as a chain of two states.

Both back ends draw from these, so that they agree: ``relay/schedule.py`` by itself, netem as ``netem/shape.py`` has it
told. The chain is the model of Gilbert (1960) and Elliott (1963), in terms that can be measured.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import Literal

Distribution = Literal["normal", "uniform", "pareto"]

SCALE = 8192  # one standard deviation in a table of netem (NETEM_DIST_SCALE in the kernel)
ENTRIES = 4096  # as many as iproute2's tables have; the kernel takes up to 16384
LARGEST = 32767  # of a table's 16-bit entries: four standard deviations
PARETO_SHAPE = 3.0  # as in iproute2's table: the smallest whole shape that has a standard deviation


@cache
def quantiles(distribution: Distribution) -> tuple[int, ...]:
    """The distribution as netem wants one: quantiles at equal steps, in units of 1/8192 standard deviation.

    Mean 0, standard deviation 1. Entries end at four standard deviations, as the kernel's 16 bits do; the long tail of
    a Pareto distribution is cut there, and the rest stretched so that the standard deviation stays what it is called.
    """
    steps = [(entry + 0.5) / ENTRIES for entry in range(ENTRIES)]
    if distribution == "normal":
        values = [statistics.NormalDist().inv_cdf(step) for step in steps]
    elif distribution == "uniform":
        values = [(2 * step - 1) * math.sqrt(3) for step in steps]
    else:
        values = [(1 - step) ** (-1 / PARETO_SHAPE) for step in steps]
    for _ in range(50):  # cutting moves mean and deviation, moving them cuts again: settles quickly
        mean, deviation = statistics.fmean(values), statistics.pstdev(values)
        values = [min((value - mean) / deviation, LARGEST / SCALE) for value in values]
    return tuple(round(SCALE * value) for value in values)


@dataclass(frozen=True)
class GilbertElliott:
    """A chain of two states that moves before every frame; each state loses frames with a probability of its own.

    Attributes:
        good_to_bad: probability of leaving the good state (``p`` of ``tc-netem``'s ``gemodel``).
        bad_to_good: probability of leaving the bad state (``r``); the bad state lasts 1 / r frames on average.
        loss_in_good: probability with which a frame is lost in the good state (``1-k``).
        loss_in_bad: the same in the bad state (``1-h``).
    """

    good_to_bad: float
    bad_to_good: float
    loss_in_good: float = 0.0
    loss_in_bad: float = 1.0

    @classmethod
    def of(cls, loss: float, mean_burst: float, loss_in_good: float = 0.0, loss_in_bad: float = 1.0) -> GilbertElliott:
        """The chain that loses the share ``loss`` on average and whose bad state lasts ``mean_burst`` frames.

        With the default probabilities ``mean_burst`` is the mean number of frames lost in a row. Raises ValueError
        where there is no such chain.
        """
        if mean_burst < 1:
            raise ValueError("a burst is 1 frame or more")
        if not 0 <= loss_in_good < loss <= loss_in_bad <= 1 or loss == loss_in_bad:
            raise ValueError("the loss must lie between that in the good and that in the bad state")
        share_bad = (loss - loss_in_good) / (loss_in_bad - loss_in_good)
        bad_to_good = 1 / mean_burst
        good_to_bad = bad_to_good * share_bad / (1 - share_bad)
        if good_to_bad > 1:
            raise ValueError(f"bursts of {mean_burst:g} frames are too short for a loss of {loss:g}")
        return cls(good_to_bad, bad_to_good, loss_in_good, loss_in_bad)

    @property
    def mean_loss(self) -> float:
        """Share of all frames that are lost."""
        share_bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return share_bad * self.loss_in_bad + (1 - share_bad) * self.loss_in_good
