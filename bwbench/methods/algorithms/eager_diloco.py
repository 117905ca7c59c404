"""Eager DiLoCo: an outer step with a node's own fresh share and the others' of the round before, so nobody waits."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bwbench.methods.algorithms.algorithm import Context
from bwbench.methods.algorithms.periodic import AbstractPeriodic, OuterStep, RoundsConfig, SharedBucket
from bwbench.methods.compression.codec import AbstractCodec, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State


class EagerDilocoConfig(RoundsConfig):
    """Options of ``eager-diloco``.

    Attributes:
        period: optimizer steps from one outer step to the next; a mean has as many to arrive.
        outer_lr: rate of the outer step.
        outer_momentum: Nesterov momentum of the outer step.
    """

    period: int = Field(30, ge=1)
    outer_lr: float = Field(0.7, gt=0)
    outer_momentum: float = Field(0.9, ge=0, lt=1)


class EagerDiloco(AbstractPeriodic):
    """DiLoCo in which the mean pseudo-gradient of a round is on its way until the next one begins.

    After Kale et al. 2025. The outer gradient of node m in round t takes of the mean what is there::

        d_m = 1/N Delta_m^t + 1/N sum of Delta_j^(t-1) over j != m  =  mean^(t-1) + (Delta_m^t - Delta_m^(t-1)) / N

    with Delta = 0 before the first round. Every node has outer values and a momentum of its own. They stay together:
    what one node has added to its own values in a round, the others add in the next.
    """

    Config = EagerDilocoConfig
    options: EagerDilocoConfig
    virtual = True
    copies = 6.0  # of all that agree now and then, and the outer momentum
    replicas_equal = "never"

    @property
    def overlap(self) -> int:
        """The whole period."""
        return self.options.period

    @property
    def outer_step(self) -> OuterStep:
        """Nesterov SGD."""
        return OuterStep(self.options.outer_lr, self.options.outer_momentum)

    def bucket(self, number: int, values: torch.Tensor, shapes: Sequence[Shape], context: Context) -> EagerBucket:
        """With its own share kept apart."""
        return EagerBucket(number, values, context.codec_of(shapes, number), self.outer_step, context.members.size)


class EagerBucket(SharedBucket):
    """Values, outer values, and what of the mean is this node's own; ``agreed`` is what this node steps from.

    Kept of what left is the pseudo-gradient itself, as it was before the codec. It is taken off again when the mean
    arrives, in which the codec's version of it stands, so that in the end all nodes have added up the same.
    """

    def __init__(
        self, number: int, values: torch.Tensor, codec: AbstractCodec, outer: OuterStep, num_nodes: int
    ) -> None:
        super().__init__(number, values, codec, outer, SharedBucket.adopt)
        self._share = 1 / num_nodes

    def leave(self) -> None:
        """Take the outer step with what is here: the mean that has arrived, and the fresh pseudo-gradient."""
        self.message.sub_(self._left, alpha=self._share)
        torch.sub(self.agreed, self.values, out=self._left)
        self.message.add_(self._left, alpha=self._share)
        self._step()
        self.adopt()
        self.message.copy_(self._left)

    def arrive(self) -> None:
        """The mean waits for the next round."""

    def reset(self) -> None:
        """Before the first round."""
        super().reset()
        self.message.zero_()
        self._left.zero_()

    def state_dict(self) -> State:
        """The mean that waits, and what this node has sent, too."""
        return {"mean": self.message.clone(), "left": self._left.clone()} | super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        self.message.copy_(state["mean"])
        self._left.copy_(state["left"])
