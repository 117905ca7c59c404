"""The module behind ``model: shapes``: its backward pass sleeps where a real one would compute."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from bwbench.base import emulated_time
from bwbench.base.model_shapes import ModelShapes
from bwbench.methods.buffers import empty_fp32, zeros_untouched
from bwbench.training.models.shapes import ShapesConfig
from bwbench.training.models.synthetic_gradients import SyntheticGradients


class ShapesModule(nn.Module):
    """Parameters of a model's shapes, whose gradients appear layer by layer in the backward pass, last layer first.

    A layer's are there once its share of the pass is over, counted from the begin of the pass: that making them took
    time is not seen, unless it took longer. The loss is 0, always. Its micro-steps give equal shares of a gradient.

    Args:
        model: the layers, whole: entries are as large as its own, so that as many of them cross a threshold.
        rank: whose gradients.
        shrink: what parameters are divided by.
        accumulate: micro-steps of a step.
        in_memory: parameters and gradients have memory. Without it they lie on torch's meta device, where autograd
            works as ever, and ``write_gradient`` gives the values of those that are looked at.

    Attributes:
        step_s: duration of a step, in training seconds; 0 sleeps nowhere.
        steps: taken so far; each has gradients of its own.
    """

    def __init__(
        self,
        model: ModelShapes,
        options: ShapesConfig,
        rank: int = 0,
        *,
        shrink: float = 1.0,
        accumulate: int = 1,
        in_memory: bool = True,
    ) -> None:
        super().__init__()
        self._rank, self._backward_share, self._accumulate = rank, options.backward, accumulate
        self.step_s, self.steps = 0.0, 0
        rms = options.norm / math.sqrt(model.num_parameters)
        model = model.shrunk(shrink)
        self._gradients = SyntheticGradients(model.parameter_shapes, options.decay, options.tail, rms)
        self._ends, self.in_memory = model.backward_ends, in_memory
        self._began_s = 0.0
        self._layers: list[range] = []
        self.values = nn.ParameterList()
        for layer in model.layers:
            first = len(self.values)
            for shape in layer.shapes:
                values = zeros_untouched(shape) if in_memory else torch.empty(shape, device="meta")
                self.values.append(nn.Parameter(values))
                # Before anyone else's: that autograd has added up the gradient is nothing that a real pass would do.
                self.values[-1].register_post_accumulate_grad_hook(_forget)
            self._layers.append(range(first, len(self.values)))
        self._begin = torch.zeros(1, requires_grad=True)

    def backward_s(self) -> float:
        """What each backward pass of the present step is declared to take, in training seconds."""
        return self._backward_share * self.step_s / self._accumulate

    def begin_step(self, step_s: float | None) -> None:
        """Another step begins, micro-steps and all; of that duration, where one is known."""
        self.steps += 1
        if step_s is not None:
            self.step_s = step_s

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits ``[1, 1]``, of which the loss is 0 whatever the inputs are."""
        stream = self._begin
        for number, indices in enumerate(self._layers):
            values = [self.values[index] for index in indices]
            stream = _Layer.apply(stream, self, number, *values)  # type: ignore[no-untyped-call]
        emulated_time.forget_computed()  # no device that is imitated does what a pass around nothing takes here
        return stream.view(1, 1)

    def write_gradient(self, index: int, out: torch.Tensor) -> None:
        """The gradient of a parameter in this step, of all its micro-steps, into an fp32 vector of its length."""
        self._gradients.write(index, self.steps, self._rank, out)
        emulated_time.forget_computed()

    def gradients_of(self, number: int) -> list[torch.Tensor]:
        """Those of a layer, when they are due in the backward pass."""
        if number == len(self._layers) - 1:
            self._began_s = emulated_time.monotonic()
        found = [self._gradient(index) for index in self._layers[number]]
        due_s = self._began_s + self._ends[number] * self.backward_s()
        if (missing_s := due_s - emulated_time.monotonic()) > 0:
            emulated_time.sleep(missing_s)
        emulated_time.forget_computed()
        return found

    def _gradient(self, index: int) -> torch.Tensor:
        parameter: torch.Tensor = self.values[index]
        if not self.in_memory:
            return torch.empty_like(parameter)
        flat = empty_fp32(parameter.numel())
        self.write_gradient(index, flat)
        if self._accumulate > 1:  # the loss is 0 whatever it is multiplied by, and so tells no layer
            flat /= self._accumulate
        return flat.view(parameter.shape)


def _forget(_: torch.Tensor) -> None:
    emulated_time.forget_computed()


class _Layer(torch.autograd.Function):
    """Nothing in the forward pass; in the backward pass the gradients of one layer."""

    @staticmethod
    def forward(ctx: Any, stream: torch.Tensor, module: ShapesModule, number: int, *_: torch.Tensor) -> torch.Tensor:
        ctx.module, ctx.number = module, number
        return stream.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return (grads[0], None, None, *ctx.module.gradients_of(ctx.number))
