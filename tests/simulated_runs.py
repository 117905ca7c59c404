"""Events of trainings that never were: steps of declared kinds on a link of declared speed, for tests of composing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bwbench.methods.phases import Phase, StepInPhase, walk
from bwbench.records.schema import Evaluation, Event, LedgerParts, Start
from bwbench.records.schema import Step as StepEvent

BATCH = 128

Events = dict[int, list[Event]]


@dataclass(frozen=True)
class Machine:
    """What a step of each kind takes. Seconds.

    Attributes:
        compute_s: every step.
        exchange_s: of an exchange, from its begin to its end; of ``bytes_of(step)``, each of which takes ``byte_s``.
        noise: standard deviation of a duration, as a share of it.
    """

    compute_s: float = 0.05
    exchange_s: float = 0.2
    byte_s: float = 0.0
    noise: float = 0.0
    waited_s: float = 0.001
    bytes_of: Callable[[int], int] = lambda step: 1000


def train(
    phases: Sequence[Phase],
    machine: Machine,
    num_steps: int,
    every: int = 16,
    target_step: int | None = None,
    ranks: int = 4,
    seed: int = 0,
) -> Events:
    """One run with an evaluation every ``every`` steps and at the end; the target is met from ``target_step`` on."""
    generator = random.Random(seed)
    evaluated = {*range(every, num_steps + 1, every), num_steps}
    events: Events = {rank: [Start(rank=rank), _evaluation(0, 0.0, None, False)] for rank in range(ranks)}
    clock_s, begun_s = 0.0, 0.0
    for step in walk(phases, num_steps, evaluated):
        exposed_s, begun_s = _exposed(step, machine, clock_s, begun_s)
        if machine.noise:
            exposed_s *= max(0.0, generator.gauss(1, machine.noise))
        compute_s = machine.compute_s * (max(0.1, generator.gauss(1, machine.noise)) if machine.noise else 1.0)
        duration_s = compute_s + exposed_s
        clock_s += duration_s
        for rank in events:
            fact = StepEvent(
                step=step.number,
                samples=step.number * BATCH,
                clock_s=clock_s,
                duration_s=duration_s,
                payload_bytes=machine.bytes_of(step.number),
                ledger=LedgerParts(compute_s=compute_s, exposed_s=exposed_s),
            )
            events[rank].append(fact)
        if step.number in evaluated:
            waited_s = machine.waited_s
            if step.age is not None:
                waited_s = max(0.0, begun_s + machine.exchange_s - clock_s)
            clock_s += waited_s
            met = target_step is not None and step.number >= target_step
            for rank in events:
                events[rank].append(_evaluation(step.number, clock_s, waited_s, met))
            if met:
                break
    return events


def clock_of(events: Events) -> float:
    """Training clock at the last evaluation."""
    return float(events[0][-1].clock_s)


def _exposed(step: StepInPhase, machine: Machine, clock_s: float, begun_s: float) -> tuple[float, float]:
    """What the step waits for its exchange, and when the youngest exchange began."""
    end_s = clock_s + machine.compute_s
    exposed_s = 0.0
    if step.kind.endswith((" step", " exchange")):
        exposed_s = machine.exchange_s + machine.byte_s * machine.bytes_of(step.number)
    elif step.kind.endswith(" awaiting"):
        exposed_s = max(0.0, begun_s + machine.exchange_s - end_s)
    return exposed_s, (end_s + exposed_s if step.age == 0 else begun_s)


def _evaluation(step: int, clock_s: float, waited_s: float | None, met: bool) -> Event:
    mean = {"accuracy": 0.9 if met else 0.5}
    about = {"split": "validation", "step": step, "samples": step * BATCH, "clock_s": clock_s, "mean": mean}
    found = Evaluation.model_validate({**about, "target_met": met, "duration_s": 0.1})
    return found if waited_s is None else found.model_copy(update={"waited_s": waited_s})
