"""Average the gradients in every optimizer step: synchronous data parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.units import MemoryOrAuto
from bwbench.methods.algorithms.base import Context
from bwbench.methods.algorithms.bucket_tuning import best_bucket_bytes
from bwbench.methods.algorithms.buckets import bucket_payloads, trainable
from bwbench.methods.algorithms.ddp_exchange import DdpExchange
from bwbench.methods.algorithms.ddp_hooks import hook_payloads
from bwbench.methods.algorithms.exchange import BucketExchange
from bwbench.methods.algorithms.gradient_exchange import AbstractGradientExchange
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.phases import Phase
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch

_BUCKET = "bucket_bytes"  # key in the state dict


class EveryStepConfig(ComponentConfig):
    """Options of ``every-step``.

    Attributes:
        bucket_bytes: size of a bucket of gradients, as fp32. None takes torch's own sizes: 1 MiB for the first, 25 MiB
            for the others. Small buckets begin to be sent earlier in the backward pass; each one costs the latency of
            a whole exchange. ``auto`` chooses by the link and by the backward pass that the warm-up has measured, the
            same size on all nodes; torch's own sizes where no link is known, and inside torch's DDP.
    """

    bucket_bytes: MemoryOrAuto | None = Field(None, alias="bucket")

    @property
    def fixed_bucket_bytes(self) -> float | None:
        """The size that was asked for; None for torch's own, which ``auto`` begins with."""
        return None if self.bucket_bytes == "auto" else self.bucket_bytes


class EveryStep(AbstractGradientExchange):
    """All replicas take the same step, with the mean of all gradients.

    Buckets are exchanged while the backward pass is still running. With micro-steps (``accumulate``) the gradients of
    all of them are added up first and exchanged once.
    """

    Config = EveryStepConfig
    mean_of = "gradients"
    options: EveryStepConfig

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """One exchange of every bucket."""
        if collective.wraps_model:
            payloads = hook_payloads(parameter_shapes, self.options.fixed_bucket_bytes, make_codec())
        else:
            payloads = bucket_payloads(parameter_shapes, self.options.fixed_bucket_bytes, make_codec)
        return collective.traffic(num_nodes, payloads)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """All steps are alike."""
        return (Phase("training"),)

    def depends_on_link(self) -> str | None:
        """Buckets that are chosen by the link: codecs work on buckets."""
        if self.options.bucket_bytes == "auto":
            return "bucket: auto cuts the gradients by the link's speed; give a size"
        return None

    def attach(self, context: Context) -> None:
        """Wrap the model (torch's DDP) or hook into its gradients (all others)."""
        self._optimizer = context.optimizer
        self.overlap_estimated = context.collective.wraps_model
        exchange = DdpExchange if context.collective.wraps_model else BucketExchange
        self._exchange = exchange(context, self.options.fixed_bucket_bytes)
        self._context = context
        self._chosen_bytes: float | None = None

    def rehearse(self) -> None:
        """Choose the size of the buckets where that is wanted, and make them anew."""
        link = self._context.collective.link
        if self.options.bucket_bytes != "auto" or not isinstance(self._exchange, BucketExchange):
            return
        if link is None or not link.shaped:
            return
        self._choose(best_bucket_bytes(self._elements(), self._mean_backward_s(), link, self._traffic_of_bucket))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The residuals, and the size of the buckets that they belong to where it was chosen here."""
        import torch

        chosen = {} if self._chosen_bytes is None else {_BUCKET: torch.tensor(self._chosen_bytes, dtype=torch.float64)}
        return super().state_dict() | chosen

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; another size that was measured since then is given up."""
        if _BUCKET in state:
            self._choose(float(state[_BUCKET]))
        super().load_state_dict({key: value for key, value in state.items() if key != _BUCKET})

    def _choose(self, bucket_bytes: float) -> None:
        self._exchange.close()
        self._exchange = BucketExchange(self._context, bucket_bytes)
        self._chosen_bytes = bucket_bytes

    def _elements(self) -> list[int]:
        return [parameter.numel() for parameter in trainable(self._context.model)]

    def _mean_backward_s(self) -> float:
        """Of all nodes, so that they choose alike."""
        import torch

        measured_s = torch.tensor([self.plain_backward_s])
        self._context.control.average(measured_s)
        return float(measured_s)

    def _traffic_of_bucket(self, elements: int) -> Traffic:
        codec, collective = self._context.make_codec(), self._context.collective
        codec.prepare([(elements,)])
        return collective.traffic(collective.size, codec.payloads(elements))
