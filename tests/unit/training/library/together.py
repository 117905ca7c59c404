"""Training loops as users write them, one thread a rank."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.library import distribution
from bwbench.training.library.groups import ScriptGroups

T = TypeVar("T")
_own = threading.local()


def together(num_ranks: int, work: Callable[[int], T], timeout_s: float = 120.0) -> list[T]:
    """What ``work(rank)`` returned, by rank; ``distribute`` joins these ranks."""

    def with_group(group: dist.ProcessGroup, rank: int) -> T:
        data = dist.ProcessGroup(dist.HashStore(), rank, num_ranks)  # torch's DDP takes no bare gloo group
        data._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, group)
        _own.groups = ScriptGroups(data, data, made=(), began=False)
        return work(rank)

    with patch.object(distribution, "join", lambda group, timeout_s: _own.groups):
        return run_ranks(num_ranks, with_group, timeout_s)


def small_model(seed: int = 0) -> nn.Module:
    """Some 1,300 parameters; another one for each seed."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 20), nn.Tanh(), nn.Linear(20, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def batch(rank: int, step: int) -> torch.Tensor:
    """Another one for each rank and step: [8, 12]."""
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(1000 * rank + step))


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Some loss with a minimum away from zero."""
    return (model(inputs) - inputs[:, :4].sin()).pow(2).mean()


def values(model: nn.Module) -> torch.Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).clone()
