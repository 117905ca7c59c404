"""Replicas train on their own and agree on their parameters every so many steps: the base of local SGD and DiLoCo."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.buckets import ELEMENT_BYTES, ParameterBuffers
from bwbench.methods.algorithms.communicator import Communicator, threads_for
from bwbench.methods.algorithms.layout import Layout
from bwbench.methods.algorithms.local_step import AbstractLocalStep
from bwbench.methods.algorithms.memory import State, part
from bwbench.methods.algorithms.round_schedule import RoundSchedule
from bwbench.methods.algorithms.shared_bucket import OuterStep, SharedBucket
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

_STEP = "step"  # key in the state dict


class PeriodicConfig(ComponentConfig):
    """Options of all algorithms that agree every so many steps.

    Attributes:
        period: optimizer steps from one round to the next.
        overlap: steps that the nodes go on computing while a round is on its way; its result is applied after them,
            and whoever is early waits. 0 waits at once, ``period`` is the most.
    """

    period: int = Field(16, ge=1)
    overlap: int | Literal["auto"] = 0

    @model_validator(mode="after")
    def _overlap_ends_before_the_next_round(self) -> PeriodicConfig:
        if self.overlap != "auto" and not 0 <= self.overlap <= self.period:
            text = f"overlap {self.overlap} is out of range: 0 to {self.period}, the period"
            raise PydanticCustomError("overlap", "{text}", {"text": text})
        return self


@dataclass(frozen=True)
class _Round:
    """What of one part is on its way: the step after which it left, and the jobs that exchange its buckets."""

    begun_step: int
    jobs: list[int]


class AbstractPeriodic(AbstractLocalStep):
    """Local steps, and every ``period`` of them the mean of what the replicas have learnt since they last agreed.

    What is averaged is the pseudo-gradient of each bucket, the last agreed values minus the local ones; every rank
    then takes the same outer step on the agreed values. Pseudo-gradients go through the codec, whose residuals belong
    to buckets. The optimizer's own state (momentum, Adam's moments) stays local and is never reset.

    Rounds of a part begin after steps that depend on the step's number alone (``RoundSchedule``). A round that is on
    its way while the nodes compute changes nothing until it is applied.
    """

    Config = PeriodicConfig
    options: PeriodicConfig

    @abc.abstractmethod
    def layout(self, parameter_shapes: Sequence[Shape]) -> Layout:
        """What is exchanged together; each part has rounds of its own. Pure."""

    def rounds(self, num_parts: int) -> RoundSchedule:
        """When rounds begin and end; the default spreads those of different parts evenly over the period. Pure."""
        period, overlap = self.options.period, self.options.overlap
        offsets = tuple(index * period // num_parts for index in range(num_parts))
        return RoundSchedule(period, offsets, None if overlap == "auto" else overlap)

    @property
    def outer_step(self) -> OuterStep:
        """The step on the agreed values; the default takes the mean of the replicas."""
        return OuterStep()

    def apply(self, bucket: SharedBucket) -> None:
        """Take over the agreed values; the default keeps what was learnt while they were on their way."""
        if self.options.overlap == 0:
            bucket.adopt()
        else:
            bucket.keep_progress()

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """One exchange of every bucket in ``period`` steps."""
        payloads = []
        for number, shapes in enumerate(self.layout(parameter_shapes).buckets):
            codec = make_codec()
            codec.prepare(shapes, bucket=number)
            payloads += codec.payloads(sum(math.prod(shape) for shape in shapes))
        traffic = collective.traffic(num_nodes, payloads).scaled(1 / self.options.period)
        return replace(traffic, in_background=self.options.overlap != 0)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Local steps, and those that wait for a round."""
        rounds = self.rounds(len(self.layout(parameter_shapes).parts))
        phase = Phase("rounds", None, rounds.period, rounds.offsets, rounds.longest)
        return (Phase("warm-up", rounds.warm_up), phase) if rounds.warm_up else (phase,)

    def depends_on_link(self) -> str | None:
        """Rounds that are applied as soon as the link has brought them."""
        if self.options.overlap == "auto":
            return "with overlap: auto a round is applied as soon as the link has brought it; give a number of steps"
        return None

    def for_timing(self) -> ComponentConfig:
        """Rounds come more often, except where that would leave them less time to hide behind."""
        period = self.options.period if self.options.overlap else min(self.options.period, TIMED_PERIOD)
        return self.options.model_copy(update={"period": period})

    def attach(self, context: Context) -> None:
        """Put gradients and parameters into flat buffers; what the replicas start from is what they agree on."""
        super().attach(context)
        layout = self.layout([tuple(parameter.shape) for parameter in self._parameters])
        (flat,) = ParameterBuffers(self._parameters, [layout.order]).flat
        self._parts: list[list[SharedBucket]] = []
        offset = number = 0
        for part_shapes in layout.parts:
            self._parts.append([])
            for shapes in part_shapes:
                values = flat[offset : offset + sum(math.prod(shape) for shape in shapes)]
                codec = context.codec_of(shapes, number)
                self._parts[-1].append(SharedBucket(number, values, codec, self.outer_step))
                offset, number = offset + values.numel(), number + 1
        self._schedule = self.rounds(len(self._parts))
        self._under_way: list[_Round | None] = [None] * len(self._parts)
        self._step = 0
        self._communicator = Communicator(context.collective.meter, threads_for(context.collective, number))

    @property
    def buckets(self) -> list[SharedBucket]:
        """Of all parts, in the order of their numbers."""
        return [bucket for buckets in self._parts for bucket in buckets]

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of the buckets of parameters."""
        return [ELEMENT_BYTES * bucket.values.numel() for bucket in self.buckets]

    def after_update(self) -> ExchangeReport | None:
        """Apply the rounds that are due, begin those whose turn it is; without overlap wait for them at once."""
        self._step += 1
        self._communicator.check()
        reports = list(self._end_rounds(self._due))
        for index in range(len(self._parts)):
            if self._schedule.begins(index, self._step):
                self._begin_round(index)
        reports += self._end_rounds(self._due)
        return reduce(ExchangeReport.plus, reports) if reports else None

    def agreement_step(self, step: int) -> int:
        """The step in which the next round has been applied; steps are numbered from 1 as here."""
        return self._schedule.agreement_step(step)

    def rehearse(self) -> None:
        """One round of every part."""
        self.drain()
        for index in range(len(self._parts)):
            self._begin_round(index)
        self.drain()

    def drain(self) -> int:
        """Wait for the rounds that are on their way and apply them now. No other round is begun early."""
        return sum(report.payload_bytes for report in self._end_rounds(lambda _: True))

    def reset(self) -> None:
        """What this rank holds now is what all agree on; residuals and outer momentum are empty."""
        self._step = 0
        for bucket in self.buckets:
            bucket.reset()
        self._context.collective.reset()
        self._context.collective.meter.take()

    def state_dict(self) -> State:
        """Steps taken, agreed values, outer momentum and residuals of all buckets, what the collective remembers."""
        import torch

        state = {_STEP: torch.tensor(self._step)}
        state |= {f"collective.{key}": value for key, value in self._context.collective.state_dict().items()}
        for bucket in self.buckets:
            state |= {f"bucket.{bucket.number}.{key}": value for key, value in bucket.state_dict().items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self._step = int(state[_STEP])
        self._context.collective.load_state_dict(part(state, "collective."))
        for bucket in self.buckets:
            bucket.load_state_dict(part(state, f"bucket.{bucket.number}."))

    def close(self) -> None:
        """End the communication threads."""
        self._communicator.close()

    def _due(self, under_way: _Round) -> bool:
        early = self._schedule.overlap is None and self._communicator.done(under_way.jobs)
        return early or self._schedule.due(under_way.begun_step, self._step)

    def _begin_round(self, index: int) -> None:
        jobs = []
        for bucket in self._parts[index]:
            bucket.leave()
            jobs.append(self._communicator.submit(partial(self._average, bucket)))
        self._under_way[index] = _Round(self._step, jobs)

    def _average(self, bucket: SharedBucket) -> None:
        self._context.collective.average(bucket.pseudo_gradient, bucket.codec, tag=bucket.number)

    def _end_rounds(self, ends: Callable[[_Round], bool]) -> Iterator[ExchangeReport]:
        """Wait for the rounds that ``ends`` chooses, apply them, and give what waiting for each cost."""
        for index, under_way in enumerate(self._under_way):
            if under_way is None or not ends(under_way):
                continue
            yield self._communicator.wait(under_way.jobs)
            for bucket in self._parts[index]:
                bucket.arrive()
                self.apply(bucket)
            self._under_way[index] = None
