"""Replicas train on their own and agree on their parameters every so many steps: the base of local SGD and DiLoCo."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.algorithm import BucketsConfig, assign, payloads_of
from bwbench.methods.algorithms.buckets import ParameterBuffers, RunningLocally
from bwbench.methods.algorithms.communicator import Communicator, threads_for
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.devices import device_of
from bwbench.methods.memory import State, below, part
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic


class RoundsConfig(BucketsConfig):
    """Options of all algorithms that agree every so many steps, beside the size of their buckets.

    Attributes:
        period: optimizer steps from one round to the next.
    """

    period: int = Field(16, ge=1)


class PeriodicConfig(RoundsConfig):
    """The same where rounds may be on their way while the nodes compute.

    Attributes:
        overlap: steps that the nodes go on computing while a round is on its way; its result is applied after them,
            and whoever is early waits. 0 waits at once, ``period`` is the most.
    """

    overlap: int | Literal["auto"] = 0

    @model_validator(mode="after")
    def _overlap_ends_before_the_next_round(self) -> PeriodicConfig:
        if self.overlap != "auto" and not 0 <= self.overlap <= self.period:
            text = f"overlap {self.overlap} is out of range: 0 to {self.period}, the period"
            raise PydanticCustomError("overlap", "{text}", {"text": text})
        return self


class AbstractPeriodic(AbstractAlgorithm):
    """Local steps, and every ``period`` of them the mean of what the replicas have learnt since they last agreed.

    What is averaged is the pseudo-gradient of each bucket, the last agreed values minus the local ones; every rank
    then takes the same outer step on the agreed values. Pseudo-gradients go through the codec, whose residuals belong
    to buckets. The optimizer's own state (momentum, Adam's moments) stays local and is never reset. A method that
    averages something else has a ``bucket`` of its own.

    Rounds of a part begin after steps that depend on the step's number alone (``RoundSchedule``). A round that is on
    its way while the nodes compute changes nothing until it is applied.
    """

    Config: ClassVar[type[ComponentConfig]] = PeriodicConfig
    copies = 5.0  # parameters, gradients, what is agreed on, what leaves of it, and where it left
    options: RoundsConfig

    @property
    def overlap(self) -> int | Literal["auto"]:
        """Steps that the nodes go on computing while a round is on its way; 0 where the options name none."""
        return self.options.overlap if isinstance(self.options, PeriodicConfig) else 0

    def layout(self, parameter_shapes: Sequence[Shape], shrink: float = 1.0) -> BucketLayout:
        """What is exchanged together, by default everything; each part has rounds of its own. Pure.

        Args:
            parameter_shapes: of each parameter, in the model's order.
            shrink: they have been divided by it; what is as large as so many bytes is divided as well.
        """
        buckets = assign([math.prod(shape) for shape in parameter_shapes], self.bucket_bytes, shrink)
        shapes = tuple(tuple(parameter_shapes[index] for index in bucket) for bucket in buckets)
        return BucketLayout(tuple(index for bucket in buckets for index in bucket), (shapes,))

    def rounds(self, num_parts: int) -> RoundSchedule:
        """When rounds begin and end; the default spreads those of different parts evenly over the period. Pure."""
        period, overlap = self.options.period, self.overlap
        offsets = tuple(index * period // num_parts for index in range(num_parts))
        return RoundSchedule(period, offsets, None if overlap == "auto" else overlap)

    def message_shapes(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """What is sent of a bucket that holds tensors of these shapes; the default is as much. Pure."""
        return shapes

    def bucket(self, number: int, values: torch.Tensor, shapes: Sequence[Shape], context: Context) -> AbstractBucket:
        """What leaves of a bucket and what becomes of its mean; the default sends pseudo-gradients.

        Args:
            number: of the bucket.
            values: this rank's parameters, a view into the memory that the model works with.
            shapes: of the tensors that lie there behind one another.
        """
        return SharedBucket(number, values, context.codec_of(shapes, number), self.outer_step, self.apply)

    @property
    def outer_step(self) -> OuterStep:
        """The step on the agreed values; the default takes the mean of the replicas."""
        return OuterStep()

    def apply(self, bucket: SharedBucket) -> None:
        """Take over the agreed values; the default keeps what was learnt while they were on their way."""
        if self.overlap == 0:
            bucket.adopt()
        else:
            bucket.keep_progress()

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One exchange of every bucket in ``period`` steps."""
        sent = [self.message_shapes(shapes) for shapes in self.layout(parameter_shapes).buckets]
        traffic = collective.traffic(num_nodes, payloads_of(sent, make_codec)).scaled(1 / self.options.period)
        return replace(traffic, in_background=self.overlap != 0)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Local steps, and those that wait for a round."""
        rounds = self.rounds(len(self.layout(parameter_shapes).parts))
        phase = Phase("rounds", None, rounds.period, rounds.offsets, rounds.longest)
        return (Phase("warm-up", rounds.warm_up), phase) if rounds.warm_up else (phase,)

    def depends_on_link(self) -> str | None:
        """Rounds that are applied as soon as the link has brought them."""
        if self.overlap == "auto":
            return "with overlap: auto a round is applied as soon as the link has brought it; give a number of steps"
        return None

    def for_timing(self) -> ComponentConfig:
        """Rounds come more often, except where that would leave them less time to hide behind."""
        period = self.options.period if self.overlap else min(self.options.period, TIMED_PERIOD)
        return self.options.model_copy(update={"period": period})

    def attach(self, context: Context) -> AbstractRunning:
        """Put gradients and parameters into flat buffers; what the replicas start from is what they agree on."""
        return RunningPeriodic(context, self)


@dataclass(frozen=True)
class _UnderWay:
    """What of one part is on its way: the step after which it left, and the jobs that exchange its buckets."""

    begun_step: int
    jobs: list[int]


class RunningPeriodic(RunningLocally):
    """One rank of a method that agrees every so many steps.

    Attributes:
        buckets: of all parts, in the order of their numbers.
    """

    _steps_key = "step"

    def __init__(self, context: Context, method: AbstractPeriodic) -> None:
        super().__init__(context)
        self._method = method
        self._layout = method.layout([tuple(parameter.shape) for parameter in self._parameters], context.shrink)
        self._parts = self._lay_out()
        self.buckets = [bucket for buckets in self._parts for bucket in buckets]
        self.bucket_bytes = [bucket.message.nbytes for bucket in self.buckets]
        self._rounds = context.rounds(len(self.buckets))
        self._schedule = method.rounds(len(self._parts))
        self._under_way: list[_UnderWay | None] = [None] * len(self._parts)
        num_threads = threads_for(context.collective, len(self.buckets))
        device = device_of(self._parameters[0])
        self._communicator = Communicator(context.collective.meter, num_threads, device)

    def after_update(self) -> ExchangeReport | None:
        """Apply the rounds that are due, begin those whose turn it is; without overlap wait for them at once."""
        self._num_steps += 1
        self._communicator.check()
        reports = list(self._end_rounds(self._due))
        for index in range(len(self._parts)):
            if self._schedule.begins(index, self._num_steps):
                self._begin_round(index)
        reports += self._end_rounds(self._due)
        return reduce(ExchangeReport.plus, reports) if reports else None

    def agreement_step(self, step: int) -> int:
        """The step in which the next round has been applied; steps are numbered from 1 as here."""
        return self._schedule.agreement_step(step)

    def rehearse(self, plain_backward_s: float) -> None:
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
        for bucket in self.buckets:
            bucket.reset()
        super().reset()

    def state_dict(self) -> State:
        """Steps taken, agreed values, outer momentum and residuals of all buckets, what the collective remembers."""
        state = super().state_dict()
        for bucket in self.buckets:
            state |= below(f"bucket.{bucket.number}.", bucket.state_dict())
        return state

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        for bucket in self.buckets:
            bucket.load_state_dict(part(state, f"bucket.{bucket.number}."))

    def close(self) -> None:
        """End the communication threads."""
        self._communicator.close()

    def _lay_out(self) -> list[list[AbstractBucket]]:
        """Put the parameters into flat memory; gives the buckets of each part, numbered throughout."""
        (flat,) = ParameterBuffers(self._parameters, [self._layout.order]).flat
        parts: list[list[AbstractBucket]] = []
        offset = number = 0
        for part_shapes in self._layout.parts:
            parts.append([])
            for shapes in part_shapes:
                values = flat[offset : offset + sum(math.prod(shape) for shape in shapes)]
                parts[-1].append(self._method.bucket(number, values, shapes, self._context))
                offset, number = offset + values.numel(), number + 1
        return parts

    def _due(self, under_way: _UnderWay) -> bool:
        early = self._schedule.overlap is None and self._communicator.done(under_way.jobs)
        return early or self._schedule.due(under_way.begun_step, self._num_steps)

    def _begin_round(self, index: int) -> None:
        jobs = []
        for bucket in self._parts[index]:
            with emulated_time.work_on_vectors():
                bucket.leave()
            jobs.append(self._communicator.submit(partial(self._average, bucket)))
        self._under_way[index] = _UnderWay(self._num_steps, jobs)

    def _average(self, bucket: AbstractBucket) -> None:
        self._context.collective.average(bucket.message, bucket.codec, self._rounds[bucket.number])

    def _end_rounds(self, ends: Callable[[_UnderWay], bool]) -> Iterator[ExchangeReport]:
        """Wait for the rounds that ``ends`` chooses, apply them, and give what waiting for each cost."""
        for index, under_way in enumerate(self._under_way):
            if under_way is None or not ends(under_way):
                continue
            yield self._communicator.wait(under_way.jobs)
            for bucket in self._parts[index]:
                with emulated_time.work_on_vectors():
                    bucket.arrive()
            self._under_way[index] = None


class AbstractBucket(abc.ABC):
    """What is exchanged together on one rank: the message that leaves, and what becomes of its mean.

    The order is ``leave`` and, once ``message`` has become its mean over the ranks, ``arrive``.

    Attributes:
        number: of the bucket, which marks its messages.
        codec: encodes the message; its residual belongs to this bucket.
        message: fp32 vector where the model lies.
    """

    def __init__(self, number: int, codec: AbstractCodec, message: torch.Tensor) -> None:
        self.number, self.codec, self.message = number, codec, message

    @abc.abstractmethod
    def leave(self) -> None:
        """Fill the message."""

    @abc.abstractmethod
    def arrive(self) -> None:
        """Take over its mean."""

    def settle(self) -> None:  # noqa: B027 (not all remember what was agreed on)
        """The local values are those that all ranks agree on."""

    def reset(self) -> None:
        """Settle on the local values and forget everything else."""
        self.settle()
        self.codec.load_state_dict({})

    def state_dict(self) -> State:
        """What the codec remembers, and whatever else the next rounds need."""
        return below("codec.", self.codec.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self.codec.load_state_dict(part(state, "codec."))


class SharedBucket(AbstractBucket):
    """Local values, agreed values and pseudo-gradient of one bucket, fp32 vectors of the same length.

    Attributes:
        values: this rank's parameters, a view into the memory that the model works with.
        agreed: the last values that all ranks agreed on, the same bits everywhere.
        message: the pseudo-gradient, ``agreed`` minus ``values``; its mean once it has arrived.

    Args:
        take_over: what follows the outer step: one of ``adopt``, ``keep_progress`` and ``mix``.
    """

    def __init__(
        self,
        number: int,
        values: torch.Tensor,
        codec: AbstractCodec,
        outer: OuterStep,
        take_over: Callable[[SharedBucket], None],
    ) -> None:
        super().__init__(number, codec, torch.zeros_like(values))
        self.values = values
        self.agreed = values.clone()
        self._outer, self._take_over = outer, take_over
        self._left = torch.zeros_like(values)  # what this node had when the message left
        self._velocity = torch.zeros_like(values) if outer.momentum else None

    def leave(self) -> None:
        """Take the pseudo-gradient."""
        torch.sub(self.agreed, self.values, out=self.message)
        self._left.copy_(self.values)

    def arrive(self) -> None:
        """Take the outer step with the mean pseudo-gradient, and go on from there."""
        self._step()
        self._take_over(self)

    def adopt(self) -> None:
        """Go on from the agreed values."""
        self.values.copy_(self.agreed)

    def keep_progress(self) -> None:
        """Go on from the agreed values plus what this rank has learnt since ``leave``."""
        self.values.sub_(self._left).add_(self.agreed)

    def mix(self, local_share: float) -> None:
        """Go on from a weighted mean of the local and the agreed values."""
        self.values.lerp_(self.agreed, 1.0 - local_share)

    def settle(self) -> None:
        """The local values are those that all ranks agree on."""
        self.agreed.copy_(self.values)

    def reset(self) -> None:
        """Settle on the local values and forget everything else."""
        super().reset()
        if self._velocity is not None:
            self._velocity.zero_()

    def state_dict(self) -> State:
        """Agreed values, outer momentum, and what the codec remembers."""
        state = {"agreed": self.agreed.clone()}
        if self._velocity is not None:
            state["velocity"] = self._velocity.clone()
        return state | super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self.agreed.copy_(state["agreed"])
        if self._velocity is not None:
            self._velocity.copy_(state["velocity"])
        super().load_state_dict(state)

    def _step(self) -> None:
        """Move the agreed values along the message, which is used up."""
        step = self.message
        if self._velocity is not None:
            self._velocity.mul_(self._outer.momentum).add_(step)
            step.add_(self._velocity, alpha=self._outer.momentum)
        self.agreed.sub_(step, alpha=self._outer.lr)


@dataclass(frozen=True)
class OuterStep:
    """Nesterov SGD on the agreed values, with the mean of the pseudo-gradients as its gradient; as torch's SGD.

    Rate 1 without momentum takes the mean of the local values.
    """

    lr: float = 1.0
    momentum: float = 0.0


@dataclass(frozen=True)
class RoundSchedule:
    """Rounds of every part, in steps that are numbered from 1.

    Which rounds have begun after a step follows from its number alone. All ranks begin the same rounds in the same
    order, whatever their speed: nobody can wait for a round that a peer has not begun and will not begin.

    Attributes:
        period: steps from one round of a part to its next.
        offsets: of each part; it begins a round after every step that leaves this remainder, counted from ``warm_up``.
        overlap: steps from the begin of a round to the step after which its result is applied, at most ``period``;
            None for as soon as it is there, which is ``period`` steps later at the latest.
        warm_up: no round begins in the first steps, this many.
    """

    period: int
    offsets: tuple[int, ...] = (0,)
    overlap: int | None = 0
    warm_up: int = 0

    def begins(self, part: int, step: int) -> bool:
        """Whether a round of ``part`` begins after ``step``."""
        counted = step - self.warm_up
        return counted > 0 and (counted - self.offsets[part]) % self.period == 0

    def due(self, begun_step: int, step: int) -> bool:
        """Whether the result of a round that began after ``begun_step`` has to be applied after ``step``."""
        return step - begun_step >= self.longest

    @property
    def longest(self) -> int:
        """Steps from the begin of a round to the last step in which its result may be applied."""
        return self.period if self.overlap is None else self.overlap

    def agreement_step(self, step: int) -> int:
        """The first step that a rank completes only after all others have begun ``step``.

        That is the one in which the next round that begins, of any part, has been applied.
        """
        if step <= self.warm_up:  # gradients are averaged in these
            return step
        counted = step - self.warm_up
        next_begin = min(counted + (offset - counted) % self.period for offset in self.offsets)
        return self.warm_up + next_begin + self.longest


@dataclass(frozen=True)
class BucketLayout:
    """Which parameters are exchanged together: all parameters behind one another, cut into buckets.

    Attributes:
        order: indices of the parameters, in the order in which they lie.
        parts: what is exchanged together: by part and bucket, the shapes of the tensors in it. A tensor may be cut
            between two of its rows; its pieces then count as tensors.
    """

    order: tuple[int, ...]
    parts: tuple[tuple[tuple[Shape, ...], ...], ...]

    @property
    def buckets(self) -> list[tuple[Shape, ...]]:
        """Of all parts, in order."""
        return [bucket for part in self.parts for bucket in part]
