"""Gradients and parameters in flat buckets: where they lie, who looks at them, and how they are exchanged.

Buckets of gradients are averaged while the backward pass is still running, in threads beside computing. Gradients that
are not finite are caught on the rank where they arise, before it sends them. Buffers lie where the model does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from bwbench.base import emulated_time
from bwbench.methods.algorithms.algorithm import (
    AbstractRunning,
    Context,
    Control,
    ExchangeReport,
    NonFinite,
    UserLoop,
    assign,
)
from bwbench.methods.algorithms.learning_rates import LearningRates
from bwbench.methods.buffers import empty_fp32
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Meter
from bwbench.methods.compression.codec import Shape
from bwbench.methods.deferred import torch

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
            length = sum(parameters[index].numel() for index in bucket)
            self.flat.append(torch.empty(length, device=parameters[bucket[0]].device))
            for index, view in views(self.flat[-1], parameters, bucket):
                view.copy_(parameters[index].detach())
                parameters[index].data = view


class GradientBuffers:
    """One flat fp32 buffer a bucket; ``gradient`` of each parameter is a view into one of them.

    Autograd adds into an existing gradient in place, so that nothing is copied before or after averaging.

    Attributes:
        buckets: indices of the parameters in each.
        views: the place of each parameter's gradient, by index.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buckets: Sequence[Sequence[int]]) -> None:
        self.parameters, self.buckets = parameters, buckets
        self.flat: list[torch.Tensor] = []
        self.views: dict[int, torch.Tensor] = {}
        for bucket in buckets:
            length = sum(parameters[index].numel() for index in bucket)
            self.flat.append(torch.zeros(length, device=parameters[bucket[0]].device))
            self.views |= views(self.flat[-1], parameters, bucket)
        # Whose memory ``model.to(...)`` replaces, as it does that of all gradients; these stay where they are.
        self._places = {index: view.detach() for index, view in self.views.items()}
        self.clear()

    def clear(self) -> None:
        """Set all gradients to zero, in place."""
        for flat in self.flat:
            flat.zero_()
        for index in self.views:
            self.keep(index, copy=False)

    def keep(self, index: int, *, copy: bool = True) -> None:
        """Put a parameter's gradient back into its buffer, where something has given it one elsewhere."""
        parameter, view, place = self.parameters[index], self.views[index], self._places[index]
        if parameter.stride() != place.stride():  # ``model.to(memory_format=...)``
            place = self._places[index] = _laid_out(place.as_strided((place.numel(),), (1,)), parameter)
        if view.data_ptr() != place.data_ptr() or view.stride() != place.stride():
            view = self.views[index] = place.detach()
        if parameter.grad is view:
            return
        if copy and parameter.grad is not None:
            view.copy_(parameter.grad.to_dense())  # an embedding's may be sparse
        parameter.grad = view


def views(
    flat: torch.Tensor, parameters: Sequence[torch.nn.Parameter], bucket: Sequence[int]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Index of each parameter of a bucket, and where it lies in ``flat``: one behind the other.

    With the parameter's own strides (channels last, say): fused optimizers walk through both memories side by side.
    """
    begin = 0
    for index in bucket:
        length = parameters[index].numel()
        yield index, _laid_out(flat[begin : begin + length], parameters[index])
        begin += length


def _laid_out(part: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """A vector in the shape of a parameter, with its strides."""
    # A stand-in for a parameter elsewhere has no memory of its own, and strides of zero.
    dense = torch.empty_like(parameter, device="meta").stride() == parameter.stride()
    return part.as_strided(parameter.shape, parameter.stride()) if dense else part.view_as(parameter)


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


def check_gradients(context: Context, buffers: GradientBuffers, buckets: Iterable[int], *, sent: bool = True) -> None:
    """Look at buckets of this rank's own gradients before they are used; from any thread, before anything is sent.

    What is not finite is told to ``Control.diverged`` and becomes zero, so that peers and their residuals receive
    nothing that would spoil them in the step in which training ends. A loop of the user's goes on: it is told of every
    parameter, and nothing but their gradients becomes zero, and only where they are sent. Gradients that are only
    written to be sent are finite.
    """
    for bucket in () if context.write_gradient is not None else buckets:
        if is_finite(buffers.flat[bucket]):
            continue
        if context.user_loop is not None:
            for index in buffers.buckets[bucket]:
                if not is_finite(gradient := buffers.views[index]):
                    context.user_loop.non_finite(index, _kind(gradient))
                    if sent:
                        gradient.zero_()
            continue
        names = [name for name, parameter in context.model.named_parameters() if parameter.requires_grad]
        for index in buffers.buckets[bucket]:
            if not is_finite(gradient := buffers.views[index]):
                context.control.diverged(_what(names[index], gradient))
                break
        buffers.flat[bucket].zero_()


def watch_parameters(model: torch.nn.Module, control: Control, user_loop: UserLoop | None = None) -> None:
    """The same for gradients that go through no buffers of ours: a hook a parameter, before anyone else's."""
    named = ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
    for index, (name, parameter) in enumerate(named):

        def checked(gradient: torch.Tensor, index: int = index, name: str = name) -> torch.Tensor | None:
            emulated_time.catch_up()
            if is_finite(gradient):
                return None
            if user_loop is not None:
                user_loop.non_finite(index, _kind(gradient))
            else:
                control.diverged(_what(name, gradient))
            return torch.zeros_like(gradient)

        parameter.register_hook(checked)  # type: ignore[no-untyped-call]


def _what(name: str, gradient: torch.Tensor) -> str:
    return f"the gradient of {name} holds {_kind(gradient)}"


def _kind(gradient: torch.Tensor) -> NonFinite:
    return "nan" if bool(gradient.isnan().any()) else "inf"


class RunningLocally(AbstractRunning):
    """Plain training on one rank: the base of every method that leaves gradients where they are.

    They lie in flat buffers as in the other arms, so that computing costs the same. What is left to a subclass is when
    to average what.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._parameters = trainable(context.model)
        self._gradients = GradientBuffers(
            self._parameters, assign([p.numel() for p in self._parameters], None, context.shrink)
        )

    def begin_step(self) -> None:
        """Zeros everywhere."""
        self._gradients.clear()

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """One pass over them."""
        check_gradients(self._context, self._gradients, range(len(self._gradients.flat)), sent=False)

    def finish(self) -> ExchangeReport:
        """Nobody to agree with before the update."""
        return ExchangeReport(ready_mono_s=emulated_time.monotonic())


class BucketExchange(AbstractRunning):
    """Hands each bucket to a communication thread as soon as all its gradients are there.

    Buckets are handed over in the same order on all ranks, however autograd happens to finish them; each has a tag of
    its own, because concurrent exchanges that share one would mix silently.

    Attributes:
        buffers: the gradients.
    """

    def __init__(self, context: Context, bucket_bytes: float | None) -> None:
        super().__init__(context)
        self._lay_out(bucket_bytes)

    @property
    def averages_gradients(self) -> bool:
        """Always."""
        return True

    def begin_step(self) -> None:
        """Zeros in all buckets, nothing launched."""
        self.buffers.clear()
        self._missing = [len(bucket) for bucket in self.buffers.buckets]
        self._num_launched = 0

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Only the last micro-step's gradients are complete, so only there are buckets handed over."""
        return self._sends(last=last)

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """In a loop of the user's all buckets are looked at and handed over when this returns."""
        if self._context.user_loop is not None:
            self._launch(all_that_is_left=True)

    def finish(self) -> ExchangeReport:
        """Wait for all buckets; raises at once what a communication thread raised."""
        self._launch(all_that_is_left=True)  # a parameter that the forward pass did not use has no gradient to wait for
        return self._communicator.wait()

    def update(self) -> None:
        """The optimizer's step, at the rate that residuals were told."""
        self._rates.check()
        super().update()

    def close(self) -> None:
        """End the threads once they are done with what they have, and leave the gradients to others."""
        for hook in self._hooks:
            hook.remove()
        self._communicator.close()

    def _lay_out(self, bucket_bytes: float | None) -> None:
        """Put the gradients into buckets of this size, and hook into them."""
        context = self._context
        parameters = trainable(context.model)
        buckets = assign([p.numel() for p in parameters], bucket_bytes, context.shrink)
        self.buffers = GradientBuffers(parameters, buckets)
        self.bucket_bytes = [flat.nbytes for flat in self.buffers.flat]
        self._codecs = [
            context.codec_of([tuple(parameters[index].shape) for index in bucket], number)
            for number, bucket in enumerate(buckets)
        ]
        self._rates = LearningRates(context.optimizer, [[parameters[i] for i in bucket] for bucket in buckets])
        self._rounds = context.rounds(len(buckets))
        self._sending = False
        self._missing = [0] * len(buckets)
        self._num_launched = 0
        self._hooks = [
            parameters[index].register_post_accumulate_grad_hook(partial(self._gradient_is_there, index, number))  # type: ignore[no-untyped-call]
            for number, bucket in enumerate(buckets)
            for index in bucket
        ]
        self._communicator = Communicator(context.collective.meter, threads_for(context.collective, len(buckets)))

    @contextmanager
    def _sends(self, *, last: bool) -> Iterator[None]:
        self._sending = last
        try:
            yield
        finally:
            self._sending = False

    def _gradient_is_there(self, index: int, bucket: int, _: torch.Tensor) -> None:
        self.buffers.keep(index)
        emulated_time.catch_up()
        if self._sending:
            self._communicator.check()
            self._missing[bucket] -= 1
            self._launch()

    def _launch(self, *, all_that_is_left: bool = False) -> None:
        """Hand over what is complete, never a bucket before its predecessor."""
        while self._num_launched < len(self._missing):
            if self._missing[self._num_launched] > 0 and not all_that_is_left:
                return
            if self._num_launched == 0:
                self._rates.tell(self._codecs)
            self._look_at(self._num_launched)
            self._communicator.submit(partial(self._average, self._num_launched))
            self._num_launched += 1

    def _look_at(self, bucket: int) -> None:
        """A user's loop is told before buckets that are on their way have arrived."""
        if self._context.user_loop is not None:
            check_gradients(self._context, self.buffers, [bucket])

    def _average(self, bucket: int) -> None:
        if self._context.user_loop is None:
            check_gradients(self._context, self.buffers, [bucket])
        values, write = self.buffers.flat[bucket], self._context.write_gradient
        if write is not None:
            values = self._written(bucket, write)
        self._context.collective.average(values, self._codecs[bucket], self._rounds[bucket])

    def _written(self, bucket: int, write: Callable[[int, torch.Tensor], None]) -> torch.Tensor:
        """A bucket whose gradients are made for it, in memory that others use once it has been averaged."""
        values, begin = empty_fp32(self.buffers.flat[bucket].numel()), 0
        for index in self.buffers.buckets[bucket]:
            end = begin + self.buffers.parameters[index].numel()
            write(index, values[begin:end])
            begin = end
        return values


def threads_for(collective: AbstractCollective, num_buckets: int) -> int:
    """How many threads may exchange the buckets of one algorithm: one where torch numbers the messages itself.

    Torch's own all-reduce has no tag: calls are matched by their order, which two threads would not keep. None of their
    own where the ranks take turns.
    """
    if collective.takes_turns:
        return 0
    return 1 if collective.wraps_model else min(NUM_THREADS, max(1, num_buckets))


class Communicator:
    """Runs jobs in threads of its own; what one of them raises is raised by the next ``check`` or ``wait``.

    All ranks submit the same jobs in the same order. Threads take them in this order, so that the oldest job that is
    not done everywhere has a thread on every rank: jobs that wait for their peers cannot wait in a circle. ``submit``
    and ``wait`` belong to one thread.

    Args:
        num_threads: 0 runs jobs where they are waited for, in their order.
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
        begin = emulated_time.monotonic()
        awaited = set(self._unfinished if jobs is None else jobs)
        if not self._threads:
            self._run_here(awaited)
        with self._changed:
            while not self.done(awaited):
                self.check()
                if not any(thread.is_alive() for thread in self._threads):
                    raise RuntimeError("the communication threads have ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of their own waits is limited by the group's timeout
            self.check()
        end = emulated_time.monotonic()
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

    def _run_here(self, awaited: set[int]) -> None:
        """Run jobs from the oldest on until these are done; raises what one of them raises, as ``check`` says it."""
        while not self.done(awaited):
            number, job = self._queue.get_nowait() or (0, None)
            if job is None:  # closed
                return
            try:
                job()
            except Exception as error:
                self._error = error
                self.check()
            self._unfinished.discard(number)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, job = item
            emulated_time.catch_up()
            try:
                job()
                emulated_time.catch_up(of_libraries=True)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._unfinished.discard(number)
                self._changed.notify_all()
