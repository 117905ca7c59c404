"""DES-LOC: local Adam whose parameters are averaged every so many steps, and its moments more rarely."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms.algorithm import AbstractRunning, Context, payloads_of
from bwbench.methods.algorithms.buckets import views
from bwbench.methods.algorithms.periodic import (
    AbstractBucket,
    AbstractPeriodic,
    RoundSchedule,
    RoundsConfig,
    RunningPeriodic,
)
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import MakeCodec, NoCompression, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

_TIMED_MULTIPLE = 4  # periods from one mean of moments to the next: no more are needed for a round of each kind
MOMENTS = ("exp_avg", "exp_avg_sq")  # the first and the second, as torch's Adam calls them in its state


class DesLocConfig(RoundsConfig):
    """Options of ``des-loc``.

    Attributes:
        period: optimizer steps from one average of the parameters to the next.
        first_moment: such periods from one average of Adam's first moments to the next.
        second_moment: the same of its second moments.
    """

    first_moment: int = Field(3, ge=1)
    second_moment: int = Field(6, ge=1)


class DesLoc(AbstractPeriodic):
    """Local steps of Adam or AdamW; means of parameters, first and second moments, each at a period of its own.

    After Iacob et al. 2025. Moments change more slowly than parameters, the second the slowest of all, so their means
    are worth less often. They travel in fp32 whatever the codec is: of a second moment that a coarse grid rounds to
    zero the next step would be a leap, and no optimizer bears one below zero. For that reason nothing here overlaps:
    a mean that came late would have to be corrected by what happened since, which may be more than it is.
    """

    Config = DesLocConfig
    options: DesLocConfig
    virtual = True
    copies = 7.0  # of all that agree now and then, and messages of both moments
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "adamw")
    replicas_equal = "after a round"

    @classmethod
    def accepts_optimizer(cls, name: str, options: ComponentConfig) -> str | None:
        """Only Adam and AdamW, without a third moment."""
        return super().accepts_optimizer(name, options) or _amsgrad_refusal(getattr(options, "amsgrad", False))

    def rounds(self, num_parts: int) -> RoundSchedule:
        """Of parameters, first moments and second moments, in this order."""
        multiples = (1, self.options.first_moment, self.options.second_moment)[:num_parts]
        return DesyncedSchedule(self.options.period, (0,) * num_parts, multiples=multiples)

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """That of local SGD, and moments in fp32."""
        traffic = super().traffic(parameter_shapes, num_nodes, collective, make_codec)
        fp32 = payloads_of(self.layout(parameter_shapes).buckets, NoCompression)
        for periods in (self.options.first_moment, self.options.second_moment):
            moments = collective.traffic(num_nodes, fp32)
            traffic = traffic.plus(moments.scaled(1 / (periods * self.options.period)))
        return traffic

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Local steps, and rounds of as many kinds as there are sets of what is averaged together."""
        (rounds,) = super().phases(parameter_shapes)
        carried = (("first moments", self.options.first_moment), ("second moments", self.options.second_moment))
        return (replace(rounds, carried=carried),)

    def for_timing(self) -> DesLocConfig:
        """Moments as often as leaves all kinds of rounds, in a cycle that is as short as can be, and rounds closer."""
        asked = self.options
        pairs = itertools.product(range(1, _TIMED_MULTIPLE + 1), repeat=2)
        alike = [pair for pair in pairs if _kinds(*pair) == _kinds(asked.first_moment, asked.second_moment)]
        first, second = min(alike, key=lambda pair: (math.lcm(*pair), pair))
        period = min(asked.period, max(2, TIMED_PERIOD // math.lcm(first, second)))  # 2 leaves a local step
        return asked.model_copy(update={"period": period, "first_moment": first, "second_moment": second})

    def attach(self, context: Context) -> AbstractRunning:
        """Put gradients and parameters into flat buffers.

        Raises ConfigError where the optimizer is another one, or keeps a third moment.
        """
        return RunningDesLoc(context, self)


def _amsgrad_refusal(amsgrad: object) -> str | None:
    """Why Adam with its largest second moments has no means; None where it keeps none."""
    return "Adam with amsgrad=True divides by a third moment, which nobody averages; leave it out" if amsgrad else None


def _kinds(first_moment: int, second_moment: int) -> tuple[bool, bool, bool]:
    """Whether there are rounds of parameters alone, with first moments alone, and with second moments alone."""
    return (
        first_moment > 1 and second_moment > 1,
        first_moment % second_moment != 0,
        second_moment % first_moment != 0,
    )


@dataclass(frozen=True)
class DesyncedSchedule(RoundSchedule):
    """Parts with periods of their own.

    Attributes:
        multiples: of ``period``, one a part.
    """

    multiples: tuple[int, ...] = ()

    def begins(self, part: int, step: int) -> bool:
        """Whether a round of ``part`` begins after ``step``."""
        return step % (self.period * self.multiples[part]) == 0


class RunningDesLoc(RunningPeriodic):
    """One rank of ``des-loc``. Moments stay in the optimizer's state, where its next steps find them."""

    def __init__(self, context: Context, method: DesLoc) -> None:
        if not isinstance(context.optimizer, (torch.optim.Adam, torch.optim.AdamW)):
            raise ConfigError(f"the averaged moments are Adam's; got the optimizer {type(context.optimizer).__name__}")
        amsgrad = any(group.get("amsgrad") for group in context.optimizer.param_groups)
        if (refusal := _amsgrad_refusal(amsgrad)) is not None:
            raise ConfigError(refusal)
        super().__init__(context, method)

    def _lay_out(self) -> list[list[AbstractBucket]]:
        """Two parts more, each with a bucket for every one of the parameters'."""
        parts = super()._lay_out()
        (parameters,) = parts
        for part, key in enumerate(MOMENTS, start=1):
            order = iter(self._layout.order)
            parts.append([])
            for bucket in parameters:
                inside = [self._parameters[next(order)] for _ in self._layout.buckets[bucket.number]]
                number = part * len(parameters) + bucket.number
                parts[-1].append(MomentBucket(number, inside, self._context.optimizer, key))
        return parts


class MomentBucket(AbstractBucket):
    """One of Adam's moments, of the parameters of a bucket.

    Args:
        key: of the moment in the optimizer's state of a parameter.
    """

    def __init__(
        self, number: int, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer, key: str
    ) -> None:
        message = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        super().__init__(number, NoCompression(), message)
        self._optimizer, self._key = optimizer, key
        places = views(message, parameters, range(len(parameters)))
        self._places = [(parameters[index], place) for index, place in places]

    def leave(self) -> None:
        """Copy the moments; zeros where a parameter has none, because it never had a gradient."""
        self.message.zero_()
        for moment, place in self._moments():
            place.copy_(moment)

    def arrive(self) -> None:
        """Their means in place of them."""
        for moment, place in self._moments():
            moment.copy_(place)

    def _moments(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What the optimizer has now, which loading a state puts elsewhere, and its place in the message."""
        for parameter, place in self._places:
            state = self._optimizer.state.get(parameter, {})
            if self._key in state:
                yield state[self._key], place
