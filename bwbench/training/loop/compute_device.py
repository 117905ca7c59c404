"""The device that a rank computes on: found, refused where it is not there, and what of it is recorded."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import torch

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import CellConfig
from bwbench.methods.devices import device_of

# Without these NCCL sends between GPUs of one machine by their bus or by shared memory: past the link that is asked.
NCCL_BY_SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
_Gpu = tuple[str, str]  # host, and the GPU's UUID


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
    gpus: list[_Gpu | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gpus, _own_gpu())
    return backend_for(gpus)


def backend_for(gpus: Sequence[_Gpu | None]) -> str:
    """NCCL, which refuses two ranks on one GPU, where all have one of their own. Pure.

    Args:
        gpus: of each rank; None where it can use none by NCCL.
    """
    return "gloo" if None in gpus or len(set(gpus)) < len(gpus) else "cpu:gloo,cuda:nccl"


def _own_gpu() -> _Gpu | None:
    """This thread's current one; by its number where torch knows no UUID, which may say too often that two share it."""
    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        return None
    index = torch.cuda.current_device()
    return socket.gethostname(), str(getattr(torch.cuda.get_device_properties(index), "uuid", index))


def device_name(tensor: torch.Tensor) -> str | None:
    """For the record: a GPU by its maker's name for it; None for the processor, which environment.json names."""
    device = device_of(tensor)
    return device.name if device.elsewhere else None
