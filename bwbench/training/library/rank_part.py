"""What belongs to one rank of a checkpoint: a file of its own beside those that the other program writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.training.library.handle import Distributed
from bwbench.training.library.uneven import tensors_in
from bwbench.training.loop.replica import digest


def save_part(
    folder: str | os.PathLike[str], handle: Distributed, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write ``bwbench-rank<r>.pt``: what the handle remembers. Collective, and drains.

    Parameters, buffers and the optimizer of this rank are in it as well where replicas are not equal at the moment:
    otherwise those of rank 0, which every checkpoint has, will do.
    """
    part: dict[str, Any] = {"handle": handle.state_dict()}
    replica = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if replicas_differ(replica):
        part |= replica
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.save(part, _file(folder, handle.rank))


def load_part(
    folder: str | os.PathLike[str], handle: Distributed, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Take back what ``save_part`` wrote; model and optimizer of the checkpoint are loaded before.

    Raises ConfigError where the checkpoint is of another method or number of ranks, or was not written by this.
    """
    file = _file(folder, handle.rank)
    if not file.is_file():
        raise ConfigError(
            f"{file} is not there: the checkpoint is of another program, or of fewer ranks than these "
            f"{handle.world_size}; begin anew with its weights alone: load them into the model"
        )
    part = torch.load(file, map_location="cpu", weights_only=True)
    if "model" in part:
        model.load_state_dict(part["model"])
        optimizer.load_state_dict(part["optimizer"])
    try:
        handle.load_state_dict(part["handle"])
    except ValueError as error:
        raise ConfigError(f"{file} does not fit: {error}") from error


@contextmanager
def memory_of_their_own(model: nn.Module) -> Iterator[None]:
    """Parameters lie in memory of their own inside, and are where they were afterwards, with the values of then.

    Methods that move parameters have them side by side in one memory, which safetensors takes for tied weights and
    leaves out.
    """
    places = [(p, p.data) for p in model.parameters() if p.untyped_storage().nbytes() > p.nbytes]
    for parameter, place in places:
        parameter.data = place.clone()
    try:
        yield
    finally:
        for parameter, place in places:
            if not torch.equal(parameter.data, place):
                place.copy_(parameter.data)
            parameter.data = place


def replicas_differ(replica: object) -> bool:
    """Whether the tensors inside are other ones on some rank. Collective, over the default process group."""
    digests: list[bytes | None] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest(enumerate(tensors_in(replica))))
    return len(set(digests)) > 1


def _file(folder: str | os.PathLike[str], rank: int) -> Path:
    return Path(folder) / f"bwbench-rank{rank}.pt"
