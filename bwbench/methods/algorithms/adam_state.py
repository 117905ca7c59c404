"""The first moment of torch's Adam in flat buffers that can be averaged, and Adam's step with a frozen second one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms.buckets import GradientBuffers

if TYPE_CHECKING:
    import torch


class AdamState:
    """Momentum of each bucket as a flat vector, ``exp_avg`` in the optimizer's state being views into it.

    Learning rates, betas, eps and weight decay are those of the optimizer's groups at the time of each step. Raises
    ConfigError where the optimizer is not Adam or AdamW, or in a variant that has no frozen form.

    Attributes:
        momentum: fp32 vectors, one a bucket.
        deviation: of the same shapes, sqrt(v^) + eps once v is frozen; infinite where v is 0, so that nothing moves.
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
        self.deviation = [torch.full_like(flat, math.inf) for flat in buffers.flat]
        self._views: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        offsets = [0] * len(self.momentum)
        for index, bucket in buffers.bucket_of.items():  # in the order in which they lie
            parameter = buffers.parameters[index]
            inside = slice(offsets[bucket], offsets[bucket] + parameter.numel())
            views = self.momentum[bucket][inside], self.deviation[bucket][inside]
            self._views[index] = views[0].view_as(parameter), views[1].view_as(parameter)
            offsets[bucket] = inside.stop
        self._groups: dict[int, dict[str, Any]] = {}

    def adopt(self, frozen_steps: int) -> None:
        """Make the optimizer's momentum views into the buffers, where it has any; loading a state undoes that.

        Args:
            frozen_steps: steps that were taken since v was frozen.
        """
        import torch

        groups = {id(parameter): group for group in self._optimizer.param_groups for parameter in group["params"]}
        self._groups = {}
        for index, (momentum, deviation) in self._views.items():
            parameter = self._buffers.parameters[index]
            state = self._optimizer.state.get(parameter)
            if not state or id(parameter) not in groups:
                continue
            group = self._groups[index] = groups[id(parameter)]
            if frozen_steps == 0 or state["exp_avg"] is not momentum:
                momentum.copy_(state["exp_avg"])
                state["exp_avg"] = momentum
                variance = state["exp_avg_sq"]
                correction = 1 - group["betas"][1] ** (float(state["step"]) - frozen_steps)
                torch.sqrt(variance, out=deviation).div_(math.sqrt(correction)).add_(group["eps"])
                deviation.masked_fill_(variance == 0, math.inf)

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
            self._views[index][0].lerp_(gradient, 1 - group["betas"][0])

    def step_frozen(self) -> None:
        """Step along the momentum, scaled by the variance as it was when it was frozen."""
        import torch

        with torch.no_grad():
            for index, group in self._groups.items():
                parameter = self._buffers.parameters[index]
                momentum, deviation = self._views[index]
                step = self._optimizer.state[parameter]["step"]
                step += 1
                if group["weight_decay"] and self._is_decoupled(group):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                correction = 1 - group["betas"][0] ** float(step)
                parameter.addcdiv_(momentum, deviation, value=-group["lr"] / correction)

    def _is_decoupled(self, group: dict[str, Any]) -> bool:
        return self._decoupled or bool(group.get("decoupled_weight_decay"))
