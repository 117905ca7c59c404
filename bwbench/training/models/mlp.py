"""Fully connected layers: several, or the single one of logistic regression, the smallest model and a convex one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import DataSpec
from bwbench.methods.deferred import nn
from bwbench.training.models.model import AbstractModel


class Logistic(AbstractModel):
    """One linear layer from the flattened input to the classes: 7,850 parameters on 28x28, 650 on 8x8."""

    name: ClassVar[str] = "logistic"
    parameter_range: ClassVar[tuple[int, int]] = (7_850, 7_850)

    def _build(self, spec: DataSpec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(spec.input_shape), spec.num_classes))


class MlpConfig(ComponentConfig):
    """Options of ``mlp``: ``hidden``, the width of each hidden layer."""

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((128, 64), min_length=1)


class Mlp(AbstractModel):
    """Hidden layers with ReLU: 109,386 parameters on 28x28, 17,226 on 8x8 by default."""

    Config: ClassVar[type[ComponentConfig]] = MlpConfig
    name: ClassVar[str] = "mlp"
    parameter_range: ClassVar[tuple[int, int]] = (100_000, 120_000)
    options: MlpConfig

    def _build(self, spec: DataSpec) -> nn.Module:
        widths = (math.prod(spec.input_shape), *self.options.hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for num_inputs, num_outputs in pairwise(widths):
            layers += [nn.Linear(num_inputs, num_outputs), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], spec.num_classes))
