"""What a model has to be, and that all replicas begin equal."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.buffers import copy_over, moved_to_host
from bwbench.training.loop.replica import digest


def check(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
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
            copy_over(host, tensor)
    return True


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]
