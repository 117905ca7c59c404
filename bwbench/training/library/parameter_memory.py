"""Where the values of parameters lie: methods that average parameters look there, and users put them elsewhere.

``p.data = ...`` and ``model.to(...)`` give a parameter other memory, of which a method with a buffer of its own would
not hear: it would go on averaging what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class ParameterMemory:
    """The memory of the parameters that were trainable when the handle was made, in the model's order."""

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        own = {id(parameter) for parameter in parameters}
        self._names = [name for name, parameter in model.named_parameters() if id(parameter) in own]
        self._parameters = parameters
        self._types = [parameter.dtype for parameter in parameters]
        self._before = [parameter.data_ptr() for parameter in parameters]
        self._places: list[tuple[nn.Parameter, torch.Tensor]] = []

    def placed(self) -> None:
        """A method works on the model from now on: what it has moved has its place there."""
        moved = (p for p, before in zip(self._parameters, self._before, strict=True) if p.data_ptr() != before)
        # ``data``, which counts versions by itself: what a forward pass has kept may still be needed by a backward one.
        self._places = [(parameter, parameter.data) for parameter in moved]

    def take_back(self) -> None:
        """Bring values that the user has put elsewhere to where the method looks for them.

        Raises RuntimeError where a parameter has another type than it had, or another shape.
        """
        for name, parameter, kind in zip(self._names, self._parameters, self._types, strict=True):
            if parameter.dtype != kind:
                raise RuntimeError(
                    f"parameter {name!r} is {_word(parameter.dtype)} now and was {_word(kind)} when distribute() was "
                    "called; convert the model before, or on all ranks handle.close() and distribute(...) again"
                )
        for parameter, place in self._places:
            if parameter.data_ptr() == place.data_ptr() and parameter.stride() == place.stride():
                continue
            if parameter.shape != place.shape:
                raise RuntimeError(
                    f"a parameter has shape {tuple(parameter.shape)} now and had {tuple(place.shape)} when "
                    "distribute() was called; on all ranks handle.close() and distribute(...) again"
                )
            place.copy_(parameter.data)
            parameter.data = place


def _word(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
