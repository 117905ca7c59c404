"""Average the gradients in every optimizer step: synchronous data parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.algorithms.base import AbstractAlgorithm, Context, ExchangeReport
from bwbench.algorithms.buckets import bucket_payloads
from bwbench.algorithms.ddp_exchange import DdpExchange
from bwbench.algorithms.ddp_hooks import hook_payloads
from bwbench.algorithms.exchange import BucketExchange
from bwbench.collectives.base import AbstractCollective
from bwbench.compression.base import AbstractCodec, Shape
from bwbench.config.component import ComponentConfig
from bwbench.plan.traffic import Traffic
from bwbench.units import Memory

if TYPE_CHECKING:
    import torch


class EveryStepConfig(ComponentConfig):
    """Options of ``every-step``.

    Attributes:
        bucket_bytes: size of a bucket of gradients, as fp32. None takes torch's own sizes: 1 MiB for the first, 25 MiB
            for the others. Small buckets begin to be sent earlier in the backward pass; each one costs the latency of
            a whole exchange.
    """

    bucket_bytes: Memory | None = Field(None, alias="bucket")


class EveryStep(AbstractAlgorithm):
    """All replicas take the same step, with the mean of all gradients.

    Buckets are exchanged while the backward pass is still running. With micro-steps (``accumulate``) the gradients of
    all of them are added up first and exchanged once.
    """

    Config = EveryStepConfig
    options: EveryStepConfig
    _exchange: BucketExchange | DdpExchange

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """One exchange of every bucket."""
        if collective.wraps_model:
            payloads = hook_payloads(parameter_shapes, self.options.bucket_bytes, make_codec())
        else:
            payloads = bucket_payloads(parameter_shapes, self.options.bucket_bytes, make_codec)
        return collective.traffic(num_nodes, payloads)

    def attach(self, context: Context) -> None:
        """Wrap the model (torch's DDP) or hook into its gradients (all others)."""
        self._optimizer = context.optimizer
        self.overlap_estimated = context.collective.wraps_model
        exchange = DdpExchange if context.collective.wraps_model else BucketExchange
        self._exchange = exchange(context, self.options.bucket_bytes)

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model, or DDP around it."""
        return self._exchange.module

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of the buckets as fp32."""
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
        """Wait until every bucket holds the mean."""
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
