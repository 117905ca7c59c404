"""Plain training on one node: the base of every algorithm that leaves gradients where they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bwbench.methods.algorithms.base import AbstractAlgorithm, Context, ExchangeReport
from bwbench.methods.algorithms.buckets import GradientBuffers, assign, trainable
from bwbench.methods.algorithms.finite import GradientWatch

if TYPE_CHECKING:
    import torch


class AbstractLocalStep(AbstractAlgorithm):
    """Gradients stay on their node, in flat buffers as in the other arms, so that computing costs the same.

    What is left to a subclass is ``traffic``, and when to average what.
    """

    def attach(self, context: Context) -> None:
        """Put the gradients into flat buffers."""
        self._optimizer = context.optimizer
        self._context = context
        self._parameters = trainable(context.model)
        self._buckets = assign([p.numel() for p in self._parameters], None)
        self._gradients = GradientBuffers(self._parameters, self._buckets)

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model itself."""
        return self._context.model

    @property
    def bucket_bytes(self) -> list[int]:
        """Nothing is averaged."""
        return []

    def clear_gradients(self) -> None:
        """Zeros everywhere."""
        self._gradients.clear()

    def backward(self, loss: torch.Tensor) -> None:
        """Plain backward pass."""
        import torch

        torch.autograd.backward(loss)

    def check_gradients(self) -> None:
        """One pass over them."""
        GradientWatch(self._context.model, self._gradients, self._context.control).check_all()

    def finish(self) -> ExchangeReport:
        """Nobody to agree with before the update."""
        return ExchangeReport(ready_mono_s=time.monotonic())

    def reset(self) -> None:
        """Nothing is remembered."""
