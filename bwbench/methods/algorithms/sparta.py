"""SPARTA: in every step the mean of a few parameters, drawn anew each time; LOSCAR: every so many steps, and late."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.algorithm import Context
from bwbench.methods.algorithms.decentralized import weight_codec_refusal
from bwbench.methods.algorithms.periodic import AbstractBucket, AbstractPeriodic, PeriodicConfig
from bwbench.methods.buffers import moved_like, tensor_of
from bwbench.methods.compression.codec import AbstractCodec, Shape
from bwbench.methods.compression.random_k import places
from bwbench.methods.compression.sparse import entries_at
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State


class SpartaConfig(PeriodicConfig):
    """Options of ``sparta``.

    Attributes:
        period: optimizer steps from one average to the next.
        overlap: steps that the nodes go on computing while an average is formed; what they learn meanwhile is kept.
            0 waits at once, ``period`` is the most; ``auto`` applies it as soon as it is there.
        ratio: share of the parameters of each bucket that is averaged each time; at least one is.
    """

    period: int = Field(1, ge=1)
    ratio: float = Field(0.005, gt=0.0, le=1.0)


class Sparta(AbstractPeriodic):
    """The mean of parameters at places that follow from bucket and round alone, the same on all ranks.

    After Beton et al. 2025 (SPARTA), and Maziane et al. 2026 (LOSCAR-SGD) for means that come late: with the mask S of
    a round, y what a node had when it left, z what it has when the mean is there::

        x_j = mean(y)_j + (z_j - y_j)  where j is in S,    x_j = z_j  elsewhere

    Without overlap z = y, and the mean is taken as it is.
    """

    Config = SpartaConfig
    options: SpartaConfig
    virtual = True
    replicas_equal = "never"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that keep weights nearly as they are."""
        return weight_codec_refusal(codec())

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self.copies = 2.0 + 4.0 * self.options.ratio  # beside parameters and gradients: message, places, where it left

    def message_shapes(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """The chosen values."""
        return [(entries_at(self.options.ratio, sum(map(math.prod, shapes))),)]

    def bucket(self, number: int, values: torch.Tensor, shapes: Sequence[Shape], context: Context) -> MaskedBucket:
        """Of which some places are averaged."""
        chosen = self.message_shapes(shapes)
        return MaskedBucket(number, values, context.codec_of(chosen, number), chosen[0][0], late=self.overlap != 0)


class MaskedBucket(AbstractBucket):
    """Parameters of which a few are averaged, others in each round.

    Args:
        values: this rank's parameters, a view into the memory that the model works with.
        count: how many are averaged.
        late: the node goes on computing meanwhile.
    """

    def __init__(self, number: int, values: torch.Tensor, codec: AbstractCodec, count: int, *, late: bool) -> None:
        super().__init__(number, codec, values.new_zeros(count))
        self._values, self._late = values, late
        self._left = torch.zeros_like(self.message)  # what this node had when the message left
        self._round = 0

    def leave(self) -> None:
        """Draw places, and take what is there."""
        drawn = places(self.number, self._round, self._values.numel(), self.message.numel())
        self._where = moved_like(tensor_of(drawn), self._values)
        self._round += 1
        torch.index_select(self._values, 0, self._where, out=self.message)
        self._left.copy_(self.message)

    def arrive(self) -> None:
        """The means in place of what left; what was learnt meanwhile is kept."""
        if self._late:
            self._values.index_add_(0, self._where, self.message.sub_(self._left))
        else:
            self._values.index_copy_(0, self._where, self.message)

    def reset(self) -> None:
        """Begin with round 0."""
        super().reset()
        self._round = 0

    def state_dict(self) -> State:
        """The number of the next round, too."""
        return {"round": torch.tensor(self._round)} | super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self._round = int(state["round"])
        super().load_state_dict(state)
