"""Which kinds of optimizer steps a method has, and which step is of which kind: what a short timing run must cover.

A step's accuracy is none of this: here stands only what makes one step take longer than another on the same link.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

LEAST_PERIODS = 5  # of every phase in a timing run
LEAST_STEPS = 16  # of every phase in a timing run: a mean of fewer says little
TIMED_PERIOD = 8  # a timing run's rounds come at least this often: local steps are alike, few of them say enough
WARM_UP_STEPS = 2  # off the clock, communication included: torch's DDP rebuilds its buckets after the first
PLAIN_BACKWARDS = 5  # without communication, measured while warming up; their median is what overlap is judged by
UNTIMED_STEPS = 2  # at the begin of a run: caches are cold, TCP does not know the link yet


@dataclass(frozen=True)
class Phase:
    """A stretch of training whose steps repeat with a period.

    Attributes:
        name: tells its steps from those of other phases.
        num_steps: how long it lasts; None for the rest of the training, which the last phase alone may say.
        period: steps after which exchanges repeat.
        exchanges: an exchange begins in those steps, counted from 1 in the phase, that leave one of these remainders
            when they are divided by ``period``. Steps of a phase without are local.
        overlap: steps that are taken while an exchange is on its way; the last one of them waits for it. 0 waits at
            once, in the step itself.
        carried: what exchanges have along more rarely: its name, and every how many periods. Exchanges are of as many
            kinds as there are sets of these that travel together. For phases without overlap.
    """

    name: str
    num_steps: int | None = None
    period: int = 1
    exchanges: tuple[int, ...] = (0,)
    overlap: int = 0
    carried: tuple[tuple[str, int], ...] = ()

    @property
    def cycle(self) -> int:
        """Steps after which everything repeats, with what is carried along."""
        return self.period * math.lcm(*(periods for _, periods in self.carried))

    def along(self, counted: int) -> tuple[str, ...]:
        """Names of what an exchange that begins in this step, counted from 1 in the phase, has along."""
        return tuple(name for name, periods in self.carried if counted % (self.period * periods) == 0)

    def begins(self, counted: int) -> bool:
        """Whether an exchange begins in this step, counted from 1 in the phase."""
        return counted % self.period in {remainder % self.period for remainder in self.exchanges}


def first_exchange(phases: Sequence[Phase]) -> int | None:
    """The step, counted from 1, in which an exchange begins for the first time. Pure.

    None where none ever does, and where nothing is said of the steps.
    """
    begun_at = 0
    for phase in phases:
        until = phase.period if phase.num_steps is None else min(phase.period, phase.num_steps)
        for counted in range(1, until + 1):
            if phase.begins(counted):
                return begun_at + counted
        begun_at += phase.num_steps or 0
    return None


@dataclass(frozen=True)
class StepInPhase:
    """One optimizer step.

    Attributes:
        number: from 1.
        kind: steps of one kind take equally long, but for chance and for the bytes that they send.
        age: steps since the youngest exchange that is still on its way at the end of this step began; None where
            nothing is. An evaluation right behind the step has to wait for it.
    """

    number: int
    kind: str
    age: int | None = None


def walk(phases: Sequence[Phase], num_steps: int, drained_after: Collection[int] = ()) -> Iterator[StepInPhase]:
    """The first ``num_steps`` steps of a training. Pure.

    Args:
        phases: in order; the last one has no end.
        drained_after: numbers of the steps behind which an evaluation has waited for all that was on its way.
    """
    remaining = list(phases)
    phase, begun_at = remaining.pop(0), 0
    under_way: list[int] = []
    for number in range(1, num_steps + 1):
        while phase.num_steps is not None and number - begun_at > phase.num_steps and remaining:
            begun_at += phase.num_steps
            phase = remaining.pop(0)
        begins = phase.begins(number - begun_at)
        late = [begun for begun in under_way if number - begun >= phase.overlap]
        if phase.overlap:
            what = "awaiting" if late else "meanwhile" if under_way else "local"
        else:
            what = "step" if phase.period == 1 else "exchange" if begins else "local"
            what = " with ".join((what, *phase.along(number - begun_at)))
        under_way = [begun for begun in under_way if begun not in late]
        if begins and phase.overlap:
            under_way.append(number)
        yield StepInPhase(number, f"{phase.name} {what}", number - under_way[-1] if under_way else None)
        if number in drained_after:
            under_way = []


def timing_steps(phases: Sequence[Phase], least: int = LEAST_STEPS) -> int:
    """Steps of a timing run that covers every phase; phases with an end are gone through whole. Pure.

    Of others so many steps that there are enough periods, with everything that is carried along, and no fewer than
    ``least``.
    """
    return UNTIMED_STEPS + sum(
        max(least, LEAST_PERIODS * phase.cycle + phase.overlap) if phase.num_steps is None else phase.num_steps
        for phase in phases
    )
