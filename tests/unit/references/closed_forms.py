"""What the references are held against: small replicas with smooth gradients, and torch on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SHAPES = [(4, 3), (5,), (2, 3, 2)]


LENGTH = 29


LR = 0.05


def start(ranks: int, seed: int = 0) -> list[list[Tensor]]:
    """Equal random parameters on all ranks."""
    torch.manual_seed(seed)
    one = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
    return [[tensor.clone() for tensor in one] for _ in range(ranks)]


def gradient_at(rank: int, tensors: list[Tensor], t: int = 0) -> list[Tensor]:
    """Some smooth gradient that differs by rank, step and place."""
    return [
        torch.sin(tensor * (rank + 1)) + 0.3 * tensor + 0.1 * math.cos(3 * t + 7 * rank + index)
        for index, tensor in enumerate(tensors)
    ]


def gradients_of(replicas: Any, t: int = 0) -> list[list[Tensor]]:
    """The gradients of all ranks at their present parameters."""
    return [gradient_at(rank, tensors, t) for rank, tensors in enumerate(replicas.parameters)]


def run(replicas: Any, steps: int, watch: Callable[[int], None] | None = None) -> Any:
    """So many steps."""
    for t in range(steps):
        replicas.step(gradients_of(replicas, t))
        if watch:
            watch(t)
    return replicas


def flat(tensors: list[Tensor]) -> Tensor:
    """One vector in the tensors' own order."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def same(one: Any, other: Any, tolerance: float = 1e-11) -> None:
    """All ranks of two replicas hold the same values."""
    assert len(one.parameters) == len(other.parameters)
    for a, b in zip(one.parameters, other.parameters, strict=True):
        torch.testing.assert_close(flat(a), flat(b), rtol=tolerance, atol=tolerance)


def torch_run(make: Callable[[list[Tensor]], torch.optim.Optimizer], ranks: int, steps: int) -> Tensor:
    """A torch optimizer with the mean gradient of `ranks` ranks at one set of parameters."""
    tensors = start(1)[0]
    optimizer = make(tensors)
    for t in range(steps):
        every = [gradient_at(rank, tensors, t) for rank in range(ranks)]
        for index, tensor in enumerate(tensors):
            tensor.grad = sum(grads[index] for grads in every) / ranks
        optimizer.step()
    return flat(tensors)


def near(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> None:
    """Equal within rounding."""
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
