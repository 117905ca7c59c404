"""Gradients of a model on an accelerator, averaged in host memory.

Untested on a GPU so far: what the tests cover is this code with a model on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.buffers import copy_over
from bwbench.methods.collectives import AbstractCollective


class HostCopies:
    """Stands in for the model where an algorithm wants gradients in host memory: codecs and gloo work there.

    Nothing overlaps with the backward pass: gradients are copied when it is over, averaged, and copied back.
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
                copy_over(original.grad, copy.grad)

    def give_back(self) -> None:
        """Copy the averaged gradients to where the model is."""
        for original, copy in zip(self._originals, self._copies, strict=True):
            assert copy.grad is not None
            if original.grad is None:
                original.grad = torch.empty_like(original)
            copy_over(copy.grad, original.grad)


def needed(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether the model is anywhere but in host memory."""
    return parameters[0].device.type != "cpu"


def check(algorithm: AbstractAlgorithm, collective: AbstractCollective) -> None:
    """Raise ConfigError where an algorithm needs more of the model than its gradients."""
    if collective.wraps_model:
        raise ConfigError("on an accelerator, use torch's own DistributedDataParallel with NCCL instead of this")
    if type(algorithm) is not EveryStep:
        raise ConfigError(
            f"{type(algorithm).__name__} works on the parameters themselves, in host memory, and the model is on an "
            "accelerator; use an algorithm that averages gradients in every step, such as 'bytegrad', or a CPU"
        )
