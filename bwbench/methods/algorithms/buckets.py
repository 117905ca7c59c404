"""Gradients in flat buffers: which parameters share one, and the parameters' gradients as views into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bwbench.methods.compression.base import AbstractCodec, Shape

if TYPE_CHECKING:
    import torch

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


def bucket_payloads(
    parameter_shapes: Sequence[Shape], bucket_bytes: float | None, make_codec: Callable[[], AbstractCodec]
) -> list[int]:
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
        import torch

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
        import torch

        self.parameters = list(parameters)
        self.flat: list[torch.Tensor] = []
        self.bucket_of: dict[int, int] = {}
        self._views: dict[int, torch.Tensor] = {}
        for number, bucket in enumerate(buckets):
            flat = torch.zeros(sum(parameters[index].numel() for index in bucket))
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
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ValueError(f"a parameter of {parameter.dtype}: models are trained in fp32 here")
    return parameters
