"""Averaging the buckets of gradients while the backward pass is still running, each under a tag of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.buckets import GradientBuffers, assign, trainable
from bwbench.methods.algorithms.communicator import Communicator, threads_for
from bwbench.methods.algorithms.finite import GradientWatch
from bwbench.methods.algorithms.memory import remember, remembered

if TYPE_CHECKING:
    import torch


class BucketExchange:
    """Hands each bucket to a communication thread as soon as all its gradients are there.

    Buckets are handed over in the same order on all ranks, however autograd happens to finish them; each has a tag of
    its own, because concurrent exchanges that share one would mix silently.
    """

    def __init__(self, context: Context, bucket_bytes: float | None) -> None:
        self._context = context
        parameters = trainable(context.model)
        buckets = assign([p.numel() for p in parameters], bucket_bytes)
        self._buffers = GradientBuffers(parameters, buckets)
        self._codecs = [
            context.codec_of([tuple(parameters[index].shape) for index in bucket], number)
            for number, bucket in enumerate(buckets)
        ]
        self._watch = GradientWatch(context.model, self._buffers, context.control)
        self._sending = False
        self._missing: list[int] = []
        self._num_launched = 0
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(parameters)
        ]
        self._communicator = Communicator(context.collective.meter, threads_for(context.collective, len(buckets)))

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model itself."""
        return self._context.model

    @property
    def buffers(self) -> GradientBuffers:
        """The gradients."""
        return self._buffers

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of the buckets as fp32."""
        return self._buffers.bucket_bytes

    def clear_gradients(self) -> None:
        """Begin a step: zeros in all buckets, nothing launched."""
        self._buffers.clear()
        self._missing = [0] * len(self._buffers.flat)
        for bucket in self._buffers.bucket_of.values():
            self._missing[bucket] += 1
        self._num_launched = 0

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Only the last micro-step's gradients are complete, so only there are buckets handed over."""
        return self._sends(last)

    def backward(self, loss: torch.Tensor) -> None:
        """Plain backward pass; the hooks do the rest."""
        import torch

        torch.autograd.backward(loss)

    def finish(self, plain_backward_s: float) -> ExchangeReport:
        """Wait for all buckets; raises at once what a communication thread raised."""
        self._launch(all_that_is_left=True)  # a parameter that the forward pass did not use has no gradient to wait for
        return self._communicator.wait()

    def reset(self) -> None:
        """Empty all residuals."""
        for codec in self._codecs:
            codec.load_state_dict({})
        self._context.collective.reset()
        self._context.collective.meter.take()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the codecs of the buckets and the collective remember."""
        return remembered(self._codecs, self._context.collective)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        remember(state, self._codecs, self._context.collective)

    def close(self) -> None:
        """End the threads once they are done with what they have, and leave the gradients to others."""
        for hook in self._hooks:
            hook.remove()
        self._communicator.close()

    @contextmanager
    def _sends(self, last: bool) -> Iterator[None]:
        self._sending = last
        try:
            yield
        finally:
            self._sending = False

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        bucket = self._buffers.bucket_of[index]

        def gradient_is_there(_: torch.Tensor) -> None:
            self._buffers.keep(index)
            if self._sending:
                self._communicator.check()
                self._missing[bucket] -= 1
                self._launch()

        return gradient_is_there

    def _launch(self, all_that_is_left: bool = False) -> None:
        """Hand over what is complete, never a bucket before its predecessor."""
        while self._num_launched < len(self._missing):
            if self._missing[self._num_launched] > 0 and not all_that_is_left:
                return
            self._communicator.submit(partial(self._average, self._num_launched))
            self._num_launched += 1

    def _average(self, bucket: int) -> None:
        self._watch.check(bucket)
        self._context.collective.average(self._buffers.flat[bucket], self._codecs[bucket], tag=bucket)
