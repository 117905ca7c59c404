"""DiLoCo: local training with any optimizer, and a Nesterov step on what it has changed, every so many steps."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bwbench.methods.algorithms.layout import Layout, in_one_part
from bwbench.methods.algorithms.periodic import AbstractPeriodic, PeriodicConfig
from bwbench.methods.algorithms.shared_bucket import OuterStep
from bwbench.methods.compression.base import Shape


class DilocoConfig(PeriodicConfig):
    """Options of ``diloco``.

    Attributes:
        period: optimizer steps from one outer step to the next.
        overlap: steps that the nodes go on computing while pseudo-gradients are averaged; what they learn meanwhile is
            kept. 0 waits at once, ``period`` is the most; ``auto`` applies the outer step as soon as it is there.
        outer_lr: rate of the outer step; 1 without momentum takes the mean of the replicas.
        outer_momentum: Nesterov momentum of the outer step.
    """

    period: int = Field(50, ge=1)
    outer_lr: float = Field(0.7, gt=0)
    outer_momentum: float = Field(0.9, ge=0, lt=1)


class Diloco(AbstractPeriodic):
    """Inner steps with the optimizer of the experiment, outer Nesterov steps with the mean pseudo-gradient.

    After Douillard et al. 2023, who use AdamW inside; any optimizer works here.
    """

    Config = DilocoConfig
    options: DilocoConfig
    replicas_equal = "after a round"

    def layout(self, parameter_shapes: Sequence[Shape]) -> Layout:
        """Everything at once."""
        return in_one_part(parameter_shapes)

    @property
    def outer_step(self) -> OuterStep:
        """Nesterov SGD."""
        return OuterStep(self.options.outer_lr, self.options.outer_momentum)
