"""What a model of a script has to be, that all replicas begin equal, and what stands in for one on an accelerator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives import AbstractCollective
from bwbench.training.loop.replica import digest


def check_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise ConfigError where the model cannot be trained here, or the optimizer is not over its parameters."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ConfigError("the model has no parameter that requires a gradient; freeze parameters after distribute()")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}: parameters are kept in float32 "
                "here; call model.float(), and use torch.autocast for computing in less"
            )
    devices = {parameter.device.type for parameter in parameters.values()}
    if len(devices) > 1:
        raise ConfigError(f"the model lies on several kinds of device, {' and '.join(sorted(devices))}; move it to one")
    own = {id(parameter) for parameter in parameters.values()}
    strangers = sum(id(p) not in own for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
    if strangers:
        raise ConfigError(
            f"the optimizer has {strangers} parameters that are not the model's; make the optimizer from "
            "model.parameters(), after model.to(...), and distribute one model with one optimizer"
        )


def make_equal(model: nn.Module, group: dist.ProcessGroup) -> bool:
    """Give all ranks the parameters and buffers of rank 0, where they differ. Collective.

    Returns whether anything had to be sent beyond 32 bytes a rank: a script that seeds all ranks alike sends nothing.
    """
    if group.size() == 1:
        return False
    own = torch.frombuffer(bytearray(digest(enumerate(_tensors(model)))), dtype=torch.uint8)
    all_digests = [torch.empty_like(own) for _ in range(group.size())]
    group.allgather([all_digests], [own]).wait()
    if all(torch.equal(other, all_digests[0]) for other in all_digests):
        return False
    with torch.no_grad():
        for tensor in _tensors(model):
            host = moved_to_host(tensor)
            group.broadcast(host, 0).wait()
            tensor.copy_(host)
    return True


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


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


def needed(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether the model is anywhere but in host memory."""
    return parameters[0].device.type != "cpu"


def check_method(algorithm: AbstractAlgorithm, collective: AbstractCollective) -> None:
    """Raise ConfigError where an algorithm needs more of the model than its gradients."""
    if collective.wraps_model:
        raise ConfigError("on an accelerator, use torch's own DistributedDataParallel with NCCL instead of this")
    if type(algorithm) is not EveryStep:
        raise ConfigError(
            f"{type(algorithm).__name__} works on the parameters themselves, in host memory, and the model is on an "
            "accelerator; use an algorithm that averages gradients in every step, such as 'bytegrad', or a CPU"
        )
