"""A method of the program and its reference: what the cases of all families are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bwbench.methods.collectives.transport import split
from tests.references.replicas import Replicas
from tests.references.rules import Tensors
from tests.references.side_by_side import (
    SGD,
    Feed,
    Method,
    Optimizer,
    Setting,
    Trained,
    differences,
    falling,
    last_bits,
    path_of,
    path_of_reference,
    roundtrip,
)

ELEMENTS = 698  # of the model
STEEP = falling(0.01)  # from a rate to a hundredth of it: what units a residual is kept in then shows
INT8, INT4, INT2 = roundtrip("int8"), roundtrip("int4"), roundtrip("int2")
TOLERANCE = 5e-6  # parameters are fp32, whose last bit is 6e-8 of them, after each of the steps
NEARBY = 8  # paths of the reference in fp32, whose gradients differ in what that leaves open
GROWTH = 3.0  # times the furthest of these: a chance of 1 in 9 to be the furthest is no bound
Make = Callable[[Setting], Replicas]


def always(step: int) -> bool:
    return True


def never(step: int) -> bool:
    return False


def rounds_of(period: int, warmup: int = 0) -> Callable[[int], bool]:
    return lambda step: step < warmup or (step + 1 - warmup) % period == 0


@dataclass(frozen=True)
class Case:
    """A method and its reference.

    Attributes:
        equal: after which steps all replicas hold the same bits.
        tolerance: of the difference, in units of the way.
        grows: whether what is kept from step to step makes much of a last bit. From a step on where the reference, in
            fp32 as the program is, and given gradients that differ in a last bit, gets further apart than
            ``tolerance`` from itself, that rules.
        ties: share of the parameters that may differ by more: those of which one value, that lay between two levels of
            a codec, fell to the other one, because the last bit of it depends on the order of additions.
        dtype: that the reference computes in; fp32 where it has to meet the same levels.
        feed: what the reference is given, of the gradients of all ranks.
    """

    name: str
    method: Method
    make: Make
    ranks: tuple[int, ...] = (2, 3, 4)
    equal: Callable[[int], bool] = always
    tolerance: float = TOLERANCE
    grows: bool = False
    ties: float = 0.0
    dtype: torch.dtype = torch.float64
    feed: Feed = lambda reference, gradients: gradients

    def apart(self, trained: Trained) -> tuple[Tensor, Tensor]:
        """Differences of program and reference, [steps, parameters], and what is allowed of them, [steps, 1]."""
        expected = self._reference(trained, self.feed, self.dtype)
        allowed = torch.full((len(expected), 1), self.tolerance, dtype=torch.float64)
        for seed in range(NEARBY if self.grows else 0):
            nearby = self._reference(trained, lambda _, gradients, seed=seed: _moved(gradients, seed), torch.float32)
            growth = differences(trained, nearby, expected).amax(1, keepdim=True)
            allowed = torch.maximum(allowed, GROWTH * growth)
        return differences(trained, path_of(trained), expected), allowed

    def _reference(self, trained: Trained, feed: Feed, dtype: torch.dtype) -> Tensor:
        return path_of_reference(trained, self.make, self.method.rate, dtype, feed)


def _moved(gradients: list[Tensors], seed: int) -> list[Tensors]:
    return [last_bits(tensors, len(gradients) * seed + rank) for rank, tensors in enumerate(gradients)]


def every_step(collective: Any, compression: Any = "none", optimizer: Optimizer = SGD, **options: Any) -> Method:
    return Method("every-step", collective, compression, optimizer, **options)


def even_cut(length: int, parts: int) -> list[tuple[int, int]]:
    """How the program cuts buckets: the chunks differ by one element at most, wherever the longer ones lie."""
    return split(0, length, parts)
