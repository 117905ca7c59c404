"""Made-up arms whose truth is known: seeds that differ, curves that flicker, timing runs that disagree, limits.

A seed's time is the true one, times what its seed makes of it, times what the fit of its flickering curve is off by.
All seeds of an arm share the error of its timing runs. Standard deviations are of log time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import crossing
from bwbench.results.analysis.statistics import ASSUMED_BETWEEN, Arrival

FLICKER = 0.010  # of the accuracy, from one evaluation to the next
SLOPE = 0.030  # of the accuracy over log samples at the arrival, as in results/published/precision
BETWEEN = 0.03  # of the log of a step's time, from one timing run to the next
TARGET, ARRIVAL, EVERY, BUDGET = 0.87, 38_000.0, 2000.0, 120_000.0
CURVES = 1500

Arm = dict[int, Arrival]


@dataclass(frozen=True)
class Setting:
    """How arms differ: spread of the seeds, timing runs of each, and the share of repeats beyond a limit."""

    name: str
    spreads: tuple[float, ...]
    timing_runs: int = 3
    censored: float = 0.0


def fit_errors(rng: random.Random) -> list[float]:
    """Logs of the arrivals that the isotonic fit finds in flickering curves, over the true one."""
    found = []
    for _ in range(CURVES):
        at, curve = EVERY * rng.uniform(0.5, 1.5), []
        while at <= BUDGET:
            u = math.log(at / ARRIVAL)
            value = TARGET + SLOPE * (u - 0.2 * u * u) + rng.gauss(0.0, FLICKER)
            point = {"step": len(curve) + 1, "metrics": {"accuracy": value}, "samples": round(at), "clock_s": at}
            curve.append(CurvePoint.model_construct(None, **point))  # unchecked: there are a hundred thousand
            at += EVERY
        samples = crossing(curve, "accuracy", TARGET)
        if samples:
            found.append(math.log(samples / ARRIVAL))
    return found


def arm_of(n: int, true_s: float, spread: float, setting: Setting, errors: Sequence[float], rng: random.Random) -> Arm:
    """What is recorded of one arm; beyond the limit are on average ``setting.censored`` of its repeats."""
    seeds = [rng.gauss(0.0, spread) + rng.choice(errors) for _ in range(n)]
    return recorded(seeds, true_s, setting, limit_of(true_s, spread, setting, errors), rng)


def limit_of(true_s: float, spread: float, setting: Setting, errors: Sequence[float]) -> float:
    """The limit that the asked share of repeats exceeds; infinite without any."""
    if not setting.censored:
        return math.inf
    deviation = math.hypot(spread, math.sqrt(sum(error**2 for error in errors) / len(errors)))
    return true_s * math.exp(deviation * 0.8416 if setting.censored == 0.2 else math.nan)


def recorded(seeds: Sequence[float], true_s: float, setting: Setting, limit_s: float, rng: random.Random) -> Arm:
    """Log deviations of seeds as arrivals, with timing runs of their own."""
    runs = [rng.gauss(0.0, BETWEEN) for _ in range(setting.timing_runs)]
    shift = sum(runs) / len(runs)
    if len(runs) > 1:
        variance = sum((run - shift) ** 2 for run in runs) / (len(runs) - 1) / len(runs)
        timing = (variance, len(runs) - 1.0)
    else:
        timing = (ASSUMED_BETWEEN**2, math.inf)
    found = {}
    for seed, off in enumerate(seeds):
        time_s = true_s * math.exp(off + shift)
        late = time_s > limit_s
        found[seed] = Arrival(None if late else time_s, limit_s if late else None, 0.0, *timing)
    return found
