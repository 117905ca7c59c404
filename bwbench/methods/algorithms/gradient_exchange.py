"""What algorithms have in common that exchange gradients, or what follows from them, while the backward pass runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from bwbench.methods.algorithms.base import AbstractAlgorithm, ExchangeReport

if TYPE_CHECKING:
    import torch

    from bwbench.methods.algorithms.ddp_exchange import DdpExchange
    from bwbench.methods.algorithms.exchange import BucketExchange


class AbstractGradientExchange(AbstractAlgorithm):
    """Leaves a step's gradients to an exchange that ``attach`` makes; what a subclass does otherwise it overrides."""

    _exchange: BucketExchange | DdpExchange

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model, or what the exchange wraps around it."""
        return self._exchange.module

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of the exchange's buckets as fp32."""
        return self._exchange.bucket_bytes

    def clear_gradients(self) -> None:
        """Begin a step."""
        self._exchange.clear_gradients()

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Sending begins in the last micro-step."""
        return self._exchange.micro_step(last)

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass; full buckets leave meanwhile."""
        self._exchange.backward(loss)

    def finish(self) -> ExchangeReport:
        """Wait until every bucket is there."""
        return self._exchange.finish(self.plain_backward_s)

    def reset(self) -> None:
        """Empty the residuals."""
        self._exchange.reset()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The residuals."""
        return self._exchange.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._exchange.load_state_dict(state)

    def close(self) -> None:
        """End the communication threads."""
        self._exchange.close()
