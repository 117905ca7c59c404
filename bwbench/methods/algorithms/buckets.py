"""Gradients and parameters in flat buffers: which share one, and a look at gradients before anybody gets them.

Gradients that are not finite are caught on the rank where they arise, before it sends them. Buffers lie where the model
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from bwbench.methods.compression.codec import MakeCodec, Shape
from bwbench.methods.deferred import torch

Diverged = Callable[[str], None]  # ``Control.diverged``: ends training on all ranks, saying what was found
FIRST_BUCKET_BYTES = 1024 * 1024  # as torch's DDP: a small first one, so that sending begins early in the backward
BUCKET_BYTES = 25 * 1024 * 1024  # as torch's DDP
ELEMENT_BYTES = 4


def assign(parameter_elements: Sequence[int], bucket_bytes: float | None) -> list[list[int]]:
    """Indices of the parameters of each bucket, in the order in which backward passes give gradients: last first.

    A bucket is full once it holds its size or more, as in torch's DDP.

    Args:
        parameter_elements: elements of each parameter, in the model's order.
        bucket_bytes: size of each bucket; None takes torch's defaults, 1 MiB for the first and 25 MiB for the others.
    """
    buckets: list[list[int]] = []
    current: list[int] = []
    size = 0
    for index in reversed(range(len(parameter_elements))):
        current.append(index)
        size += ELEMENT_BYTES * parameter_elements[index]
        limit = bucket_bytes or (BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES)
        if size >= limit:
            buckets.append(current)
            current, size = [], 0
    return [*buckets, current] if current else buckets


def bucket_payloads(parameter_shapes: Sequence[Shape], bucket_bytes: float | None, make_codec: MakeCodec) -> list[int]:
    """Bytes of every message that one exchange of all buckets takes, in order. Pure."""
    elements = [math.prod(shape) for shape in parameter_shapes]
    payloads = []
    for number, bucket in enumerate(assign(elements, bucket_bytes)):
        codec = make_codec()
        codec.prepare([parameter_shapes[index] for index in bucket], bucket=number)
        payloads += codec.payloads(sum(elements[index] for index in bucket))
    return payloads


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

    def keep(self, index: int, copy: bool = True) -> None:
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
