"""A model whose gradients have the sizes of ResNet-50's, without its convolutions: 161 tensors, 25.56 M parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

PARAMETERS = 25_557_032  # of torchvision's resnet50


def shapes() -> Iterator[tuple[int, ...]]:
    """Of torchvision's resnet50, in its order."""
    yield from ((64, 3, 7, 7), (64,), (64,))
    incoming = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, incoming, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                yield from (shape, (shape[0],), (shape[0],))
            if block == 0:
                yield from ((4 * width, incoming, 1, 1), (4 * width,), (4 * width,))
            incoming = 4 * width
    yield from ((1000, 2048), (1000,))


class ResNet50Sized(nn.Module):
    """One layer after the other takes part in the loss, so that gradients come in the usual order, last first.

    Each tensor of two or more dimensions is a matrix that takes ``width`` features there and back: the time of a pass
    is set by ``repeats``, and is not ResNet-50's.
    """

    def __init__(self, width: int = 256, repeats: int = 1) -> None:
        super().__init__()
        self.width, self.repeats = width, repeats
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(shape, generator=generator)) for shape in shapes()
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[batch, width]`` there and back."""
        features = inputs
        for weight in self.weights:
            if weight.dim() == 1:
                features = features + weight.mean()
                continue
            matrix = weight.reshape(weight.shape[0], -1)
            cut = min(self.width, matrix.shape[1])
            for _ in range(self.repeats):
                turned = features[:, :cut] @ matrix[:, :cut].t()
                features = features + 0.1 * torch.tanh(turned.mean(1, keepdim=True)) + 0.0 * matrix.mean()
        return features
