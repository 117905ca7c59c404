"""Data-parallel training in anyone's own script: the one call."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base import registry
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, Context
from bwbench.methods.algorithms.buckets import trainable
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives import AbstractCollective, Members
from bwbench.methods.compression import build_codec
from bwbench.training.library.groups import join
from bwbench.training.library.handle import Distributed, HostCopies
from bwbench.training.library.method import Method, choose
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.replica import digest

TIMEOUT_S = 120.0  # gloo's own 30 minutes are a long time to learn that a peer is gone

_log = logging.getLogger("bwbench")


def distribute(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    algorithm: Any = "bytegrad",
    *,
    collective: Any = None,
    compression: Any = None,
    group: dist.ProcessGroup | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Distributed:
    """Train ``model`` together with the other processes; the loop around it stays as it is.

    After ``loss.backward()`` the gradients are those to step with: for algorithms that average gradients the means
    over all ranks, ready for clipping. ``optimizer.step()`` does the rest. The model is changed in place, never
    wrapped. Replicas begin as rank 0's: parameters and buffers are sent once where they differ. Collective.

    Args:
        model: parameters in float32, all on one kind of device; moved there before the optimizer was made.
        optimizer: over the model's parameters; any of torch's that needs one gradient a step. Its ``step`` and
            ``zero_grad`` are replaced on this object.
        algorithm: a preset, an algorithm, or a mapping with its options, as in an experiment file.
        collective: replaces the preset's; in the same spellings.
        compression: replaces the preset's; a list is a chain.
        group: a process group with gloo for CPU tensors, of those that train together; its own timeout holds then.
            None makes one of all processes, and initialises ``torch.distributed`` from torchrun's environment where
            that has not been done. gloo binds to the interface named in GLOO_SOCKET_IFNAME.
        timeout_s: a message that takes longer than this ends training with an error. A large one may rightly take
            minutes on a slow link.

    Raises:
        ConfigError: a name, an option, a combination, a parameter or the environment is not usable; says which.
        RuntimeError: (torch's) a peer does not come, or is gone.
    """
    check_model(model, optimizer)
    groups = join(group, timeout_s)
    with ExitStack() as on_error:
        on_error.callback(groups.leave, together=False)
        method = choose(algorithm, collective, compression, optimizer, groups.data.size())
        for warning in [*method.warnings, *not_stepped(model, optimizer, method)]:
            warnings.warn(warning, stacklevel=2)
        for note in method.notes:
            _log.info(note)
        algorithm_: AbstractAlgorithm = method.algorithm.build(registry.ALGORITHMS)
        collective_: AbstractCollective = method.collective.build(registry.COLLECTIVES)
        parameters = trainable(model)
        host = HostCopies(parameters) if needed(parameters) else None
        if host is not None:
            check_method(algorithm_, collective_)
        make_equal(model, groups.control)
        handle = Distributed(
            model, optimizer, parameters, method
        )  # hooks into the parameters before the algorithm does
        collective_.connect(groups.data)
        what = host.model if host is not None else InnerModel(model) if collective_.wraps_model else model
        running = algorithm_.attach(
            Context(
                model=what,
                optimizer=optimizer,
                collective=collective_,
                make_codec=lambda: build_codec(method.compression),
                data_group=groups.data,
                control=ControlPath(groups.control),
                clock=TrainingClock(),
                members=Members.all_of(groups.data),
                user_loop=handle.gradients,
            )
        )
        undo = ExitStack()
        if running.module is not what:
            model.forward = lambda *inputs, **options: running.module(*inputs, **options)
            undo.callback(model.__dict__.pop, "forward", None)
        handle.attach(running, groups, host, undo.close)
        on_error.pop_all()
    return handle


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


def not_stepped(model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> Iterator[str]:
    """What a user should know who may have a second optimizer, where parameters are averaged after the first."""
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    left = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in stepped]
    if left and registry.ALGORITHMS.load(method.algorithm.name).mean_of != "gradients":
        yield (
            f"parameter {left[0]!r} ({len(left)} in all) is trainable and not in the optimizer, after whose step "
            f"{method.algorithm.name!r} averages; freeze it, or put it into this optimizer: what another optimizer "
            "does to it is not averaged in time"
        )


def check_method(algorithm: AbstractAlgorithm, collective: AbstractCollective) -> None:
    """Raise ConfigError where an algorithm needs more of the model than its gradients."""
    if collective.wraps_model:
        raise ConfigError("on an accelerator, use torch's own DistributedDataParallel with NCCL instead of this")
    if type(algorithm) is not EveryStep:
        raise ConfigError(
            f"{type(algorithm).__name__} works on the parameters themselves, in host memory, and the model is on an "
            "accelerator; use an algorithm that averages gradients in every step, such as 'bytegrad', or a CPU"
        )


def needed(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether the model is anywhere but in host memory."""
    return parameters[0].device.type != "cpu"


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
