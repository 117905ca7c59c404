"""Gradients that are not finite are caught on the rank where they arise, before it sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bwbench.methods.algorithms.base import Control
from bwbench.methods.algorithms.buckets import GradientBuffers

if TYPE_CHECKING:
    import torch


def is_finite(values: torch.Tensor) -> bool:
    """Whether no value is nan or infinite. One pass; a second one only where the sum leaves it open.

    A finite sum has finite terms only. The converse fails where large values add up beyond the range of their type.
    """
    import torch

    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def gradient_names(model: torch.nn.Module) -> list[str]:
    """Names of the parameters that get gradients, in the order of ``trainable``."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


class GradientWatch:
    """Looks at buckets of gradients before they are used.

    What is not finite is reported by ``Control.diverged`` and becomes zero, so that peers and their residuals receive
    nothing that would spoil them in the step in which training ends.
    """

    def __init__(self, model: torch.nn.Module, buffers: GradientBuffers, control: Control) -> None:
        self._model, self._buffers, self._control = model, buffers, control

    def check(self, bucket: int) -> None:
        """Look at one bucket of this rank's own gradients; from any thread, before anything of it is sent."""
        flat = self._buffers.flat[bucket]
        if is_finite(flat):
            return
        for index, number in self._buffers.bucket_of.items():
            if number == bucket and not is_finite(gradient := self._buffers.view(index)):
                self._control.diverged(_what(gradient_names(self._model)[index], gradient))
                break
        flat.zero_()

    def check_all(self) -> None:
        """Look at all buckets."""
        for bucket in range(len(self._buffers.flat)):
            self.check(bucket)


def watch_parameters(model: torch.nn.Module, control: Control) -> None:
    """The same for gradients that go through no buffers of ours: a hook a parameter, before anyone else's."""
    for name, parameter in zip(gradient_names(model), _trained(model), strict=True):
        parameter.register_hook(_checked(name, control))  # type: ignore[no-untyped-call]


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _checked(name: str, control: Control) -> Callable[[torch.Tensor], torch.Tensor | None]:
    def check(gradient: torch.Tensor) -> torch.Tensor | None:
        import torch

        if is_finite(gradient):
            return None
        control.diverged(_what(name, gradient))
        return torch.zeros_like(gradient)

    return check


def _what(name: str, gradient: torch.Tensor) -> str:
    found = "nan" if bool(gradient.isnan().any()) else "inf"
    return f"the gradient of {name} holds {found}"
