"""Gradients and parameters in flat buckets: where they lie, who looks at them, and how they are exchanged.

Buckets of gradients are averaged while the backward pass is still running, in threads beside computing. Gradients that
are not finite are caught on the rank where they arise, before it sends them. Buffers lie where the model does.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from bwbench.methods.algorithms.algorithm import ELEMENT_BYTES, AbstractRunning, Context, ExchangeReport, assign
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Meter
from bwbench.methods.compression.codec import Shape
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State, remember, remembered

Diverged = Callable[[str], None]  # ``Control.diverged``: ends training on all ranks, saying what was found
NUM_THREADS = 2  # two buckets in flight: one fills the gaps that latency leaves in the other; more only compete
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the others still live; a result wakes it at once


class ParameterBuffers:
    """One flat fp32 buffer a bucket; the values of each parameter are a view into one of them.

    Parameters stay the objects that they are, for optimizers and state dicts; only their memory moves.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buckets: Sequence[Sequence[int]]) -> None:
        self.shapes: list[list[Shape]] = []
        self.flat: list[torch.Tensor] = []
        for bucket in buckets:
            self.shapes.append([tuple(parameters[index].shape) for index in bucket])
            flat = torch.cat([parameters[index].detach().reshape(-1) for index in bucket])
            offset = 0
            for index in bucket:
                parameter = parameters[index]
                parameter.data = flat[offset : offset + parameter.numel()].view_as(parameter)
                offset += parameter.numel()
            self.flat.append(flat)

    @property
    def bucket_bytes(self) -> list[int]:
        """Size of each buffer."""
        return [ELEMENT_BYTES * flat.numel() for flat in self.flat]


class GradientBuffers:
    """One flat fp32 buffer a bucket; ``gradient`` of each parameter is a view into one of them.

    Autograd adds into an existing gradient in place, so that nothing is copied before or after averaging.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buckets: Sequence[Sequence[int]]) -> None:
        self.parameters = list(parameters)
        self.flat: list[torch.Tensor] = []
        self.bucket_of: dict[int, int] = {}
        self._views: dict[int, torch.Tensor] = {}
        for number, bucket in enumerate(buckets):
            length = sum(parameters[index].numel() for index in bucket)
            flat = torch.zeros(length, device=parameters[bucket[0]].device)
            offset = 0
            for index in bucket:
                parameter = parameters[index]
                self._views[index] = flat[offset : offset + parameter.numel()].view_as(parameter)
                self.bucket_of[index] = number
                offset += parameter.numel()
            self.flat.append(flat)
        self.clear()

    def clear(self) -> None:
        """Set all gradients to zero, in place."""
        for flat in self.flat:
            flat.zero_()
        for index in self._views:
            self.keep(index, copy=False)

    def keep(self, index: int, *, copy: bool = True) -> None:
        """Put a parameter's gradient back into its buffer, where something has given it one elsewhere."""
        parameter, view = self.parameters[index], self._views[index]
        if parameter.grad is view:
            return
        if copy and parameter.grad is not None:
            view.copy_(parameter.grad)
        parameter.grad = view

    def view(self, index: int) -> torch.Tensor:
        """The place of a parameter's gradient in its buffer."""
        return self._views[index]

    @property
    def bucket_bytes(self) -> list[int]:
        """Size of each buffer."""
        return [ELEMENT_BYTES * flat.numel() for flat in self.flat]


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that get gradients, in the model's order; each once. Raises ValueError where one is not fp32."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ValueError(f"a parameter of {parameter.dtype}: models are trained in fp32 here")
    return parameters


def is_finite(values: torch.Tensor) -> bool:
    """Whether no value is nan or infinite. One pass; a second one only where the sum leaves it open.

    A finite sum has finite terms only. The converse fails where large values add up beyond the range of their type.
    """
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def gradient_names(model: torch.nn.Module) -> list[str]:
    """Names of the parameters that get gradients, in the order of ``trainable``."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


class GradientWatch:
    """Looks at buckets of gradients before they are used.

    What is not finite is told to ``diverged`` and becomes zero, so that peers and their residuals receive
    nothing that would spoil them in the step in which training ends.
    """

    def __init__(self, model: torch.nn.Module, buffers: GradientBuffers, diverged: Diverged) -> None:
        self._model, self._buffers, self._diverged = model, buffers, diverged

    def check(self, bucket: int) -> None:
        """Look at one bucket of this rank's own gradients; from any thread, before anything of it is sent."""
        flat = self._buffers.flat[bucket]
        if is_finite(flat):
            return
        for index, number in self._buffers.bucket_of.items():
            if number == bucket and not is_finite(gradient := self._buffers.view(index)):
                self._diverged(_what(gradient_names(self._model)[index], gradient))
                break
        flat.zero_()

    def check_all(self) -> None:
        """Look at all buckets."""
        for bucket in range(len(self._buffers.flat)):
            self.check(bucket)


def watch_parameters(model: torch.nn.Module, diverged: Diverged) -> None:
    """The same for gradients that go through no buffers of ours: a hook a parameter, before anyone else's."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_hook(_checked(name, diverged))  # type: ignore[no-untyped-call]


def _checked(name: str, diverged: Diverged) -> Callable[[torch.Tensor], torch.Tensor | None]:
    def check(gradient: torch.Tensor) -> torch.Tensor | None:
        if is_finite(gradient):
            return None
        diverged(_what(name, gradient))
        return torch.zeros_like(gradient)

    return check


def _what(name: str, gradient: torch.Tensor) -> str:
    found = "nan" if bool(gradient.isnan().any()) else "inf"
    return f"the gradient of {name} holds {found}"


class RunningLocally(AbstractRunning):
    """Plain training on one rank: the base of every method that leaves gradients where they are.

    They lie in flat buffers as in the other arms, so that computing costs the same. What is left to a subclass is when
    to average what.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._parameters = trainable(context.model)
        self._buckets = assign([p.numel() for p in self._parameters], None)
        self._gradients = GradientBuffers(self._parameters, self._buckets)

    def begin_step(self) -> None:
        """Zeros everywhere."""
        self._gradients.clear()

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """One pass over them."""
        GradientWatch(self._context.model, self._gradients, self._context.control.diverged).check_all()

    def finish(self) -> ExchangeReport:
        """Nobody to agree with before the update."""
        return ExchangeReport(ready_mono_s=time.monotonic())


class BucketExchange(AbstractRunning):
    """Hands each bucket to a communication thread as soon as all its gradients are there.

    Buckets are handed over in the same order on all ranks, however autograd happens to finish them; each has a tag of
    its own, because concurrent exchanges that share one would mix silently.
    """

    def __init__(self, context: Context, bucket_bytes: float | None) -> None:
        super().__init__(context)
        self._lay_out(bucket_bytes)

    def begin_step(self) -> None:
        """Zeros in all buckets, nothing launched."""
        self._buffers.clear()
        self._missing = [0] * len(self._buffers.flat)
        for bucket in self._buffers.bucket_of.values():
            self._missing[bucket] += 1
        self._num_launched = 0

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Only the last micro-step's gradients are complete, so only there are buckets handed over."""
        return self._sends(last=last)

    def finish(self) -> ExchangeReport:
        """Wait for all buckets; raises at once what a communication thread raised."""
        self._launch(all_that_is_left=True)  # a parameter that the forward pass did not use has no gradient to wait for
        return self._communicator.wait()

    def reset(self) -> None:
        """Empty all residuals."""
        self._context.forget(self._codecs)

    def state_dict(self) -> State:
        """What the codecs of the buckets and the collective remember."""
        return remembered(self._codecs, self._context.collective)

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        remember(state, self._codecs, self._context.collective)

    def close(self) -> None:
        """End the threads once they are done with what they have, and leave the gradients to others."""
        for hook in self._hooks:
            hook.remove()
        self._communicator.close()

    @property
    def buffers(self) -> GradientBuffers:
        """The gradients."""
        return self._buffers

    def _lay_out(self, bucket_bytes: float | None) -> None:
        """Put the gradients into buckets of this size, and hook into them."""
        context = self._context
        parameters = trainable(context.model)
        buckets = assign([p.numel() for p in parameters], bucket_bytes)
        self._buffers = GradientBuffers(parameters, buckets)
        self.bucket_bytes = self._buffers.bucket_bytes
        self._codecs = [
            context.codec_of([tuple(parameters[index].shape) for index in bucket], number)
            for number, bucket in enumerate(buckets)
        ]
        self._rounds = context.rounds(len(buckets))
        self._watch = GradientWatch(context.model, self._buffers, context.control.diverged)
        self._sending = False
        self._missing = [0] * len(buckets)
        self._num_launched = 0
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(parameters)
        ]
        self._communicator = Communicator(context.collective.meter, threads_for(context.collective, len(buckets)))

    @contextmanager
    def _sends(self, *, last: bool) -> Iterator[None]:
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

    def _launch(self, *, all_that_is_left: bool = False) -> None:
        """Hand over what is complete, never a bucket before its predecessor."""
        while self._num_launched < len(self._missing):
            if self._missing[self._num_launched] > 0 and not all_that_is_left:
                return
            self._communicator.submit(partial(self._average, self._num_launched))
            self._num_launched += 1

    def _average(self, bucket: int) -> None:
        self._watch.check(bucket)
        self._context.collective.average(self._buffers.flat[bucket], self._codecs[bucket], self._rounds[bucket])


def threads_for(collective: AbstractCollective, num_buckets: int) -> int:
    """How many threads may exchange the buckets of one algorithm: one where torch numbers the messages itself.

    Torch's own all-reduce has no tag: calls are matched by their order, which two threads would not keep.
    """
    return 1 if collective.wraps_model else min(NUM_THREADS, max(1, num_buckets))


class Communicator:
    """Runs jobs in threads of its own; what one of them raises is raised by the next ``check`` or ``wait``.

    All ranks submit the same jobs in the same order. Threads take them in this order, so that the oldest job that is
    not done everywhere has a thread on every rank: jobs that wait for their peers cannot wait in a circle. ``submit``
    and ``wait`` belong to one thread.
    """

    def __init__(self, meter: Meter, num_threads: int = NUM_THREADS) -> None:
        self._meter = meter
        self._queue: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._num_submitted = 0
        self._unfinished: set[int] = set()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"bwbench-communication-{i}", daemon=True)
            for i in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], None]) -> int:
        """Have ``job`` run as soon as a thread is free; returns its number, for ``wait`` and ``done``."""
        number = self._num_submitted
        self._num_submitted += 1
        with self._changed:
            self._unfinished.add(number)
        self._queue.put((number, job))
        return number

    @property
    def idle(self) -> bool:
        """Whether everything that was submitted is done."""
        return not self._unfinished

    def done(self, jobs: Iterable[int]) -> bool:
        """Whether these jobs are done."""
        return self._unfinished.isdisjoint(jobs)

    def check(self) -> None:
        """Raise RuntimeError where a job has failed."""
        if self._error is not None:
            raise RuntimeError(f"communication failed: {self._error}") from self._error

    def wait(self, jobs: Iterable[int] | None = None) -> ExchangeReport:
        """Wait until these jobs are done, all of them by default; returns what that cost.

        Raises at once what any job raised. The report counts the bytes of jobs that are still on their way as far as
        they have been sent; the next report counts the rest.
        """
        begin = time.monotonic()
        with self._changed:
            awaited = set(self._unfinished if jobs is None else jobs)
            while not self.done(awaited):
                self.check()
                if not any(thread.is_alive() for thread in self._threads):
                    raise RuntimeError("the communication threads have ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of their own waits is limited by the group's timeout
            self.check()
        end = time.monotonic()
        reading = self._meter.take()
        codec_s = reading.codec_s_within(begin, end)
        return ExchangeReport(
            ready_mono_s=begin,
            exposed_s=max(0.0, end - begin - codec_s),
            codec_s=codec_s,
            payload_bytes=reading.payload_bytes,
        )

    def close(self) -> None:
        """End the threads once they are done with what they have. Safe to call twice."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, job = item
            try:
                job()
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._unfinished.discard(number)
                self._changed.notify_all()
