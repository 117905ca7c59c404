"""One node alone: the arm that asks whether a second node is worth it at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bwbench.algorithms.base import AbstractAlgorithm, Context, ExchangeReport
from bwbench.algorithms.buckets import GradientBuffers, assign, trainable
from bwbench.collectives.base import AbstractCollective
from bwbench.compression.base import AbstractCodec
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch


class Single(AbstractAlgorithm):
    """Plain training, with the gradients in flat buffers as in the other arms, so that computing costs the same."""

    needs_peers = False
    sends = False

    def traffic(
        self, parameter_elements: Sequence[int], num_nodes: int, collective: AbstractCollective, codec: AbstractCodec
    ) -> Traffic:
        """Nothing."""
        return Traffic.none(num_nodes)

    def attach(self, context: Context) -> None:
        """Put the gradients into one buffer."""
        self._model = context.model
        parameters = trainable(context.model)
        self._buffers = GradientBuffers(parameters, assign([p.numel() for p in parameters], None))

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model itself."""
        return self._model

    @property
    def bucket_bytes(self) -> list[int]:
        """Nothing is averaged."""
        return []

    def clear_gradients(self) -> None:
        """Zeros everywhere."""
        self._buffers.clear()

    def backward(self, loss: torch.Tensor) -> None:
        """Plain backward pass."""
        import torch

        torch.autograd.backward(loss)

    def finish(self) -> ExchangeReport:
        """Nobody to agree with."""
        return ExchangeReport(ready_mono_s=time.monotonic())

    def reset(self) -> None:
        """Nothing is remembered."""
