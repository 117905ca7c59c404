"""The first moment of torch's Adam in flat buffers that can be averaged, and Adam's step with a frozen second one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bwbench.algorithms.buckets import GradientBuffers
from bwbench.errors import ConfigError

if TYPE_CHECKING:
    import torch


class AdamState:
    """Momentum of each bucket as a flat vector, ``exp_avg`` in the optimizer's state being views into it.

    Learning rates, betas, eps and weight decay are those of the optimizer's groups at the time of each step. Raises
    ConfigError where the optimizer is not Adam or AdamW, or in a variant that has no frozen form.

    Attributes:
        momentum: fp32 vectors, one a bucket.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, buffers: GradientBuffers) -> None:
        import torch

        if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
            raise ConfigError(f"the averaged momentum is Adam's; got the optimizer {type(optimizer).__name__}")
        for option in ("amsgrad", "maximize", "capturable", "differentiable"):
            if any(group.get(option) for group in optimizer.param_groups):
                raise ConfigError(f"Adam with {option}=True cannot go on with a frozen variance; leave it out")
        self._optimizer, self._buffers = optimizer, buffers
        self._decoupled = isinstance(optimizer, torch.optim.AdamW)
        self.momentum = [torch.zeros_like(flat) for flat in buffers.flat]
        self._views: dict[int, torch.Tensor] = {}
        offsets = [0] * len(self.momentum)
        for index, bucket in buffers.bucket_of.items():  # in the order in which they lie
            parameter = buffers.parameters[index]
            end = offsets[bucket] + parameter.numel()
            self._views[index] = self.momentum[bucket][offsets[bucket] : end].view_as(parameter)
            offsets[bucket] = end
        self._groups: dict[int, dict[str, Any]] = {}

    def adopt(self) -> None:
        """Make the optimizer's momentum views into the buffers, where it has any; loading a state undoes that."""
        groups = {id(parameter): group for group in self._optimizer.param_groups for parameter in group["params"]}
        self._groups = {}
        for index, view in self._views.items():
            parameter = self._buffers.parameters[index]
            state = self._optimizer.state.get(parameter)
            if not state or id(parameter) not in groups:
                continue
            self._groups[index] = groups[id(parameter)]
            if state["exp_avg"] is not view:
                view.copy_(state["exp_avg"])
                state["exp_avg"] = view

    def update_momentum(self, bucket: int) -> None:
        """Take the gradients of a bucket into its momentum, weight decay of Adam's kind included."""
        for index, group in self._groups.items():
            if self._buffers.bucket_of[index] != bucket:
                continue
            parameter = self._buffers.parameters[index]
            assert parameter.grad is not None
            gradient = parameter.grad
            if group["weight_decay"] and not self._is_decoupled(group):
                gradient = gradient.add(parameter.detach(), alpha=group["weight_decay"])
            self._views[index].lerp_(gradient, 1 - group["betas"][0])

    def step_frozen(self, steps_frozen: int) -> None:
        """Step along the momentum, scaled by the variance as it was when it was frozen.

        Args:
            steps_frozen: steps that were taken so since then, this one included.
        """
        import torch

        with torch.no_grad():
            for index, group in self._groups.items():
                parameter = self._buffers.parameters[index]
                state = self._optimizer.state[parameter]
                state["step"] += 1
                step, (beta1, beta2) = float(state["step"]), group["betas"]
                if group["weight_decay"] and self._is_decoupled(group):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                variance = state["exp_avg_sq"]
                state["exp_avg"].masked_fill_(variance == 0, 0.0)
                deviation = variance.sqrt().div_(math.sqrt(1 - beta2 ** (step - steps_frozen))).add_(group["eps"])
                parameter.addcdiv_(state["exp_avg"], deviation, value=-group["lr"] / (1 - beta1**step))

    def _is_decoupled(self, group: dict[str, Any]) -> bool:
        return self._decoupled or bool(group.get("decoupled_weight_decay"))
