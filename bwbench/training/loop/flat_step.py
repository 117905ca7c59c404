"""A fused optimizer step: few large vectors in place of many small tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms.buckets import ELEMENT_BYTES, ParameterBuffers


def flatten(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Have ``optimizer`` change stretches of parameters that lie behind one another as if each were one parameter.

    To be called once the algorithm has been attached: gradients lie in its buckets then, and parameters too where it
    averages those. Where it does not, they are moved into buffers here, in the order of the gradients. Either way
    memory is laid out once, and the stretches are views into it. Optimizers that work element by element (SGD, Adam,
    AdamW) take the same steps as before, to the bit.

    Args:
        optimizer: with one group of parameters and no state yet; gets other parameters.
        parameters: of the model, in its order; they stay what the model and the algorithm know.

    Returns:
        the stretches. Where parameters and gradients lie in different orders, each is a parameter of its own.

    Raises:
        ConfigError: the gradients lie in no buckets (torch's DistributedDataParallel).
    """
    if any(parameter.grad is None for parameter in parameters):
        raise ConfigError("a flat optimizer step needs gradients in buckets of ours, and torch's own exchange has none")
    ordered = sorted(parameters, key=lambda p: (_gradient(p).untyped_storage().data_ptr(), _gradient(p).data_ptr()))
    if all(parameter.untyped_storage().nbytes() == ELEMENT_BYTES * parameter.numel() for parameter in parameters):
        buckets = groupby(range(len(ordered)), key=lambda i: _gradient(ordered[i]).untyped_storage().data_ptr())
        ParameterBuffers(ordered, [list(bucket) for _, bucket in buckets])
    stretches: list[list[nn.Parameter]] = []
    for parameter in ordered:
        if stretches and _follows(parameter, stretches[-1][-1]):
            stretches[-1].append(parameter)
        else:
            stretches.append([parameter])
    flat = [_as_one(stretch) for stretch in stretches]
    (group,) = optimizer.param_groups
    group["params"] = flat
    return flat


def _follows(parameter: nn.Parameter, before: nn.Parameter) -> bool:
    """Whether a parameter and its gradient lie right behind another one and its gradient."""
    return all(
        this.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        and this.storage_offset() == last.storage_offset() + last.numel()
        for this, last in ((parameter.data, before.data), (_gradient(parameter), _gradient(before)))
    )


def _as_one(stretch: Sequence[nn.Parameter]) -> nn.Parameter:
    """A parameter over the memory of those of a stretch, with a gradient over theirs."""
    shape = (sum(parameter.numel() for parameter in stretch),)
    flat = nn.Parameter(stretch[0].data.as_strided(shape, (1,)))
    flat.grad = _gradient(stretch[0]).as_strided(shape, (1,))
    return flat


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
