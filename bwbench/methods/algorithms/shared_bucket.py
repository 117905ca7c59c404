"""A bucket of parameters that ranks agree on now and then: local values, the last agreed ones, what is on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bwbench.methods.algorithms.memory import State, part
from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OuterStep:
    """Nesterov SGD on the agreed values, with the mean of the pseudo-gradients as its gradient; as torch's SGD.

    Rate 1 without momentum takes the mean of the local values.
    """

    lr: float = 1.0
    momentum: float = 0.0


class SharedBucket:
    """Local values, agreed values and pseudo-gradient of one bucket, fp32 vectors of the same length.

    The order is ``leave`` and, once ``pseudo_gradient`` has become its mean over the ranks, ``arrive`` and one of
    ``adopt``, ``keep_progress`` and ``mix``.

    Attributes:
        number: of the bucket, which marks its messages.
        values: this rank's parameters, a view into the memory that the model works with.
        codec: encodes the pseudo-gradient; its residual belongs to this bucket.
        agreed: the last values that all ranks agreed on, the same bits everywhere.
        pseudo_gradient: ``agreed`` minus ``values``; becomes the mean over all ranks while it is exchanged.
    """

    def __init__(self, number: int, values: torch.Tensor, codec: AbstractCodec, outer: OuterStep) -> None:
        import torch

        self.number, self.values, self.codec = number, values, codec
        self.agreed = values.clone()
        self.pseudo_gradient = torch.zeros_like(values)
        self._outer = outer
        self._left_with = torch.zeros_like(values)
        self._velocity = torch.zeros_like(values) if outer.momentum else None

    def leave(self) -> None:
        """Take the pseudo-gradient."""
        import torch

        torch.sub(self.agreed, self.values, out=self.pseudo_gradient)
        self._left_with.copy_(self.values)

    def arrive(self) -> None:
        """Take the outer step with the mean pseudo-gradient."""
        step = self.pseudo_gradient
        if self._velocity is not None:
            self._velocity.mul_(self._outer.momentum).add_(step)
            step.add_(self._velocity, alpha=self._outer.momentum)
        self.agreed.sub_(step, alpha=self._outer.lr)

    def adopt(self) -> None:
        """Go on from the agreed values."""
        self.values.copy_(self.agreed)

    def keep_progress(self) -> None:
        """Go on from the agreed values plus what this rank has learnt since ``leave``."""
        self.values.sub_(self._left_with).add_(self.agreed)

    def mix(self, local_share: float) -> None:
        """Go on from a weighted mean of the local and the agreed values."""
        self.values.lerp_(self.agreed, 1.0 - local_share)

    def settle(self) -> None:
        """The local values are those that all ranks agree on."""
        self.agreed.copy_(self.values)

    def reset(self) -> None:
        """Settle on the local values and forget everything else."""
        self.settle()
        if self._velocity is not None:
            self._velocity.zero_()
        self.codec.load_state_dict({})

    def state_dict(self) -> State:
        """Agreed values, outer momentum, and what the codec remembers."""
        state = {"agreed": self.agreed.clone()}
        if self._velocity is not None:
            state["velocity"] = self._velocity.clone()
        return state | {f"codec.{key}": value for key, value in self.codec.state_dict().items()}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self.agreed.copy_(state["agreed"])
        if self._velocity is not None:
            self._velocity.copy_(state["velocity"])
        self.codec.load_state_dict(part(state, "codec."))
