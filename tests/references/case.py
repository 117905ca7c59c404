"""A method of the program and its reference: what the cases of all families are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bwbench.methods.collectives.transport import split
from tests.references.replicas import Replicas
from tests.references.side_by_side import SGD, Feed, Method, Optimizer, Setting, falling, roundtrip

ELEMENTS = 698  # of the model
STEEP = falling(0.01)  # from a rate to a hundredth of it: what units a residual is kept in then shows
INT8, INT4, INT2 = roundtrip("int8"), roundtrip("int4"), roundtrip("int2")
TOLERANCE = 5e-6  # parameters are fp32, whose last bit is 6e-8 of them, after each of the steps
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
    ties: float = 0.0
    dtype: torch.dtype = torch.float64
    feed: Feed = lambda reference, gradients: gradients


def every_step(collective: Any, compression: Any = "none", optimizer: Optimizer = SGD, **options: Any) -> Method:
    return Method("every-step", collective, compression, optimizer, **options)


def even_cut(length: int, parts: int) -> list[tuple[int, int]]:
    """How the program cuts buckets: the chunks differ by one element at most, wherever the longer ones lie."""
    return split(0, length, parts)
