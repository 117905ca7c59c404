"""What a step takes where everybody waits for the slowest node: the maximum over nodes whose step times differ.

By numeric quadrature over the distribution of that maximum, the product of the nodes' own: independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from bwbench.base.step_time import AnyStepTime, SteadyStepTime
from bwbench.experiment.config.step_trace import steady_stretches

BEYOND = 1e-9  # of the steps: what is left out of the integral on either side
INTERVALS = 400  # of Simpson's rule, even
MOST_STRETCHES = 500  # of traces that are followed one by one


@lru_cache(maxsize=4096)  # cells of an experiment ask for the same few, once for each stretch of a trace
def expected_slowest_s(times: tuple[SteadyStepTime, ...], steps_between_waits: float = 1.0) -> float:
    """Mean of a step's time, seen over many steps; 0 without any node.

    Args:
        times: of the nodes.
        steps_between_waits: all wait for the slowest after so many steps, of which the nodes take each its own. Their
            sums are taken to be log-normal as well.
    """
    drawn = [one.mean_of(steps_between_waits) for one in times if one.is_drawn]
    steady_s = max((one.mean_s for one in times if not one.is_drawn), default=0.0)
    if not drawn:
        return steady_s
    low_s = max(steady_s, *(one.quantile_s(BEYOND) for one in drawn))
    high_s = max(low_s, *(one.quantile_s(1 - BEYOND) for one in drawn))
    if high_s == low_s:
        return low_s
    width = math.log(high_s / low_s) / INTERVALS  # in the logarithm: tails are long on one side

    def later(index: int) -> float:
        """The share of the steps that take longer, as a density of the logarithm."""
        seconds = low_s * math.exp(index * width)
        return seconds * (1 - _share_within(drawn, seconds))

    inner = sum((4 if index % 2 else 2) * later(index) for index in range(1, INTERVALS))
    return low_s + width / 3 * (later(0) + inner + later(INTERVALS))


def median_slowest_s(times: Sequence[SteadyStepTime]) -> float:
    """Half of the steps, in each of which all wait for the slowest node, take longer; 0 without any node."""
    drawn = [one for one in times if one.is_drawn]
    steady_s = max((one.mean_s for one in times if not one.is_drawn), default=0.0)
    if not drawn or _share_within(drawn, steady_s) >= 0.5:
        return steady_s
    low_s, high_s = steady_s, max(one.quantile_s(1 - BEYOND) for one in drawn)
    while high_s - low_s > 1e-6 * high_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if _share_within(drawn, middle_s) < 0.5 else (low_s, middle_s)
    return high_s


def mean_step_s(times: Sequence[AnyStepTime], num_steps: int, steps_between_waits: float = 1.0) -> float:
    """Mean over the first steps of a training, without communication: the slowest node's, traces as they are played.

    Raises ConfigError where the file of a trace is not there, or has changed.
    """
    stretches = list(steady_stretches(times))
    stretches = stretches[:: math.ceil(len(stretches) / MOST_STRETCHES)]
    left, clock_s = float(num_steps), 0.0
    for (begin_s, steady), (end_s, _) in zip(stretches, [*stretches[1:], (math.inf, ())], strict=True):
        step_s = expected_slowest_s(steady, steps_between_waits)
        if not step_s or step_s * left <= end_s - begin_s:
            return (clock_s + step_s * left) / num_steps
        left -= (end_s - begin_s) / step_s
        clock_s = end_s
    raise AssertionError("the last stretch has no end")


def _share_within(drawn: Sequence[SteadyStepTime], seconds: float) -> float:
    return math.prod(one.share_within(seconds) for one in drawn)
