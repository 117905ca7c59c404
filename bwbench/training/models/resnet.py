"""Residual networks for 32x32 pictures, with GroupNorm.

He et al., "Deep residual learning for image recognition" (2015), section 4.2: 6n+2 layers, widths 16, 32, 64. We differ
in GroupNorm for BatchNorm, and in projections (their option B) where they pad with zeros (option A).
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import DataSpec
from bwbench.methods.deferred import nn, torch
from bwbench.training.models.model import AbstractPictureModel


class ResnetConfig(ComponentConfig):
    """Options of ``resnet8`` and ``resnet20``: ``width``, the channels of the first stage."""

    width: int = Field(16, ge=4, le=512)


class AbstractResnet(AbstractPictureModel):
    """Three stages of ``blocks_per_stage`` residual blocks; each stage halves the picture and doubles the channels."""

    Config: ClassVar[type[ComponentConfig]] = ResnetConfig
    reference_spec: ClassVar[DataSpec] = DataSpec((3, 32, 32), 10)
    min_side: ClassVar[int] = 8
    blocks_per_stage: ClassVar[int]
    options: ResnetConfig

    def _build(self, spec: DataSpec) -> nn.Module:
        width = self.options.width
        layers: list[nn.Module] = [
            nn.Conv2d(spec.input_shape[0], width, 3, padding=1, bias=False),
            _norm(width),
            nn.ReLU(),
        ]
        num_inputs = width
        for stage in range(3):
            num_outputs = width << stage
            for block in range(self.blocks_per_stage):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_residual_block(num_inputs, num_outputs, stride))
                num_inputs = num_outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_inputs, spec.num_classes)]
        return nn.Sequential(*layers)


class Resnet8(AbstractResnet):
    """One residual block a stage: 78,042 parameters on 3x32x32."""

    name: ClassVar[str] = "resnet8"
    parameter_range: ClassVar[tuple[int, int]] = (70_000, 90_000)
    blocks_per_stage: ClassVar[int] = 1


class Resnet20(AbstractResnet):
    """Three residual blocks a stage: 272,474 parameters on 3x32x32."""

    name: ClassVar[str] = "resnet20"
    parameter_range: ClassVar[tuple[int, int]] = (260_000, 290_000)
    blocks_per_stage: ClassVar[int] = 3


def _norm(num_channels: int) -> nn.Module:
    return nn.GroupNorm(math.gcd(num_channels, 8), num_channels)


def _residual_block(num_inputs: int, num_outputs: int, stride: int) -> nn.Module:
    """``[batch, num_inputs, h, w]`` to ``[batch, num_outputs, h / stride, w / stride]``."""

    class ResidualBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(num_inputs, num_outputs, 3, stride=stride, padding=1, bias=False),
                _norm(num_outputs),
                nn.ReLU(),
                nn.Conv2d(num_outputs, num_outputs, 3, padding=1, bias=False),
                _norm(num_outputs),
            )
            same_shape = stride == 1 and num_inputs == num_outputs
            self.shortcut = (
                nn.Identity()
                if same_shape
                else nn.Sequential(nn.Conv2d(num_inputs, num_outputs, 1, stride=stride, bias=False), _norm(num_outputs))
            )

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = nn.functional.relu(self.body(inputs) + self.shortcut(inputs))
            return result

    return ResidualBlock()
