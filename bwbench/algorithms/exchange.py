"""Averaging buckets while the backward pass is still running: two threads, a queue, a tag for each bucket."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from bwbench.algorithms.base import Context, ExchangeReport
from bwbench.algorithms.buckets import GradientBuffers, assign, trainable

if TYPE_CHECKING:
    import torch

NUM_THREADS = 2  # two buckets in flight: one fills the gaps that latency leaves in the other; more only compete
LIVENESS_CHECK_S = 1.0  # how often the main thread looks whether its threads still live; a result wakes it at once


class BucketExchange:
    """Hands each bucket to a communication thread as soon as all its gradients are there.

    Buckets are handed over in the same order on all ranks, however autograd happens to finish them; each has a tag of
    its own, because concurrent exchanges that share one would mix silently.
    """

    def __init__(self, context: Context, bucket_bytes: float | None) -> None:
        self._context = context
        parameters = trainable(context.model)
        self._buffers = GradientBuffers(parameters, assign([p.numel() for p in parameters], bucket_bytes))
        self._codecs = [context.make_codec() for _ in self._buffers.flat]
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._num_done = 0
        self._error: BaseException | None = None
        self._sending = False
        self._missing: list[int] = []
        self._num_launched = 0
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
        self._threads = [
            threading.Thread(target=self._communicate, name=f"bwbench-communication-{i}", daemon=True)
            for i in range(min(NUM_THREADS, len(self._buffers.flat)))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def module(self) -> Callable[..., torch.Tensor]:
        """The model itself."""
        return self._context.model

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
        self._num_launched = self._num_done = 0

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Only the last micro-step's gradients are complete, so only there are buckets handed over."""
        return self._sends(last)

    def backward(self, loss: torch.Tensor) -> None:
        """Plain backward pass; the hooks do the rest."""
        import torch

        torch.autograd.backward(loss)

    def finish(self, plain_backward_s: float) -> ExchangeReport:
        """Wait for all buckets; raises at once what a communication thread raised."""
        begin = time.monotonic()
        self._launch(all_that_is_left=True)  # a parameter that the forward pass did not use has no gradient to wait for
        with self._changed:
            while self._num_done < len(self._buffers.flat):
                self._raise_error()
                if not any(thread.is_alive() for thread in self._threads):
                    raise RuntimeError("the communication threads have ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of their own waits is limited by the group's timeout
            self._raise_error()
        end = time.monotonic()
        reading = self._context.collective.meter.take()
        codec_s = reading.codec_s_within(begin, end)
        return ExchangeReport(
            ready_mono_s=begin,
            exposed_s=max(0.0, end - begin - codec_s),
            codec_s=codec_s,
            payload_bytes=reading.payload_bytes,
        )

    def reset(self) -> None:
        """Empty all residuals."""
        for codec in self._codecs:
            codec.load_state_dict({})
        self._context.collective.reset()
        self._context.collective.meter.take()

    def close(self) -> None:
        """End the threads once they are done with what they have."""
        for _ in self._threads:
            self._queue.put(None)

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
                self._raise_error()
                self._missing[bucket] -= 1
                self._launch()

        return gradient_is_there

    def _launch(self, all_that_is_left: bool = False) -> None:
        """Hand over what is complete, never a bucket before its predecessor."""
        while self._num_launched < len(self._missing):
            if self._missing[self._num_launched] > 0 and not all_that_is_left:
                return
            self._queue.put(self._num_launched)
            self._num_launched += 1

    def _communicate(self) -> None:
        while (bucket := self._queue.get()) is not None:
            try:
                self._context.collective.average(self._buffers.flat[bucket], self._codecs[bucket], tag=bucket)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._num_done += 1
                self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise RuntimeError(f"communication failed: {self._error}") from self._error
