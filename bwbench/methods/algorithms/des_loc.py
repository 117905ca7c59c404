"""DES-LOC: local Adam whose parameters are averaged every so many steps, and its moments more rarely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

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
from bwbench.methods.traffic import Traffic

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
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "adamw")
    replicas_equal = "after a round"

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

    def attach(self, context: Context) -> AbstractRunning:
        """Put gradients and parameters into flat buffers. Raises ConfigError where the optimizer is another."""
        return RunningDesLoc(context, self)


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
