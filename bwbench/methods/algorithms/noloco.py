"""NoLoCo: outer steps with one other node in place of all: no all-reduce, and nobody waits for more than its peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field

from bwbench.methods.algorithms.algorithm import AbstractRunning, Context
from bwbench.methods.algorithms.decentralized import weight_codec_refusal
from bwbench.methods.algorithms.periodic import (
    AbstractPeriodic,
    OuterStep,
    PeriodicConfig,
    RunningPeriodic,
    SharedBucket,
)
from bwbench.methods.compression.codec import AbstractCodec, Shape
from bwbench.methods.deferred import torch


class NolocoConfig(PeriodicConfig):
    """Options of ``noloco``.

    Attributes:
        period: optimizer steps from one outer step to the next.
        overlap: steps that the nodes go on computing while two of them exchange what they have; what they learn
            meanwhile is kept. 0 waits at once, ``period`` is the most; ``auto`` steps as soon as the peer's is there.
        outer_lr: of the outer step, for what the pair has changed.
        outer_momentum: of the outer step.
        pull: of the outer values towards the pair's mean; 1 takes the mean.
    """

    period: int = Field(50, ge=1)
    outer_lr: float = Field(0.7, gt=0)
    outer_momentum: float = Field(0.5, ge=0, lt=1)
    pull: float = Field(1.0, gt=0)


class Noloco(AbstractPeriodic):
    """Inner steps with the optimizer of the experiment, outer steps with a peer, another one each time.

    After Kolehmainen et al. 2025. A node has outer values phi and trains theta from there. With a bar for the mean over
    the pair, and Delta = phi - theta::

        delta = alpha delta - beta Delta_bar - gamma (phi - phi_bar),    phi = theta = phi + delta

    Both means are one: what is exchanged is gamma phi - beta Delta, half of what the two take.
    """

    Config = NolocoConfig
    options: NolocoConfig
    virtual = True
    copies = 6.0  # of all that agree now and then, and the outer momentum
    averages_partially = True
    preferred_collective = "gossip-pair"
    replicas_equal = "never"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that keep weights nearly as they are."""
        return weight_codec_refusal(codec())

    @property
    def outer_step(self) -> OuterStep:
        """Without Nesterov's look ahead."""
        return OuterStep(self.options.outer_lr, self.options.outer_momentum)

    def bucket(self, number: int, values: torch.Tensor, shapes: Sequence[Shape], context: Context) -> PairedBucket:
        """Outer values of this node's own."""
        codec = context.codec_of(shapes, number)
        return PairedBucket(number, values, codec, self.outer_step, self.options.pull, self.apply)

    def attach(self, context: Context) -> AbstractRunning:
        """Put gradients and parameters into flat buffers."""
        return RunningNoloco(context, self)


class RunningNoloco(RunningPeriodic):
    """One rank of ``noloco``."""

    def agreement_step(self, step: int) -> int:
        """When news have reached all, from pair to pair."""
        period = self._schedule.period
        rounds = self._context.collective.rounds_to_reach_all((step - 1) // period, self._context.members.size)
        return super().agreement_step(step) + (rounds - 1) * period


class PairedBucket(SharedBucket):
    """Values, and the outer values that this node steps from, ``agreed``, in which nobody else has to agree.

    Args:
        pull: gamma.
    """

    def __init__(
        self,
        number: int,
        values: torch.Tensor,
        codec: AbstractCodec,
        outer: OuterStep,
        pull: float,
        take_over: Callable[[SharedBucket], None],
    ) -> None:
        super().__init__(number, values, codec, outer, take_over)
        self._pull = pull

    def leave(self) -> None:
        """Fill the message: gamma phi - beta Delta."""
        torch.sub(self.values, self.agreed, out=self.message).mul_(self._outer.lr)
        self.message.add_(self.agreed, alpha=self._pull)
        self._left.copy_(self.values)

    def _step(self) -> None:
        step = self.message.sub_(self.agreed, alpha=self._pull)
        if self._velocity is not None:
            step = self._velocity.mul_(self._outer.momentum).add_(step)
        self.agreed.add_(step)
