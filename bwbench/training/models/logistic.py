"""Logistic regression: the smallest model, and a convex one."""

from __future__ import annotations

import math
from typing import ClassVar

from bwbench.base.data_spec import DataSpec
from bwbench.methods.deferred import nn
from bwbench.training.models.model import AbstractModel


class Logistic(AbstractModel):
    """One linear layer from the flattened input to the classes: 7,850 parameters on 28x28, 650 on 8x8."""

    name: ClassVar[str] = "logistic"
    parameter_range: ClassVar[tuple[int, int]] = (7_850, 7_850)

    def _build(self, spec: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(spec.input_shape), spec.num_classes))
