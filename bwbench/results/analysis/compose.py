"""Time to accuracy of a run that was never made whole: its steps counted without the link, and timed on the link.

What a synchronous method computes does not depend on the link. So the accuracy after k steps comes from a *convergence
run* (no link, full speed), what a step takes on the link from a short *timing run*, and both are put together step by
step: by the kind of each step (``plan.phases``), the bytes that it sent, and the waiting at every evaluation. Plain
Python and pure: events in, numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwbench.methods.phases import Phase, walk
from bwbench.records.schema import CurvePoint, Kind
from bwbench.results.analysis.step_times import NotComposableError, Price, Timed, steps_of
from bwbench.results.analysis.trial import EventsByRank, curve_of


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
            with this seed, as far as chance in its steps is concerned. None where nothing varies.
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
    reason: str
    payload_bytes: int
    payload_bytes_to_target: int | None
    kinds: tuple[Kind, ...]
    max_payload_ratio: float


def compose(
    convergence: EventsByRank,
    timing: EventsByRank,
    phases: Sequence[Phase],
    timing_phases: Sequence[Phase],
    *,
    has_target: bool,
    ends_at_target: bool = True,
    limit_s: float | None = None,
    seconds_per_byte: float = 0.0,
    seed: int = 0,
) -> Composition:
    """Put the two runs together. Pure.

    Args:
        convergence: events of every rank of the run that says how many steps it takes, to its end.
        timing: events of every rank of the run on the link.
        phases: of the method with its own options; ``timing_phases`` with those of the timing run.
        has_target: the cell names a target.
        ends_at_target: it stops there (``stop: target``).
        limit_s: training clock at which the cell gives up.
        seconds_per_byte: what one payload byte more, summed over the ranks, adds to a step that waits for the link.
        seed: of the resampling behind the interval.

    Raises:
        NotComposableError: a run is broken off, or the timing run has no step of a kind that is needed.
    """
    steps = steps_of(convergence)
    if not steps:
        raise NotComposableError("the convergence run has recorded no steps")
    evaluated = [point for point in curve_of(convergence) if point.step > 0]
    walked = list(walk(phases, len(steps), {point.step for point in evaluated}))
    timed = Timed.of(timing, timing_phases)
    timed.check(walked)
    prices = [timed.price(step, taken, seconds_per_byte) for step, taken in zip(walked, steps, strict=True)]
    waits = {point.step: timed.wait_s(walked[point.step - 1].age) for point in evaluated}
    clocks = _clocks(prices, waits)

    last = _last_step(clocks, limit_s)
    curve = [
        point.model_copy(update={"clock_s": clocks[point.step]})
        for point in curve_of(convergence)
        if point.step <= last
    ]
    arrival = next((point for point in curve if point.target_met), None) if has_target else None
    if arrival is not None and ends_at_target:
        last = arrival.step
    counted = arrival.step if arrival is not None else last
    kinds = timed.kinds(walked[:counted], prices[:counted], [step for step in waits if step <= counted])
    payload = [step.payload_bytes for step in steps]
    return Composition(
        curve=tuple(point for point in curve if point.step <= last),
        time_to_target_s=arrival.clock_s if arrival else None,
        censored_at_s=clocks[last] if has_target and arrival is None else None,
        samples_to_target=arrival.samples if arrival else None,
        steps=last,
        samples=steps[last - 1].samples,
        training_clock_s=clocks[last],
        interval_s=timed.interval(kinds, clocks[counted], seed),
        reason=_reason(arrived=arrival is not None and ends_at_target, cut_off=last < len(steps)),
        payload_bytes=sum(payload[:last]),
        payload_bytes_to_target=sum(payload[: arrival.step]) if arrival else None,
        kinds=tuple(kinds),
        max_payload_ratio=max((price.payload_ratio for price in prices[:counted]), default=1.0),
    )


def _clocks(prices: Sequence[Price], waits: Mapping[int, float]) -> list[float]:
    """Training clock behind each step, and behind the waiting for the evaluation that follows it; 0 first."""
    clocks = [0.0]
    for number, price in enumerate(prices, 1):
        clocks.append(clocks[-1] + price.duration_s + waits.get(number, 0.0))
    return clocks


def _last_step(clocks: Sequence[float], limit_s: float | None) -> int:
    """The step in which the time is up, or the last one."""
    if limit_s is None:
        return len(clocks) - 1
    return next((number for number, clock_s in enumerate(clocks) if number and clock_s >= limit_s), len(clocks) - 1)


def _reason(*, arrived: bool, cut_off: bool) -> str:
    if arrived:
        return "target"
    return "time" if cut_off else "samples"
