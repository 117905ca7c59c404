"""Forward passes through a wrapper, for a model that its user calls directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class InnerModel(nn.Module):
    """What torch's DistributedDataParallel gets to wrap: the parameters of a model, and its plain forward pass.

    The model's hooks stay out of it: they run around the outer call already.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model
        self._plain_forward = model.forward

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The model's own."""
        return self._plain_forward(*inputs, **options)


def route(model: nn.Module, through: Callable[..., Any]) -> Callable[[], None]:
    """Have ``model(...)`` call ``through(...)``, which wraps an ``InnerModel`` of it; returns what undoes that."""
    model.forward = lambda *inputs, **options: through(*inputs, **options)

    def undo() -> None:
        model.__dict__.pop("forward", None)

    return undo
