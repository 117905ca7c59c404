"""The device that a rank computes on: found, refused where it is not there, and what of it is recorded."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import CellConfig
from bwbench.methods.collectives import AbstractCollective
from bwbench.methods.collectives.host_devices import Gpu, HostDevices, each_has_its_own, give_up
from bwbench.methods.devices import device_of

# Without these NCCL sends between GPUs of one machine by their bus or by shared memory: past the link that is asked.
NCCL_BY_SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
TRIAL_S = 30.0  # for the first exchange of NCCL, which makes its connections

Tell: TypeAlias = Callable[[object], list[Any]]  # what this rank says → what all say, by rank


def device_for(config: CellConfig, rank: int) -> torch.device:
    """The device of a rank, which is the current one of this thread from now on.

    Ranks take GPUs in turn, so that four of them may share one.

    Raises ConfigError where the cell asks for a GPU, and torch has none here.
    """
    if config.compute.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "finds no GPU" if built else "is a build without CUDA"
        raise ConfigError(
            f"compute.device: cuda, and torch {torch.__version__} {why} here; write 'device: cpu', or install a build "
            "of torch for this machine's driver (https://pytorch.org/get-started)"
        )
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def leave_gpus_alone(config: CellConfig) -> None:
    """Let torch see no GPU where the cell computes on the processor; in a process that has asked for none yet.

    Torch's PowerSGD hook waits for the GPU wherever there is one, with a model on the processor as well, and fails.
    """
    if config.compute.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def data_backend(config: CellConfig) -> str:
    """Of the process group that carries payload: gloo; for torch's own exchange NCCL where each rank has a GPU.

    Our collectives send from host memory, so by gloo in any case. All ranks call it, once they have met on the control
    path and chosen their device: they tell one another what they have, so that none waits for another backend's.
    """
    if config.compute.device == "cpu" or config.collective.name != "torch":
        return "gloo"
    return backend_for(tell_by_default(own_gpu()))


def backend_for(gpus: Sequence[Gpu | None]) -> str:
    """NCCL, which refuses two ranks on one GPU, where all have one of their own. Pure.

    Args:
        gpus: of each rank; None where it can use none by NCCL.
    """
    return "gloo" if None in gpus or len(set(gpus)) < len(gpus) else "cpu:gloo,cuda:nccl"


def tell_by_default(own: object) -> list[Any]:
    """What all ranks of the default process group say. Collective."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, own)
    return said


def own_gpu(device: torch.device | None = None) -> Gpu | None:
    """A GPU that NCCL can use, this thread's current one by default; None where there is none, or ``device`` is none.

    By its number where torch knows no UUID, which may say too often that two ranks share one.
    """
    if not torch.cuda.is_available() or not dist.is_nccl_available() or (device and device.type != "cuda"):
        return None
    index = torch.cuda.current_device() if device is None or device.index is None else device.index
    return socket.gethostname(), str(getattr(torch.cuda.get_device_properties(index), "uuid", index))


def connect_devices(
    collective: AbstractCollective, group: dist.ProcessGroup, device: torch.device, tell: Tell, limit: timedelta
) -> dist.ProcessGroup | None:
    """Let ranks of a host speak from GPU to GPU, where the collective has use for it and each has its own. Collective.

    Nothing is relied on that has not been tried: values go round in each host first, and all ranks hear of it.

    Args:
        group: of those that train together, which has connected the collective.
        device: that the model is on.
        tell: what all of them say, by rank in ``group``; called on all of them or on none.
        limit: of an exchange.

    Returns:
        The group that was made, for whoever takes it down; None where gloo carries everything.
    """
    hosts = collective.hosts_of_devices(group.size())
    if not hosts or not each_has_its_own([gpu and tuple(gpu) for gpu in tell(own_gpu(device))], hosts):
        return None
    ranks, world = dist.get_process_group_ranks(group), dist.group.WORLD
    # torch sorts the ranks of a group, and splits NCCL's of a default group that is bound to a device, which all ranks
    # of that would have to take part in.
    if ranks != sorted(ranks) or getattr(world, "bound_device_id", None) is not None:
        return None
    mates = [ranks[place] for place in next(host for host in hosts if group.rank() in host)]
    made: dist.ProcessGroup | None = None
    works, trial_s = False, min(TRIAL_S, limit.total_seconds() / 4)  # the others wait for what this rank says of it
    with suppress(RuntimeError, ValueError):  # of torch, and of NCCL
        # Only the ranks of this host are here, so that they agree on the new group among themselves.
        made = dist.new_group(mates, 2 * limit, "nccl", use_local_synchronization=True)
        works = HostDevices(made, trial_s).work_on(device)
    if all(tell(works)) and made is not None:
        collective.devices = HostDevices(made, limit.total_seconds())
        return made
    if made is not None:
        give_up(made)
    return None


def device_name(tensor: torch.Tensor) -> str | None:
    """For the record: a GPU by its maker's name for it; None for the processor, which environment.json names."""
    device = device_of(tensor)
    return device.name if device.elsewhere else None
