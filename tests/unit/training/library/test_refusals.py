"""Models and optimizers that cannot be trained are refused before the first step, by name, with what to do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bwbench import distribute
from bwbench.base.errors import ConfigError
from tests.unit.training.library.together import small_model, together


class FullyShardedDataParallel(nn.Module):
    """Has the name of torch's, which wants a GPU."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad] or [torch.zeros(1)], lr=0.1)


def of_other_type(dtype: torch.dtype) -> nn.Module:
    model = small_model()
    model[2].to(dtype)
    return model


def sparse() -> nn.Module:
    model = small_model()
    model.extra = nn.Parameter(torch.eye(3).to_sparse())
    return model


def meta_buffer() -> nn.Module:
    model = small_model()
    model.register_buffer("mask", torch.empty(3, device="meta"))
    return model


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.DataParallel(small_model()), "the model is a DataParallel, .*hand over the plain model"),
        (lambda: nn.Sequential(nn.DataParallel(small_model())), "module '0' is a DataParallel"),
        (lambda: FullyShardedDataParallel(small_model()), "the model is a FullyShardedDataParallel, .*HYBRID_SHARD"),
        (lambda: small_model().to("meta"), r"'0.weight' is on the meta device .*to_empty"),
        (meta_buffer, "buffer 'mask' is on the meta device"),
        (sparse, r"'extra' is sparse; .*to_dense"),
        (lazy, r"'0.weight' has no shape yet; call the model once"),
        (lambda: of_other_type(torch.float8_e4m3fn), r"'2.weight' is float8_e4m3fn; call model.float"),
    ],
)
def test_models(make: Callable[[], nn.Module], message: str) -> None:
    model = make()
    with pytest.raises(ConfigError, match=message):
        distribute(model, sgd(small_model()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its jit
def test_a_model_that_torch_has_wrapped_or_sharded() -> None:
    from torch.distributed._composable.replicate import replicate
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(small_model())
        with pytest.raises(ConfigError, match="the model is a DistributedDataParallel"):
            distribute(wrapped, sgd(wrapped))
        sharded = small_model()
        fully_shard(sharded, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
        with pytest.raises(ConfigError, match="the model is a FSDPModule"):
            distribute(sharded, sgd(sharded))
        parts = small_model()
        parts[2] = fully_shard(parts[2], mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
        with pytest.raises(ConfigError, match="module '2' is a FSDPModule"):
            distribute(parts, sgd(parts))
        tensors = small_model()
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        dist.tensor.distribute_module(tensors, mesh)
        with pytest.raises(ConfigError, match=r"'0.weight' is a DTensor"):
            distribute(tensors, sgd(tensors))
        replicated = small_model()
        replicate(replicated)
        with pytest.raises(ConfigError, match="which averages by itself"):
            distribute(replicated, sgd(replicated))
        from torch.distributed.optim import ZeroRedundancyOptimizer

        model = small_model()
        with pytest.raises(ConfigError, match="ZeroRedundancyOptimizer sends by itself"):
            distribute(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1))
    finally:
        dist.destroy_process_group()


class OfLosses(torch.optim.SGD):
    """An optimizer of somebody's, which computes the loss twice."""

    def step(self, closure: Callable[[], Any]) -> Any:
        return closure()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (torch.optim.LBFGS, "LBFGS asks for several gradients a step"),
        (lambda parameters: OfLosses(parameters, lr=0.1), "OfLosses asks for several gradients"),
        (torch.optim.SparseAdam, "SparseAdam takes sparse gradients, .*use Adam"),
        (lambda parameters: torch.optim.Adam(parameters, capturable=True), "capturable=True is for CUDA"),
        (lambda parameters: "sgd", "the optimizer is a str; distribute.. takes a torch.optim.Optimizer"),
        (lambda parameters: torch.optim.SGD([torch.zeros(2)], lr=0.1), "has no parameter that requires a gradient"),
    ],
)
def test_optimizers(make: Callable[[Any], Any], message: str) -> None:
    model = small_model()
    with pytest.raises(ConfigError, match=message):
        distribute(model, make(list(model.parameters())), "ring")


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("ddp", r"parameter '0.weight' is bfloat16, .*collective='ring'"),
        ("local-sgd", r"LocalSgd works on the parameters themselves, .*'0.weight' is bfloat16; .*'bytegrad'"),
        ("qadam", "'0.weight' is bfloat16"),
    ],
)
def test_what_works_on_parameters_wants_them_in_float32(algorithm: str, message: str) -> None:
    models = [small_model().bfloat16() for _ in range(2)]
    with pytest.raises(ConfigError, match=message):
        together(2, lambda rank: distribute(models[rank], torch.optim.Adam(models[rank].parameters()), algorithm))


def test_parameters_that_share_memory_are_not_moved() -> None:
    def work(rank: int, algorithm: str) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight.data = model[0].weight.data
        distribute(model, sgd(model), algorithm).close()

    together(2, lambda rank: work(rank, "ring"))
    with pytest.raises(ConfigError, match=r"parameters '0.weight' and '1.weight' share memory"):
        together(2, lambda rank: work(rank, "local-sgd"))


def test_a_model_that_torchs_ddp_is_wrapped_around_later_is_refused() -> None:
    def work(rank: int) -> None:
        model = small_model()
        with distribute(model, sgd(model), "ring"):
            theirs = Mock(modules=model.modules)
            with (
                patch.object(nn.parallel.DistributedDataParallel, "_active_ddp_module", theirs),
                pytest.raises(RuntimeError, match="called by torch's DistributedDataParallel"),
            ):
                model(torch.zeros(1, 12))
        model(torch.zeros(1, 12))

    together(1, work)
