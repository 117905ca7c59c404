"""The way of gradients between an accelerator and host memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class HostCopies:
    """Stands in for a model on an accelerator, whose gradients are averaged in host memory: codecs and gloo work there.

    Nothing overlaps with the backward pass: gradients are copied when it is over, averaged, and copied back.
    Untested on a GPU so far: what the tests cover is this code with a model on the CPU.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._originals = list(parameters)
        # Only the gradients are of use, so that the values take no memory.
        self._copies = [nn.Parameter(torch.zeros(()).expand(parameter.shape)) for parameter in parameters]
        self.model: nn.Module = nn.ParameterList(self._copies)

    def fetch(self) -> None:
        """Copy the gradients to the host; a parameter without one counts as zero."""
        for original, copy in zip(self._originals, self._copies, strict=True):
            assert copy.grad is not None
            if original.grad is None:
                copy.grad.zero_()
            else:
                copy.grad.copy_(original.grad)

    def give_back(self) -> None:
        """Copy the averaged gradients to where the model is."""
        for original, copy in zip(self._originals, self._copies, strict=True):
            assert copy.grad is not None
            if original.grad is None:
                original.grad = torch.empty_like(original)
            original.grad.copy_(copy.grad)
