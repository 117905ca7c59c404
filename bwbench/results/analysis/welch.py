"""The error of a mean that has several causes: each with its variance and degrees of freedom, combined by Welch.

A time is uncertain because seeds differ, because its steps were timed a few times only, and because a target is met
somewhere between two evaluations. The first two are variances that were estimated from few values, and add up by the
rule of Welch and Satterthwaite: the sum has as many degrees of freedom as the parts that it is made of can bear. More
seeds make the first part smaller, and leave the second as it is: all seeds of a composed cell share its timing runs.

A variance that is assumed and not estimated has no degrees of freedom to lend. That rule would take it for knowledge of
the rest: with three seeds and one timing run, where its 3 % are small beside what seeds differ by, intervals came out
narrower than without it, and held the time in 92 % of cases. So its half-width is added to that of the estimated parts
in quadrature.

Where a pilot has said how many timing runs there are, both arms' parts come out about equally large by design, and the
rule of Welch and Satterthwaite takes that for knowledge: with three runs in the pilot its intervals hold the truth in
90 % of cases. Such parts count with their own Student's t, weighted by variance (Cochran and Cox 1950).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from bwbench.results.analysis.student import CONFIDENCE, student_t

Cause: TypeAlias = Literal["seeds", "timing runs", "grid"]
SEEDS: Final = "seeds"
TIMING_RUNS: Final = "timing runs"
GRID: Final = "grid"


@dataclass(frozen=True)
class ErrorPart:
    """One cause of error of a mean on the logarithmic scale.

    Attributes:
        variance: of the mean, not of a single value.
        freedom: degrees of freedom that it was estimated with; infinite where it is known or assumed.
        two_stages: how many runs it is the mean of followed from its variance.
    """

    cause: Cause
    variance: float
    freedom: float
    two_stages: bool = False


@dataclass(frozen=True)
class MeanError:
    """What a mean of logarithms, or a difference of two, is off by.

    Attributes:
        floor: half-width that the grid of evaluations leaves open, whatever repeats say.
    """

    parts: tuple[ErrorPart, ...]
    floor: float = 0.0

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the sum of all estimated parts but those of two stages (Welch 1947, Satterthwaite
        1946); infinite where there is none."""
        parts = [part for part in self._estimated if not part.two_stages]
        weight = math.fsum(part.variance**2 / part.freedom for part in parts)
        return math.fsum(part.variance for part in parts) ** 2 / weight if weight > 0 else math.inf

    def quantile(self, confidence: float = CONFIDENCE) -> float:
        """Student's t for the sum of the estimated parts: their half-width in standard errors."""
        alone = [part for part in self._estimated if part.two_stages]
        if not alone:
            return student_t(self.freedom, confidence)
        others = math.fsum(part.variance for part in self._estimated if not part.two_stages)
        weighted = [part.variance * student_t(part.freedom, confidence) for part in alone]
        total = others + math.fsum(part.variance for part in alone)
        return math.fsum([others * student_t(self.freedom, confidence), *weighted]) / total

    @property
    def dominant(self) -> Cause | None:
        """The cause that makes the interval as wide as it is; None where there is no error at all."""
        by_cause: dict[Cause, list[ErrorPart]] = {}
        for part in self.parts:
            by_cause.setdefault(part.cause, []).append(part)
        wide = {cause: self._half_width_of(parts, CONFIDENCE) for cause, parts in by_cause.items()}
        if self.floor > wide.get(SEEDS, 0.0):  # in whose place it stands then
            wide[GRID] = self.floor
            wide.pop(SEEDS, None)
        cause = max(wide, key=lambda cause: wide[cause], default=None)
        return cause if cause is not None and wide[cause] > 0 else None

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Of the two-sided interval, on the logarithmic scale."""
        spread = self._half_width_of(self.parts, confidence)
        if self.floor <= 0:
            return spread
        # Seeds that spread over several evaluations hold the grid in their spread; what the timing is off by they do
        # not, and the grid alone is never the whole of it.
        timing = self._half_width_of([part for part in self.parts if part.cause == TIMING_RUNS], confidence)
        return max(spread, math.hypot(self.floor, timing))

    @property
    def _estimated(self) -> list[ErrorPart]:
        return [part for part in self.parts if part.variance > 0 and math.isfinite(part.freedom)]

    def _half_width_of(self, parts: Sequence[ErrorPart], confidence: float) -> float:
        """What some of the parts make without the grid."""
        known = math.fsum(part.variance for part in parts if math.isinf(part.freedom))
        estimated = math.fsum(part.variance for part in parts if math.isfinite(part.freedom))
        ends = ((self.quantile(confidence), estimated), (student_t(math.inf, confidence), known))
        return math.hypot(*(quantile * math.sqrt(variance) for quantile, variance in ends if variance > 0))


def of_seeds(logs: Sequence[float], are_of_pilot: Sequence[bool] | None = None) -> ErrorPart:
    """The part that the spread of seeds makes; of one value an infinite one.

    Args:
        are_of_pilot: for each value whether its spread counts. Where the number of repeats followed from the spread of
            a pilot, one that is computed anew from all of them is too small too often (Stein 1945).
    """
    pilot = [log for log, counts in zip(logs, are_of_pilot or (), strict=True) if counts] if are_of_pilot else logs
    spread = pilot if len(pilot) > 1 else logs
    if len(spread) < 2:
        return ErrorPart(SEEDS, math.inf, 1.0)
    return ErrorPart(SEEDS, statistics.variance(spread) / len(logs), len(spread) - 1.0)
