"""The process groups of a training script: one for payload, one for everything else, both on gloo."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist

from bwbench.base.errors import ConfigError
from bwbench.methods.collectives.host_devices import give_up
from bwbench.training.loop.interfaces import named_interface

LAST_BARRIER_LIMIT = timedelta(seconds=10)
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class ScriptGroups:
    """Where this process sends what.

    Attributes:
        data: payload.
        control: barriers, the first comparison of the replicas.
        made: those of the two that were made here.
        began: the default process group was made here as well.
        devices: of the ranks of this host, from GPU to GPU; None where gloo carries everything.
    """

    data: dist.ProcessGroup
    control: dist.ProcessGroup
    made: tuple[dist.ProcessGroup, ...]
    began: bool
    devices: dist.ProcessGroup | None = None

    def leave(self, *, together: bool) -> None:
        """Take down what was made here.

        Args:
            together: wait for the others first, so that nobody leaves while a neighbour still reads its last bytes.
        """
        if together and self.data.size() > 1:
            with suppress(RuntimeError):  # one of them is gone: then there is nobody to wait for
                self.control.barrier().wait(LAST_BARRIER_LIMIT)
        if self.devices is not None and not together:
            give_up(self.devices)  # who waits for a rank that is gone waits for ever
        elif self.devices is not None and dist.is_initialized():
            with suppress(ValueError, RuntimeError):
                dist.destroy_process_group(self.devices)
        for group in self.made if dist.is_initialized() else ():
            with suppress(ValueError):  # the script has taken it down itself
                dist.destroy_process_group(group)
        if self.began and dist.is_initialized():
            dist.destroy_process_group()


def join(group: dist.ProcessGroup | None, timeout_s: float) -> ScriptGroups:
    """Meet the other processes. All of them call this at the same point of the script.

    A default process group that was there before is taken down when the script ends, if nobody has done it until then.

    Args:
        group: of those that train together; None takes all.
        timeout_s: how long a message may take, in the groups that are made here.

    Raises:
        ConfigError: the environment is not that of torchrun, or ``group`` cannot carry CPU tensors over gloo.
    """
    timeout = timedelta(seconds=timeout_s)
    began = not dist.is_initialized()
    if began:
        _begin(timeout)
    else:
        _take_down_at_exit()
    if group is None:
        data = dist.new_group(backend="gloo", timeout=timeout)
        control = dist.new_group(backend="gloo", timeout=timeout)
        return ScriptGroups(data, control, (data, control), began)
    try:
        name = group._get_backend(torch.device("cpu")).name()
    except RuntimeError:
        name = "no backend for CPU tensors"
    if name != "gloo":
        raise ConfigError(f"the process group has {name}; make it with dist.new_group(backend='gloo')")
    # Only the members of ``group`` are here, so that they agree on the new group among themselves.
    ranks = dist.get_process_group_ranks(group)
    control = dist.new_group(ranks, backend="gloo", timeout=timeout, use_local_synchronization=True)
    return ScriptGroups(group, control, (control,), began)


@cache  # once, so that it comes behind every handle that is closed at exit
def _take_down_at_exit() -> None:
    """Have the default process group taken down before Python is.

    Lightning and Accelerate leave gloo's as it is. A thread of it that gives a tensor back while Python shuts down ends
    the process with SIGABRT (https://github.com/pytorch/pytorch/pull/179291).
    """

    def take_down() -> None:
        if dist.is_initialized() and not hasattr(sys, "last_value"):  # after an error it may wait for the others
            dist.destroy_process_group()

    atexit.register(take_down)


def own_address() -> str:
    """Where gloo listens on this host: at GLOO_SOCKET_IFNAME's address, else at what the host's name resolves to.

    Raises OSError where that is not known.
    """
    if not (names := os.environ.get("GLOO_SOCKET_IFNAME")):
        return socket.gethostbyname(socket.gethostname())
    try:
        return named_interface(names.partition(",")[0]).address
    except ConfigError as error:
        raise OSError(str(error)) from error


def _begin(timeout: timedelta) -> None:
    """Make the default process group: from torchrun's environment, or of this process alone where there is none."""
    found = [name for name in _NEEDED if name in os.environ]
    if not found or os.environ.get("WORLD_SIZE") == "1":
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)
    elif len(found) < len(_NEEDED):
        missing = ", ".join(name for name in _NEEDED if name not in found)
        raise ConfigError(f"the environment has {', '.join(found)} but not {missing}; start the script with torchrun")
    else:
        dist.init_process_group("gloo", timeout=timeout)
