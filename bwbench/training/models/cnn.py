"""Convolutional networks in two sizes: most parameters in a dense layer, so much to send for little computing."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import DataSpec
from bwbench.methods.deferred import nn, torch
from bwbench.training.models.model import AbstractPictureModel


def channels_last() -> nn.Module:
    """A layer that changes nothing but the order in memory, from NCHW to NHWC; the layers behind it keep that order.

    It stands behind the first convolution: pictures of one channel have no order of their own to go by. With it a
    training step of our cnn models takes 0.75 to 0.85 of the time on a core, and an evaluation half
    (torch.channels_last; https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html).
    """

    class ChannelsLast(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.contiguous(memory_format=torch.channels_last)

    return ChannelsLast()


class CnnConfig(ComponentConfig):
    """Options of ``cnn``.

    Attributes:
        width: channels of the first convolution; the second has twice as many.
        hidden: width of the dense layer before the classes; 0 leaves it out, which makes the model small and, on
            easy data, faster to learn.
    """

    width: int = Field(16, ge=1, le=1024)
    hidden: int = Field(128, ge=0, le=16_384)


class Cnn(AbstractPictureModel):
    """Two convolutions, each with GroupNorm, ReLU and pooling, then a dense layer.

    ``factors`` are the channels of the convolutions in units of ``width``; a picture is halved behind two of them.
    207,018 parameters on 28x28, 22,698 on 8x8; with ``{width: 20, hidden: 0}`` 9,170 on 8x8.
    """

    Config: ClassVar[type[ComponentConfig]] = CnnConfig
    name: ClassVar[str] = "cnn"
    parameter_range: ClassVar[tuple[int, int]] = (180_000, 220_000)
    min_side: ClassVar[int] = 4
    factors: ClassVar[tuple[int, ...]] = (1, 2)
    options: CnnConfig | CnnLargeConfig

    def _build(self, spec: DataSpec) -> nn.Module:
        num_inputs, height, width = spec.input_shape
        layers: list[nn.Module] = []
        for stage, factor in enumerate(self.factors):
            num_outputs = factor * self.options.width
            groups = math.gcd(num_outputs, 4)  # 1, 4 and 8 groups learn digits alike; 4 divides most widths
            layers.append(nn.Conv2d(num_inputs, num_outputs, 3, padding=1))
            if stage == 0:
                layers.append(channels_last())
            layers += [nn.GroupNorm(groups, num_outputs), nn.ReLU()]
            if stage < 2:
                layers.append(nn.MaxPool2d(2))
            num_inputs = num_outputs
        num_features = num_inputs * (height // 4) * (width // 4)
        layers.append(nn.Flatten())
        if hidden := self.options.hidden:
            layers += [nn.Linear(num_features, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden or num_features, spec.num_classes))


class CnnLargeConfig(ComponentConfig):
    """Options of ``cnn-large``: channels of the first convolution, and width of the dense layer."""

    width: int = Field(32, ge=1, le=1024)
    hidden: int = Field(192, ge=0, le=16_384)


class CnnLarge(Cnn):
    """Three convolutions of width, 2·width and 4·width channels, each with GroupNorm and ReLU, then a dense layer.

    1,299,466 parameters on 28x28 by default.
    """

    Config: ClassVar[type[ComponentConfig]] = CnnLargeConfig
    name: ClassVar[str] = "cnn-large"
    parameter_range: ClassVar[tuple[int, int]] = (1_000_000, 2_000_000)
    factors: ClassVar[tuple[int, ...]] = (1, 2, 4)
