"""How a delay varies: tables of quantiles from which both back ends draw, so that they agree."""

from __future__ import annotations

import math
import statistics
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
