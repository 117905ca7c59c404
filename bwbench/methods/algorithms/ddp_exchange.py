"""Averaging inside torch's DistributedDataParallel."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.buckets import ELEMENT_BYTES, trainable
from bwbench.methods.algorithms.ddp_hooks import HookMemory, hook_buckets, hook_payloads, register_hook
from bwbench.methods.algorithms.finite import watch_parameters

if TYPE_CHECKING:
    import torch

BYTES_PER_MIB = 1024 * 1024


class DdpExchange:
    """DistributedDataParallel on the data network, as users run it.

    Its ``backward`` returns when all buckets are averaged. How much of that was waiting cannot be seen from outside:
    estimated is what it took longer than a backward pass without communication.

    Args:
        hook: state and function of a communication hook in place of the one that the codec stands for.
    """

    def __init__(
        self, context: Context, bucket_bytes: float | None, hook: tuple[Any, Callable[..., Any]] | None = None
    ) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self._context = context
        known = inspect.signature(DistributedDataParallel).parameters  # names have come and gone since torch 2.4
        # Models here have no buffers that change, and a broadcast in every step would be charged to the method.
        options: dict[str, Any] = {
            "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
        }
        if "init_sync" in known:  # replicas start equal by their seed; sending them over the link may take minutes
            options["init_sync"] = False
        codec = context.make_codec()
        shapes = [tuple(parameter.shape) for parameter in trainable(context.model)]
        elements = [parameter.numel() for parameter in trainable(context.model)]
        self._buckets = [sum(elements[i] for i in bucket) for bucket in hook_buckets(elements, bucket_bytes, codec)]
        if len(self._buckets) == 1:  # torch's limit on the first bucket is another one where it is not told any
            bucket_bytes = max(bucket_bytes or 0, *self.bucket_bytes, BYTES_PER_MIB)
        if bucket_bytes is not None:
            options["bucket_cap_mb"] = bucket_bytes / BYTES_PER_MIB
        watch_parameters(context.model, context.control)  # before DDP's own hooks, so that it sees what is sent
        self._ddp = DistributedDataParallel(context.model, process_group=context.data_group, **options)
        assert context.data_group is not None
        if hook is not None:
            self._ddp.register_comm_hook(*hook)
        self._memory = HookMemory(None) if hook else register_hook(self._ddp, codec, context.data_group)
        payloads = hook_payloads(shapes, bucket_bytes, codec)
        self._traffic = context.collective.traffic(context.collective.size, payloads)
        self._backward_s = 0.0
        self._begin_mono_s = 0.0

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The wrapper."""
        return self._ddp

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of torch's buckets (ours follow the same rule)."""
        return [ELEMENT_BYTES * elements for elements in self._buckets]

    def clear_gradients(self) -> None:
        """As torch's optimizers do it."""
        self._ddp.zero_grad(set_to_none=True)

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """``no_sync`` for all but the last micro-step."""
        return nullcontext() if last else self._ddp.no_sync()

    def backward(self, loss: torch.Tensor) -> None:
        """Backward and averaging in one."""
        import torch

        self._begin_mono_s = time.monotonic()
        torch.autograd.backward(loss)
        self._backward_s = time.monotonic() - self._begin_mono_s

    def finish(self, plain_backward_s: float) -> ExchangeReport:
        """Nothing left to wait for; splits the backward pass into computing and waiting."""
        waited_s = max(0.0, self._backward_s - plain_backward_s)
        return ExchangeReport(
            ready_mono_s=self._begin_mono_s + self._backward_s - waited_s,
            exposed_s=waited_s,
            hidden_s=waited_s,
            payload_bytes=round(self._traffic.payload_bytes_per_rank[self._context.collective.rank]),
        )

    def reset(self) -> None:
        """Forget what PowerSGD remembers."""
        self._memory.reset()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Residual and factors of PowerSGD; empty for the others."""
        return self._memory.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave. A new process begins with two steps without compression all the same."""
        self._memory.load_state_dict(state)

    def close(self) -> None:
        """Nothing to close."""
