"""What is left to chance: how a delay varies, as tables of quantiles and over time, and losses in bursts, as a chain.

Both back ends draw from these, so that they agree: the relay by itself, netem as ``netem/shape.py`` has it told; only
the relay can let a delay wander. The chain of two states is the model of Gilbert (1960) and Elliott (1963), in terms
that can be measured.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

Distribution = Literal["normal", "uniform", "pareto"]
JitterKind = Literal["correlated", "independent"]

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


# A delay that wanders goes from one random value to the next in this many standard deviations. Its slope then has a
# deviation of pi / 2 / 20 = 0.08 s a second: too flat for a frame to catch up with the one before it (which would take
# 1), and for most of what a link of 80 % load has left (0.2). A shorter time would push frames back, a longer one take
# longer to measure.
INTERVAL_JITTERS = 20.0
# From one value to the next along a quarter of a circle: the integral of the autocorrelation, in such intervals.
_CORRELATION_INTERVALS = 8 / math.pi**2


def correlation_s(jitter_s: float) -> float:
    """How long a delay that wanders remembers itself (the integral of its autocorrelation): 16 standard deviations.

    So a mean over T seconds is as sure as one of T / (2 x this) delays drawn anew.
    """
    return _CORRELATION_INTERVALS * INTERVAL_JITTERS * jitter_s


class Wander:
    """A random function of time: at every time a standard normal number, that changes smoothly.

    Every ``interval_s`` it has a value of its own, and between two of them it is cos(a) x one + sin(a) x the next, with
    an angle from 0 to a right one. As cos^2 + sin^2 = 1, the distribution is the same at all times, and however often
    one looks. Values two intervals apart have nothing to do with each other.

    Args:
        seed: two functions with equal ones are equal.
    """

    __slots__ = ("_before", "_interval_s", "_next", "_number", "_seed")

    def __init__(self, seed: str, interval_s: float) -> None:
        self._seed = seed
        self._interval_s = interval_s
        self._number = -1  # of the interval that ``_before`` and ``_next`` begin and end
        self._before = self._next = 0.0

    def at(self, time_s: float) -> float:
        """The value at ``time_s``, which is not negative."""
        place = time_s / self._interval_s
        number = int(place)
        if number != self._number:
            self._before = self._next if number == self._number + 1 > 0 else self._value(number)
            self._next = self._value(number + 1)
            self._number = number
        angle = math.pi / 2 * (place - number)
        return self._before * math.cos(angle) + self._next * math.sin(angle)

    def _value(self, number: int) -> float:
        return random.Random(f"{self._seed} {number}").gauss(0.0, 1.0)


def quantile_at(table: Sequence[float], normal: float) -> float:
    """What ``table`` has in the place that ``normal`` has among standard normal numbers, between its entries too."""
    place = (1 + math.erf(normal / math.sqrt(2))) / 2 * len(table) - 0.5
    if place <= 0:
        return table[0]
    entry = int(place)
    if entry >= len(table) - 1:
        return table[-1]
    return table[entry] + (place - entry) * (table[entry + 1] - table[entry])


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
