"""Data-parallel training in anyone's own script: the one call."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base import registry
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, Context
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives import AbstractCollective, Members
from bwbench.methods.collectives.ring_sockets import agree_on
from bwbench.methods.compression import build_codec
from bwbench.methods.devices import DIRECT
from bwbench.methods.native import native
from bwbench.network.link import UNSHAPED
from bwbench.training.library.agreement import Description, describe, gathered, prepared_alike, told_by_all
from bwbench.training.library.groups import ScriptGroups, join, own_address
from bwbench.training.library.handle import Distributed
from bwbench.training.library.host_copies import WIDER, HostCopies
from bwbench.training.library.link_pacing import UNPACED, AskedLink, pace_hosts, read_link
from bwbench.training.library.method import Method, choose
from bwbench.training.library.model_buffers import BufferWay, ModelBuffers, check_way
from bwbench.training.library.refusals import check_copied, check_direct, check_model, check_optimizer, not_stepped
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.compute_device import Tell, connect_devices
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.replica import digest

TIMEOUT_S = 120.0  # gloo's own 30 minutes are a long time to learn that a peer is gone

RING_SWITCH = "BWBENCH_RING"  # the environment's word for rings without connections of their own: "gloo"

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
    buffers: str = "local",
    link: str = UNPACED,
) -> Distributed:
    """Train ``model`` together with the other processes; the loop around it stays as it is.

    After ``loss.backward()`` the gradients are those to step with: for algorithms that average gradients the means
    over all ranks, ready for clipping. ``optimizer.step()`` does the rest. The model is changed in place, never
    wrapped. Replicas begin as rank 0's: parameters and buffers are sent once where they differ. Collective.

    Args:
        model: all on one kind of device, moved there before the optimizer was made. Parameters in float32, or another
            floating-point type where the algorithm averages gradients in every step.
        optimizer: over the model's parameters; any of torch's that needs one gradient a step. Its ``step`` and
            ``zero_grad`` are replaced on this object.
        algorithm: a preset, an algorithm, or a mapping with its options, as in an experiment file.
        collective: replaces the preset's; in the same spellings.
        compression: replaces the preset's; a list is a chain.
        group: a process group with gloo for CPU tensors, of those that train together; its own timeout holds for what
            it carries. None makes one of all processes, and initialises ``torch.distributed`` from torchrun's
            environment where that has not been done. gloo binds to the interface named in GLOO_SOCKET_IFNAME.
        timeout_s: a message that takes longer than this ends training with an error. A large one may rightly take
            minutes on a slow link.
        buffers: of the model, such as the running means of BatchNorm: ``local`` leaves them to each rank; ``broadcast``
            takes all of rank 0, ``average`` the mean of those in floating point, whenever replicas agree: at the end
            of every step, or of a round, and in ``drain``.
        link: ``unpaced`` sends as fast as TCP makes it. The rate of a host's way to the others, such as
            ``200 Mbit/s``, or ``measured``, which finds it in some seconds: no rank sends faster than its part of that.
            Has no influence on results.

    Raises:
        ConfigError: a name, an option, a combination, a parameter or the environment is not usable; says which. On
            all ranks at once, also where one rank alone is wrong, or has another model, optimizer or method.
        RuntimeError: (torch's) a peer does not come, or is gone.
    """
    groups = join(group, timeout_s)
    with ExitStack() as on_error:
        # A ConfigError is raised by all ranks at once: they can wait for one another.
        on_error.push(lambda kind, error, trace: groups.leave(together=isinstance(error, ConfigError)))
        asked = partial(choose, algorithm, collective, compression, optimizer, groups.data.size())
        parts = prepared_alike(groups.control, partial(prepare, model, optimizer, asked, buffers, link, on_error))
        for warning in [*parts.method.warnings, *not_stepped(model, optimizer, parts.method)]:
            warnings.warn(warning, stacklevel=2)
        for note in [*parts.method.notes, *parts.notes]:
            _log.info(note)
        make_equal(model, groups.control)
        parts.collective.connect(groups.data, UNSHAPED)  # by us, whatever it is
        tell = partial(told_by_all, group=groups.control)
        if (devices := devices_of_host(model, parts, groups, tell, timeout_s)) is not None:
            groups = replace(groups, devices=devices)
            _log.info("ranks of a host average from GPU to GPU by NCCL, and send their shards to other hosts by gloo")
        if takes_sockets(parts, groups):
            compiled = None if os.environ.get(RING_SWITCH) else native()
            sockets, why = agree_on(compiled, own_address, tell, groups.data.rank(), timeout_s)
            _log.info(f"ring: {why}, by {'connections of its own' if sockets is not None else 'gloo'}")
            if sockets is not None:
                parts.collective.sockets = sockets
                on_error.callback(sockets.close)
        what = (
            parts.host.model if parts.host is not None else InnerModel(model) if parts.collective.wraps_model else model
        )
        running = parts.algorithm.attach(
            Context(
                model=what,
                optimizer=optimizer,
                collective=parts.collective,
                make_codec=lambda: build_codec(parts.method.compression),
                data_group=groups.data,
                control=ControlPath(groups.control),
                clock=TrainingClock(),
                members=Members.all_of(groups.data),
                user_loop=parts.handle.gradients,
            )
        )
        undo = redirect(model, running.module) if running.module is not what else ExitStack()
        undo.callback(model.register_forward_pre_hook(check_caller).remove)
        if parts.collective.sockets is not None:
            undo.callback(parts.collective.sockets.close)
        note, lift = pace_hosts(parts.link, groups, parts.collective)
        undo.callback(lift)
        if note:
            _log.info(note)
        agreed = ModelBuffers(model, parts.buffers, groups.data)
        parts.handle.attach(running, groups, parts.host, agreed, undo.close)
        on_error.pop_all()
    return parts.handle


@dataclass(frozen=True)
class PreparedRank:
    """What one rank makes before it hears of the others.

    Attributes:
        host: what the method works on in place of the parameters, where that is needed.
        buffers: how ranks agree on those of the model.
        link: what the network is said to be.
        notes: what users should know about their parameters.
    """

    method: Method
    algorithm: AbstractAlgorithm
    collective: AbstractCollective
    host: HostCopies | None
    buffers: BufferWay
    link: AskedLink
    handle: Distributed
    notes: tuple[str, ...]


def prepare(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    asked: Callable[[], Method],
    buffers: str,
    link: str,
    on_error: ExitStack,
) -> tuple[PreparedRank, Description]:
    """The part of ``distribute`` that needs no peers, and what it was made of. Raises ConfigError."""
    if (word := os.environ.get(RING_SWITCH, "")) not in ("", "gloo"):
        raise ConfigError(f"{RING_SWITCH} is {word!r} in the environment; write 'gloo', or leave it out")
    check_model(model)
    check_optimizer(optimizer, model)
    method, way, asked_link = asked(), check_way(buffers), read_link(link)
    algorithm: AbstractAlgorithm = method.algorithm.build(registry.ALGORITHMS)
    collective: AbstractCollective = method.collective.build(registry.COLLECTIVES)
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if needed(parameters.values()):
        check_copied(algorithm, collective, parameters)
        host: HostCopies | None = HostCopies(parameters)
    else:
        check_direct(algorithm, parameters)
        host = None
    # Hooks into the parameters before the algorithm does.
    handle = Distributed(model, optimizer, list(parameters.values()), method)
    on_error.callback(handle.let_go)
    parts = PreparedRank(method, algorithm, collective, host, way, asked_link, handle, tuple(rounding_note(parameters)))
    return parts, describe(model, optimizer, method) | {"buffers": {"way": way}, "link": {"asked": asked_link.word}}


def devices_of_host(
    model: nn.Module, parts: PreparedRank, groups: ScriptGroups, tell: Tell, timeout_s: float
) -> dist.ProcessGroup | None:
    """As ``connect_devices``; not where buckets are made in host memory, of copies and of linear codecs."""
    if parts.host is not None or build_codec(parts.method.compression).linear:
        return None
    device = next(model.parameters()).device
    return connect_devices(parts.collective, groups.data, device, tell, timedelta(seconds=timeout_s))


def takes_sockets(parts: PreparedRank, groups: ScriptGroups) -> bool:
    """Whether a ring gets connections of its own; not where a link is paced, which is done to those of the group."""
    return groups.data.size() > 1 and parts.collective.takes_sockets and parts.link.word == UNPACED


def rounding_note(parameters: Mapping[str, nn.Parameter]) -> Iterator[str]:
    """What users of 64 bits should know."""
    rounded = [name for name, parameter in parameters.items() if parameter.dtype in WIDER]
    if rounded:
        number = f"{len(rounded)} parameters, {rounded[0]!r} first," if len(rounded) > 1 else repr(rounded[0])
        yield f"64-bit gradients of {number} are rounded to float32 on the way to the other ranks"


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


def check_caller(model: nn.Module, inputs: object) -> None:
    """A hook before the forward pass: raise RuntimeError where torch's DDP was wrapped around the model since."""
    caller = getattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
    if caller is None or isinstance(caller.module, InnerModel):
        return
    if any(module is model for module in caller.modules()):
        raise RuntimeError(
            "the model is called by torch's DistributedDataParallel, which averages its gradients as well; call the "
            "model that distribute() was given"
        )


def redirect(model: nn.Module, module: Callable[..., Any]) -> ExitStack:
    """Let ``model(...)`` call ``module``, until what is returned is closed; a copy of the model calls its own."""
    own = model.__dict__.get("forward")  # a compiled model has one already

    def forward(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        return module(*inputs, **options) if self is model else type(self).forward(self, *inputs, **options)

    if model._compiled_call_impl is not None:  # model.compile(): torch's own wrapper does not go through it
        forward = torch.compiler.disable(forward)  # type: ignore[no-untyped-call]
    model.forward = MethodType(forward, model)  # deepcopy binds it to the copy
    undo = ExitStack()
    if own is None:
        undo.callback(model.__dict__.pop, "forward", None)
    else:
        undo.callback(model.__dict__.__setitem__, "forward", own)
    return undo


def needed(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether gradients alone travel, as copies: the model is on a device unknown here, or not all in float32."""
    return any(parameter.device.type not in DIRECT or parameter.dtype != torch.float32 for parameter in parameters)


def make_equal(model: nn.Module, group: dist.ProcessGroup) -> bool:
    """Give all ranks the parameters and buffers of rank 0, where they differ. Collective.

    Returns whether anything had to be sent beyond 32 bytes a rank: a script that seeds all ranks alike sends nothing.
    """
    if len(set(gathered(group, digest(enumerate(_tensors(model)))))) == 1:
        return False
    with torch.no_grad():
        for tensor in _tensors(model):
            if tensor.numel() > 0:
                host = moved_to_host(tensor)
                group.broadcast(host.reshape(-1).view(torch.uint8), 0).wait()  # gloo does not know all types
                tensor.copy_(host)
    return True


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]
