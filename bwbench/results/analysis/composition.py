"""Time to accuracy of a run that was never made whole: its steps counted without the link, and timed on the link.

What a synchronous method computes does not depend on the link. So the accuracy after k steps comes from a *convergence
run* (no link, full speed), and what a step takes on the link from elsewhere: ``StepTimes``, by timing runs
(``compose.py``) or by a published run of another seed (``times_of_seed.py``). Plain Python and pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bwbench.methods.phases import Phase, StepInPhase, walk
from bwbench.records.schema import CurvePoint, Kind
from bwbench.records.schema import Step as StepEvent
from bwbench.results.analysis.trial import EventsByRank, curve_of, steps_of_ranks


class NotComposableError(ValueError):
    """The two runs do not fit together; the message says why."""


@dataclass(frozen=True)
class Taken:
    """A step that was taken: seconds are means over the ranks, which add up to the training clock; bytes are sums."""

    number: int
    samples: int
    duration_s: float
    exposed_s: float
    payload_bytes: int


def steps_of(events: EventsByRank) -> list[Taken]:
    """The steps that every rank has recorded, in order. Raises NotComposableError where one is missing between."""
    by_step: dict[int, list[StepEvent]] = {}
    for event in steps_of_ranks(events):
        by_step.setdefault(event.step, []).append(event)
    whole = sorted(number for number, found in by_step.items() if len(found) == len(events))
    if whole != list(range(1, len(whole) + 1)):
        raise NotComposableError("steps are missing between those that were recorded")
    return [
        Taken(
            number=number,
            samples=by_step[number][0].samples,
            duration_s=statistics.fmean(event.duration_s for event in by_step[number]),
            exposed_s=statistics.fmean(event.ledger.exposed_s if event.ledger else 0.0 for event in by_step[number]),
            payload_bytes=sum(event.payload_bytes or 0 for event in by_step[number]),
        )
        for number in whole
    ]


@dataclass(frozen=True)
class Trained:
    """A convergence run: its steps, its evaluations (the one before the first step included), and each step's kind."""

    steps: Sequence[Taken]
    curve: Sequence[CurvePoint]
    walked: Sequence[StepInPhase]

    @classmethod
    def of(cls, convergence: EventsByRank, phases: Sequence[Phase]) -> Trained:
        """Raises NotComposableError where it is broken off."""
        steps, curve = steps_of(convergence), curve_of(convergence)
        if not steps:
            raise NotComposableError("the convergence run has recorded no steps")
        return cls(steps, curve, list(walk(phases, len(steps), {point.step for point in curve if point.step > 0})))

    @property
    def evaluated(self) -> list[int]:
        """Numbers of the steps behind which it was evaluated."""
        return [point.step for point in self.curve if point.step > 0]


@dataclass(frozen=True)
class Spread:
    """How certain a time is; as of a ``Composition``."""

    interval_s: tuple[float, float] | None
    within_share: float | None
    between_share: float | None


class StepTimes(Protocol):
    """What the steps of a run take on a link. ``counted`` is a number of steps, the first ones of the run."""

    @property
    def clocks(self) -> Sequence[float]:
        """The training clock behind each step, the time before the first one in front: [steps + 1]."""

    def kinds(self, counted: int) -> tuple[Kind, ...]:
        """What the time of the first steps consists of."""

    def spread(self, counted: int) -> Spread:
        """How certain it is."""

    def max_payload_ratio(self, counted: int) -> float:
        """Largest bytes of one of them over those of the timed steps of its kind, or the inverse."""


@dataclass(frozen=True)
class Composition:
    """A run as it would have been on the link.

    Attributes:
        curve: its validation evaluations: those of the convergence run, with the composed ``clock_s``.
        time_to_target_s, censored_at_s: as in status.json; both None where the run has no target.
        samples_to_target: over all nodes.
        steps, samples: taken by then, or by the end where the target was not reached.
        training_clock_s: at the end.
        interval_s: 95 % interval of ``time_to_target_s``, or of the end: what a whole run on this link would take
            with this seed. One timing run tells of the chance in its steps alone, several of what they differ by as
            well. None where nothing varies.
        within_share, between_share: as in composed.json; None with one timing run.
        reason: ``target``, ``samples`` or ``time``, whichever ends the run.
        payload_bytes: sent until the end, all ranks together.
        payload_bytes_to_target: until the target.
        kinds: what the time consists of, until the target or the end.
        max_payload_ratio: largest bytes of a step over those of the timed steps of its kind, or the inverse.
    """

    curve: tuple[CurvePoint, ...]
    time_to_target_s: float | None
    censored_at_s: float | None
    samples_to_target: int | None
    steps: int
    samples: int
    training_clock_s: float
    interval_s: tuple[float, float] | None
    within_share: float | None
    between_share: float | None
    reason: str
    payload_bytes: int
    payload_bytes_to_target: int | None
    kinds: tuple[Kind, ...]
    max_payload_ratio: float


def composition(
    trained: Trained, times: StepTimes, *, has_target: bool, ends_at_target: bool = True, limit_s: float | None = None
) -> Composition:
    """A run whose steps take the given times. Pure.

    Args:
        has_target: the cell names a target.
        ends_at_target: it stops there (``stop: target``).
        limit_s: training clock at which the cell gives up.
    """
    steps, clocks = trained.steps, times.clocks
    # The step in which the time is up, or the last one.
    late = (step for step, clock_s in enumerate(clocks) if step and limit_s is not None and clock_s >= limit_s)
    last = next(late, len(steps))
    reason = "time" if last < len(steps) else "samples"
    curve = [point.model_copy(update={"clock_s": clocks[point.step]}) for point in trained.curve if point.step <= last]
    arrival = next((point for point in curve if point.target_met), None) if has_target else None
    if arrival is not None and ends_at_target:
        last, reason = arrival.step, "target"
    counted = arrival.step if arrival is not None else last
    spread = times.spread(counted)
    payload = [step.payload_bytes for step in steps]
    return Composition(
        curve=tuple(point for point in curve if point.step <= last),
        time_to_target_s=arrival.clock_s if arrival else None,
        censored_at_s=clocks[last] if has_target and arrival is None else None,
        samples_to_target=arrival.samples if arrival else None,
        steps=last,
        samples=steps[last - 1].samples,
        training_clock_s=clocks[last],
        interval_s=spread.interval_s,
        within_share=spread.within_share,
        between_share=spread.between_share,
        reason=reason,
        payload_bytes=sum(payload[:last]),
        payload_bytes_to_target=sum(payload[: arrival.step]) if arrival else None,
        kinds=times.kinds(counted),
        max_payload_ratio=times.max_payload_ratio(counted),
    )


def ratio(one: float, other: float) -> float:
    """The larger over the smaller; 1 where both are 0."""
    low, high = sorted((one, other))
    if high == 0:
        return 1.0
    return high / low if low else math.inf
