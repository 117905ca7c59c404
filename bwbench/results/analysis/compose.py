"""Step times of a composed run by its timing runs, and the run that comes of them.

A step takes what steps of its kind (``plan.phases``) took on the link, and what the bytes that it sent more or fewer
take; the waiting at every evaluation comes on top. Several timing runs give a time each, of which the geometric mean
stands. Plain Python and pure: events in, numbers out.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bwbench.methods.phases import UNTIMED_STEPS, Phase, StepInPhase, walk
from bwbench.records.schema import Kind
from bwbench.results.analysis.composition import (
    Composition,
    NotComposableError,
    Spread,
    Taken,
    Trained,
    composition,
    ratio,
    steps_of,
)
from bwbench.results.analysis.student import student_t
from bwbench.results.analysis.timing_variance import NORMAL_95, RunTimes
from bwbench.results.analysis.trial import EventsByRank, evaluations

REPLICATES = 1000
LEAST_FOR_BLOCKS = 10  # a correlation of fewer values is noise


@dataclass(frozen=True)
class Sample:
    """Durations that were timed, in order, and how many of such a sum is made of."""

    durations_s: Sequence[float]
    num_summed: int

    @property
    def block(self) -> int:
        """Steps that are drawn together: 1 where neighbours have nothing to do with each other.

        Else (a machine that is slow for a while) the usual n^(1/3), and at least 2.
        """
        count = len(self.durations_s)
        if count < LEAST_FOR_BLOCKS or abs(autocorrelation(self.durations_s)) < 2 / math.sqrt(count):
            return 1
        return max(2, math.ceil(math.pow(count, 1 / 3)))


def interval_of_sum(samples: Sequence[Sample], centre_s: float, seed: int) -> tuple[float, float] | None:
    """95 % interval around ``centre_s``, the sum of ``num_summed`` times the mean of each sample. Pure.

    Two chances are in it: that of the few that were timed, and that of the many that would be summed. A bootstrap of
    few values is too narrow, so each sample's deviations are widened by sqrt(n/(n-1)) and Student's t. None where
    nothing varies.
    """
    told = [sample for sample in samples if sample.num_summed and len(sample.durations_s) > 1]
    generator = random.Random(seed)
    sums = [0.0] * REPLICATES
    for sample in told:
        count, block, mean_s = len(sample.durations_s), sample.block, statistics.fmean(sample.durations_s)
        few = math.sqrt(count / max(1, count - block)) * student_t(max(1, count // block - 1)) / NORMAL_95
        scale = sample.num_summed * (few * math.sqrt(1 + count / sample.num_summed))
        for replicate in range(REPLICATES):
            sums[replicate] += scale * (_mean_of_draw(sample.durations_s, block, generator) - mean_s)
    sums.sort()
    low, high = sums[round(0.025 * (REPLICATES - 1))], sums[round(0.975 * (REPLICATES - 1))]
    return (max(0.0, centre_s + low), centre_s + high) if high > low else None


def autocorrelation(values: Sequence[float]) -> float:
    """Of each value with the next one; 0 where nothing varies."""
    mean = statistics.fmean(values)
    deviations = [value - mean for value in values]
    variance = sum(deviation**2 for deviation in deviations)
    if variance == 0:
        return 0.0
    return sum(one * other for one, other in zip(deviations, deviations[1:], strict=False)) / variance


def _mean_of_draw(values: Sequence[float], block: int, generator: random.Random) -> float:
    """Mean of as many values as there are, drawn in blocks of neighbours; the last ones are followed by the first."""
    count = len(values)
    if block == 1:
        return sum(generator.choices(values, k=count)) / count
    drawn: list[float] = []
    while len(drawn) < count:
        begin = generator.randrange(count)
        drawn += [values[(begin + index) % count] for index in range(block)]
    return sum(drawn[:count]) / count


AWAITING = " awaiting"  # how kinds of steps end that wait for what is on its way
EXPOSED_SHARE = 0.02  # of a step: with less waiting than that, some bytes more or less hide behind the computing


@dataclass(frozen=True)
class Price:
    """What a step of the convergence run would have taken on the link; ``drift_s`` of it because of its bytes."""

    duration_s: float
    drift_s: float
    payload_ratio: float


@dataclass(frozen=True)
class Timed:
    """What the timing run says about each kind of step."""

    by_kind: Mapping[str, Sequence[Taken]]
    waits: Sequence[tuple[int | None, float]]  # before each evaluation: age of what was on its way, seconds
    beginning: Mapping[int, float]  # durations of the first steps, by number
    overlapped_s: float  # from the begin of an exchange that hides behind steps to its end; 0 where none does
    local_s: float  # an ordinary step, for the age of an exchange in seconds
    awaiting_s: float  # a step that waits for an exchange, where evaluations cut all short that were timed

    @classmethod
    def of(cls, timing: EventsByRank, phases: Sequence[Phase]) -> Timed:
        """Sort the steps of the timing run by kind."""
        taken = steps_of(timing)
        waited = _waits(timing)
        walked = list(walk(phases, len(taken), waited))
        by_kind: dict[str, list[Taken]] = {}
        for step, facts in zip(walked, taken, strict=True):
            if step.number > UNTIMED_STEPS:
                by_kind.setdefault(step.kind, []).append(facts)
        waits = [(walked[number - 1].age, seconds) for number, seconds in waited.items() if number <= len(walked)]
        begin = {step.number: step.duration_s for step in taken[:UNTIMED_STEPS]}
        longest = max((phase.overlap for phase in phases), default=0)
        local = [facts.duration_s - facts.exposed_s for steps in by_kind.values() for facts in steps]
        local_s = statistics.fmean(local) if local else 0.0
        overlapped_s = _overlapped_s(by_kind, waits, longest, local_s)
        awaiting_s = local_s + max(0.0, overlapped_s - longest * local_s)
        return cls(by_kind, waits, begin, overlapped_s, local_s, awaiting_s)

    def check(self, walked: Sequence[StepInPhase]) -> None:
        """Raise NotComposableError where a kind of step has never been timed."""
        needed = {step.kind for step in walked if step.number > UNTIMED_STEPS}
        if any(age is not None for age, _ in self.waits):
            needed = {kind for kind in needed if not kind.endswith(AWAITING)}
        missing = sorted(needed - self.by_kind.keys())
        if missing:
            raise NotComposableError(f"the timing run has no step of the kind {', '.join(map(repr, missing))}")

    def price(self, step: StepInPhase, taken: Taken, seconds_per_byte: float) -> Price:
        """What ``taken`` would have taken on the link."""
        if step.number in self.beginning and step.kind not in self.by_kind:
            return Price(self.beginning[step.number], 0.0, 1.0)
        if step.kind not in self.by_kind:
            return Price(self.awaiting_s, 0.0, 1.0)
        alike = self.by_kind[step.kind]
        duration_s = statistics.fmean(facts.duration_s for facts in alike)
        exposed_s = statistics.fmean(facts.exposed_s for facts in alike)
        payload = statistics.fmean(facts.payload_bytes for facts in alike)
        drift_s = 0.0
        if exposed_s > EXPOSED_SHARE * duration_s:
            drift_s = max(-exposed_s, seconds_per_byte * (taken.payload_bytes - payload))
        if step.number in self.beginning:
            duration_s, drift_s = self.beginning[step.number], 0.0
        return Price(duration_s + drift_s, drift_s, ratio(taken.payload_bytes, payload))

    def wait_s(self, age: int | None) -> float:
        """Waiting before an evaluation: until all ranks are there, and until what is on its way has arrived."""
        if age is None or not self.overlapped_s:
            idle = [seconds for waited_age, seconds in self.waits if waited_age is None or not self.overlapped_s]
            return statistics.fmean(idle) if idle else 0.0
        return max(0.0, self.overlapped_s - age * self.local_s)

    def kinds(self, walked: Sequence[StepInPhase], prices: Sequence[Price], evaluated: Sequence[int]) -> list[Kind]:
        """What the time until the end of ``walked`` consists of."""
        needed_s: dict[str, list[float]] = {}
        for step, price in zip(walked, prices, strict=True):
            needed_s.setdefault(step.kind, []).append(price.duration_s)
        needed_s["evaluation"] = [self.wait_s(walked[step - 1].age) for step in evaluated]
        found = []
        for name, costs_s in needed_s.items():
            timed_s = self._timed_s(name)
            mean_s = statistics.fmean(timed_s) if timed_s else 0.0
            deviation_s = statistics.stdev(timed_s) if len(timed_s) > 1 else 0.0
            counts = {"num_steps": len(costs_s), "num_timed": len(timed_s)}
            drift_s = sum(costs_s) - len(costs_s) * mean_s
            found.append(Kind(name=name, **counts, mean_s=mean_s, deviation_s=deviation_s, drift_s=drift_s))
        return found

    def _timed_s(self, kind: str) -> list[float]:
        """All that was timed of a kind of steps, or of the waiting before evaluations."""
        if kind == "evaluation":
            return [seconds for _, seconds in self.waits]
        return [facts.duration_s for facts in self.by_kind.get(kind, ())]

    def interval(self, kinds: Sequence[Kind], centre_s: float, seed: int) -> tuple[float, float] | None:
        """Around the sum of ``kinds``, by resampling the steps that were timed."""
        samples = [Sample(self._timed_s(kind.name), kind.num_steps) for kind in kinds]
        return interval_of_sum(samples, centre_s, seed)


def _waits(events: EventsByRank) -> dict[int, float]:
    """Waiting before each evaluation, mean over the ranks, by the number of the step before it."""
    by_step: dict[int, list[float]] = {}
    for rank_events in events.values():
        for found in evaluations(rank_events, "validation"):
            if found.waited_s is not None:
                by_step.setdefault(found.step, []).append(found.waited_s)
    return {step: statistics.fmean(waits) for step, waits in sorted(by_step.items())}


def _overlapped_s(
    by_kind: Mapping[str, Iterable[Taken]], waits: Sequence[tuple[int | None, float]], overlap: int, local_s: float
) -> float:
    """How long an exchange takes that is on its way while nodes compute, seen from those that had to be waited for.

    0 where no exchange hides. Where none was waited for, the time that it has to hide in is an upper bound, and what
    evaluations waited for the best guess.
    """
    if overlap == 0:
        return 0.0
    seen = [
        overlap * local_s + facts.exposed_s
        for name, steps in by_kind.items()
        if name.endswith(AWAITING)
        for facts in steps
        if facts.exposed_s > EXPOSED_SHARE * local_s
    ]
    cut_short = [age * local_s + waited_s for age, waited_s in waits if age is not None and waited_s > 0]
    found = seen or cut_short
    return statistics.median(found) if found else 0.0


@dataclass(frozen=True)
class _Priced:
    """A run as one timing run has it: its steps, the waiting before evaluations, the clock behind each step."""

    timed: Timed
    walked: Sequence[StepInPhase]
    prices: Sequence[Price]
    waits: Mapping[int, float]
    clocks: Sequence[float]

    @classmethod
    def of(cls, timed: Timed, trained: Trained, per_byte: float) -> _Priced:
        """Raises NotComposableError where a kind of step has never been timed."""
        walked = trained.walked
        timed.check(walked)
        prices = [timed.price(step, taken, per_byte) for step, taken in zip(walked, trained.steps, strict=True)]
        waits = {step: timed.wait_s(walked[step - 1].age) for step in trained.evaluated}
        clocks = [0.0]
        for number, price in enumerate(prices, 1):
            clocks.append(clocks[-1] + price.duration_s + waits.get(number, 0.0))
        return cls(timed, walked, prices, waits, clocks)

    def kinds(self, counted: int) -> list[Kind]:
        """What the time of the first ``counted`` steps consists of."""
        evaluated = [step for step in self.waits if step <= counted]
        return self.timed.kinds(self.walked[:counted], self.prices[:counted], evaluated)

    def max_payload_ratio(self, counted: int) -> float:
        """Of the first ``counted`` steps."""
        return max((price.payload_ratio for price in self.prices[:counted]), default=1.0)


@dataclass(frozen=True)
class _OfTimingRuns:
    """Step times by all timing runs of a cell: the geometric mean of the clocks that each of them gives."""

    runs: Sequence[_Priced]
    pilot: int | None
    seed: int

    @cached_property
    def clocks(self) -> Sequence[float]:
        return [geometric_mean(clocks_s) for clocks_s in zip(*(one.clocks for one in self.runs), strict=True)]

    def kinds(self, counted: int) -> tuple[Kind, ...]:
        return kinds_of_all([one.kinds(counted) for one in self.runs], self.clocks[counted])

    def spread(self, counted: int) -> Spread:
        times = RunTimes(
            [one.clocks[counted] for one in self.runs],
            [one.timed.interval(one.kinds(counted), one.clocks[counted], self.seed) for one in self.runs],
            self.pilot,
        )
        return Spread(times.interval_s, times.within_share, times.between_share)

    def max_payload_ratio(self, counted: int) -> float:
        return max(one.max_payload_ratio(counted) for one in self.runs)


def compose(
    convergence: EventsByRank,
    timings: Sequence[EventsByRank],
    phases: Sequence[Phase],
    timing_phases: Sequence[Phase],
    *,
    has_target: bool,
    ends_at_target: bool = True,
    limit_s: float | None = None,
    seconds_per_byte: float = 0.0,
    timing_pilot: int | None = None,
    seed: int = 0,
) -> Composition:
    """Put the runs together. Pure.

    Args:
        convergence: events of every rank of the run that says how many steps it takes, to its end.
        timings: of each run on the link, events of every rank.
        phases: of the method with its own options; ``timing_phases`` with those of the timing runs.
        has_target, ends_at_target, limit_s: as of ``composition``.
        seconds_per_byte: what one payload byte more, summed over the ranks, adds to a step that waits for the link.
        timing_pilot: timing runs whose spread has said how many there are; None where that was fixed beforehand.
        seed: of the resampling behind the interval.

    Raises:
        NotComposableError: a run is broken off, or a timing run has no step of a kind that is needed.
    """
    trained = Trained.of(convergence, phases)
    runs = [_Priced.of(Timed.of(timing, timing_phases), trained, seconds_per_byte) for timing in timings]
    times = _OfTimingRuns(runs, timing_pilot, seed)
    return composition(trained, times, has_target=has_target, ends_at_target=ends_at_target, limit_s=limit_s)


def geometric_mean(values: Sequence[float]) -> float:
    """0 where one of them is 0; one value stands as it is."""
    if len(values) == 1 or min(values) <= 0:
        return min(values)
    return math.exp(statistics.fmean(map(math.log, values)))


def kinds_of_all(of_runs: Sequence[Sequence[Kind]], total_s: float) -> tuple[Kind, ...]:
    """The kinds of several timing runs as one, whose parts add up to ``total_s``, the geometric mean of theirs."""
    if len(of_runs) == 1:
        return tuple(of_runs[0])
    sums_s = [sum(kind.total_s for kind in kinds) for kinds in of_runs]
    scale = total_s / statistics.fmean(sums_s) if any(sums_s) else 1.0
    return tuple(
        Kind(
            name=alike[0].name,
            num_steps=alike[0].num_steps,
            num_timed=sum(kind.num_timed for kind in alike),
            mean_s=scale * statistics.fmean(kind.mean_s for kind in alike),
            deviation_s=math.sqrt(statistics.fmean(kind.deviation_s**2 for kind in alike)),
            drift_s=scale * statistics.fmean(kind.drift_s for kind in alike),
        )
        for alike in zip(*of_runs, strict=True)
    )
