"""Gradients and parameters in flat buckets: where they lie, who looks at them, and how they are exchanged.

Buckets of gradients are averaged while the backward pass is still running, in threads beside computing. Gradients that
are not finite are caught on the rank where they arise, before it sends them. Buffers lie where the model does; a job of
a thread begins when the device has done what it had been told when the job was handed over.
"""

from __future__ import annotations

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
from bwbench.methods.algorithms.communicator import Communicator, threads_for
from bwbench.methods.algorithms.learning_rates import LearningRates
from bwbench.methods.buffers import FiniteSoon, HostSoon, empty_fp32
from bwbench.methods.compression.codec import Shape
from bwbench.methods.deferred import torch
from bwbench.methods.devices import device_of


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
            self.flat.append(parameters[bucket[0]].detach().new_empty(length))
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
            self.flat.append(parameters[bucket[0]].detach().new_zeros(length))
            self.views |= views(self.flat[-1], parameters, bucket)
        # Whose memory ``model.to(...)`` replaces, as it does that of all gradients; these stay where they are.
        self._places = {index: view.detach() for index, view in self.views.items()}
        self.clear()

    def clear(self) -> None:
        """Set all gradients to zero, in place."""
        with emulated_time.work_on_vectors():
            for flat in self.flat:
                flat.zero_()
        for index in self.views:
            self.keep(index, copy=False)

    def restore(self, bucket: int) -> None:
        """Gradients that were set to None since ``clear`` are zero again, and not what was thrown away."""
        for index in self.buckets[bucket]:
            if self.parameters[index].grad is None:
                self.keep(index, copy=False)
                self.views[index].zero_()

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
    with emulated_time.work_on_vectors():
        return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def check_gradients(context: Context, buffers: GradientBuffers, buckets: Iterable[int], *, sent: bool = True) -> None:
    """Look at buckets of this rank's own gradients before they are used; from any thread, before anything is sent.

    What is not finite is told to ``Control.diverged`` and becomes zero, so that peers and their residuals receive
    nothing that would spoil them in the step in which training ends. A loop of the user's goes on: it is told of every
    parameter, and nothing but their gradients becomes zero, and only where they are sent. Gradients that are only
    written to be sent are finite.
    """
    for bucket in () if context.write_gradient is not None else buckets:
        if not sent:
            buffers.restore(bucket)
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


def check_averaged(parameters: Sequence[torch.nn.Parameter], context: Context) -> None:
    """The same where asking a device before each gradient leaves would hold up its backward pass: of the averages.

    Every rank finds what any of them has sent, one question for all parameters. Residuals of a hook of torch's own have
    it already, as with torch's DDP anywhere.
    """
    gradients = [(index, p.grad) for index, p in enumerate(parameters) if p.grad is not None]
    sums = torch.stack([gradient.sum() for _, gradient in gradients])
    if bool(torch.isfinite(sums).all()):
        return
    names = [name for name, parameter in context.model.named_parameters() if parameter.requires_grad]
    for index, gradient in gradients:
        if is_finite(gradient):
            continue
        if context.user_loop is None:
            context.control.diverged(_what(names[index], gradient))
            return
        context.user_loop.non_finite(index, _kind(gradient))


def _what(name: str, gradient: torch.Tensor) -> str:
    return f"the gradient of {name} holds {_kind(gradient)}"


def _kind(gradient: torch.Tensor) -> NonFinite:
    return "nan" if bool(gradient.isnan().any()) else "inf"


class RunningLocally(AbstractRunning):
    """Plain training on one rank: the base of every method that leaves gradients where they are.

    They lie in flat buffers as in the other arms, so that computing costs the same. What is left to a subclass is when
    to average what.
    """

    def __init__(self, context: Context, bucket_bytes: float | None = None) -> None:
        super().__init__(context)
        self._parameters = trainable(context.model)
        buckets = assign([p.numel() for p in self._parameters], bucket_bytes, context.shrink)
        self._gradients = GradientBuffers(self._parameters, buckets)

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

    Gradients that are made only to be sent are written ahead: a thread has its bucket's before they are due, unless it
    was still busy with an earlier bucket.

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
        self._leaving.clear()
        self._missing = [len(bucket) for bucket in self.buffers.buckets]
        self._num_launched = 0
        if self._context.write_gradient is not None:
            self._due = [threading.Event() for _ in self.buffers.buckets]

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Only the last micro-step's gradients are complete, so only there are buckets handed over."""
        return self._sends(last=last)

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """In a loop of the user's all buckets are looked at and handed over when this returns."""
        if self._context.user_loop is not None:
            self._launch(all_that_is_left=True)
            for leaving in self._leaving.values():
                if not leaving.finite.get():
                    self._communicator.wait_for(leaving.looked_at)

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
        self._is_closed = True
        for due in self._due:
            due.set()

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
        self._device = device_of(parameters[0])
        self._leaving: dict[int, _Leaving] = {}  # by bucket, of those that have left a device in the present step
        num_threads = threads_for(context.collective, len(buckets))
        self._communicator = Communicator(context.collective.meter, num_threads, self._device)
        self._is_closed = False
        self._due = []  # by bucket, of those that are written ahead: its gradients are there
        self._rooms: list[torch.Tensor] = []  # for those: memory that no thread has now
        if context.write_gradient is not None:
            largest = max((flat.numel() for flat in self.buffers.flat), default=0)
            self._rooms = [empty_fp32(largest) for _ in range(max(1, num_threads))]

    @contextmanager
    def _sends(self, *, last: bool) -> Iterator[None]:
        self._sending = last
        if last and (write := self._context.write_gradient) is not None:
            for bucket, due in enumerate(self._due):
                self._communicator.submit(partial(self._write_and_average, bucket, due, write))
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
            if self._context.write_gradient is not None:
                self._due[self._num_launched].set()
            else:
                self._look_at(self._num_launched)
                self._communicator.submit(partial(self._average, self._num_launched))
            self._num_launched += 1

    def _look_at(self, bucket: int) -> None:
        """A user's loop is told before buckets that are on their way have arrived.

        A device is asked and answers later, and the copy to the host begins, while the backward pass goes on.
        """
        if self._context.user_loop is not None and self._sends_gradients:
            self.buffers.restore(bucket)
        if self._device.elsewhere and not self._context.collective.takes_turns:
            stays = self._context.collective.takes_from_device(self._codecs[bucket])
            self._leaving[bucket] = _Leaving(self.buffers.flat[bucket], copied=self._sends_gradients and not stays)
        elif self._context.user_loop is not None:
            check_gradients(self._context, self.buffers, [bucket])

    def _looked_at(self, bucket: int) -> torch.Tensor | None:
        """The same in the thread that sends a bucket: what has not been looked at yet is, before anything leaves.

        Returns what has been copied to the host already; None where nothing has.
        """
        leaving = self._leaving.get(bucket)
        if leaving is None:
            if self._context.user_loop is None:
                check_gradients(self._context, self.buffers, [bucket])
            return None
        if leaving.finite.get():
            return None if leaving.host is None else leaving.host.get()
        check_gradients(self._context, self.buffers, [bucket])
        leaving.looked_at.set()
        return None  # it has changed, most likely

    @property
    def _sends_gradients(self) -> bool:
        """What leaves in the present step are the gradients as they are."""
        return True

    def _average(self, bucket: int) -> None:
        host, values = self._looked_at(bucket), self.buffers.flat[bucket]
        self._context.collective.average(values, self._codecs[bucket], self._rounds[bucket], host)

    def _write_and_average(self, bucket: int, due: threading.Event, write: Callable[[int, torch.Tensor], None]) -> None:
        """A bucket whose gradients are made for it, in memory that others use once it has been averaged."""
        room, begin = self._rooms.pop(), 0
        for index in self.buffers.buckets[bucket]:
            end = begin + self.buffers.parameters[index].numel()
            write(index, room[begin:end])
            begin = end
        due.wait()
        if not self._is_closed:
            self._context.collective.average(room[:begin], self._codecs[bucket], self._rounds[bucket])
        self._rooms.append(room)


class _Leaving:
    """A bucket that leaves its device: whether it is finite, its copy, and whether its thread has seen to the former.

    Args:
        copied: to the host, now.
    """

    def __init__(self, flat: torch.Tensor, *, copied: bool) -> None:
        self.finite, self.looked_at = FiniteSoon(flat), threading.Event()
        self.host = HostSoon(flat) if copied else None
