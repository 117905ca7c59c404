"""Data-parallel training in anyone's own script: the one call."""

from __future__ import annotations

import logging
import warnings
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base import registry
from bwbench.methods.algorithms import AbstractAlgorithm, Context
from bwbench.methods.algorithms.buckets import trainable
from bwbench.methods.collectives import AbstractCollective, Members
from bwbench.methods.compression import build_codec
from bwbench.training.library import replicas
from bwbench.training.library.groups import join
from bwbench.training.library.handle import Distributed
from bwbench.training.library.method import choose
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.control import ControlPath

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
    replicas.check_model(model, optimizer)
    groups = join(group, timeout_s)
    with ExitStack() as on_error:
        on_error.callback(groups.leave, together=False)
        method = choose(algorithm, collective, compression, optimizer, groups.data.size())
        for warning in method.warnings:
            warnings.warn(warning, stacklevel=2)
        for note in method.notes:
            _log.info(note)
        algorithm_: AbstractAlgorithm = method.algorithm.build(registry.ALGORITHMS)
        collective_: AbstractCollective = method.collective.build(registry.COLLECTIVES)
        parameters = trainable(model)
        host = replicas.HostCopies(parameters) if replicas.needed(parameters) else None
        if host is not None:
            replicas.check_method(algorithm_, collective_)
        replicas.make_equal(model, groups.control)
        handle = Distributed(optimizer, parameters, method)  # hooks into the parameters before the algorithm does
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
