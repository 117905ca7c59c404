"""Kinds of model: wrapped, compiled, checkpointed, normalised, parametrised."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from library_table_parts.rig import BWBENCH, DDP, Rig, adamw, batch, case, loss_of, net, seeded, sgd, train


@case("model wrapped in DDP", names="DistributedDataParallel|DDP")
def _(rig: Rig) -> None:
    model: nn.Module = net()
    if rig.arm != "truth":
        model = nn.parallel.DistributedDataParallel(model)
    train(rig, model, sgd(model))


@case("model with a part wrapped in DDP", names="DistributedDataParallel|DDP")
def _(rig: Rig) -> None:
    model = net()
    if rig.arm != "truth":
        model[0] = nn.parallel.DistributedDataParallel(model[0])
        rig.keep_tensors = lambda tensors, keep=rig.keep_tensors: keep(  # type: ignore[method-assign]
            {name.replace("0.module", "0"): value for name, value in tensors.items()}
        )
    train(rig, model, sgd(model))


@case("model wrapped in DDP after distribute", names="DistributedDataParallel|DDP|second backward")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    forward = rig.distribute(model, optimizer)
    if rig.arm == BWBENCH:
        forward = nn.parallel.DistributedDataParallel(model)
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("model wrapped in FSDP", names="FSDP|FullyShardedDataParallel|fully_shard")
def _(rig: Rig) -> None:
    model: nn.Module = net()
    if rig.arm != "truth":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    train(rig, model, sgd(model))


@case("model sharded by fully_shard (FSDP2)", names="FSDP|fully_shard|DTensor|shard")
def _(rig: Rig) -> None:
    model = net()
    if rig.arm != "truth":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (rig.num_ranks,)))
    train(rig, model, sgd(model))


@case("model with tensor-parallel layers (DTensor)", truth=False, names="DTensor|shard|tensor.parallel")
def _(rig: Rig) -> None:
    model = net()
    if rig.arm != "truth":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (rig.num_ranks,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(rig, model, sgd(model))


@case("model wrapped in DataParallel")
def _(rig: Rig) -> None:
    model = nn.DataParallel(net())
    train(rig, model, sgd(model))


@case("model wrapped by another nn.Module")
def _(rig: Rig) -> None:
    inner = net()
    outer = nn.Sequential(inner)
    train(rig, outer, sgd(inner))


@case("inner model distributed, outer one called")
def _(rig: Rig) -> None:
    inner = net()
    optimizer = sgd(inner)
    outer = nn.Sequential(rig.distribute(inner, optimizer), nn.Tanh())
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(outer(batch(rank, step))))
        optimizer.step()
    rig.keep(inner)


@case("torch.compile(backend='eager') before")
def _(rig: Rig) -> None:
    model = net()
    compiled = torch.compile(model, backend="eager")
    train(rig, compiled, sgd(model))


@case("torch.compile(backend='aot_eager') after")
def _(rig: Rig) -> None:
    model = net()
    forward = torch.compile(rig.distribute(model, optimizer := sgd(model)), backend="aot_eager")
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("model.compile() and a compiled loop")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    model.compile(backend="eager")
    whole = torch.compile(lambda inputs: loss_of(forward(inputs)), backend="eager")
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: whole(batch(rank, step)))
        optimizer.step()
    rig.keep(model)


@case("torch.compile of optimizer.step")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    step_ = torch.compile(lambda: optimizer.step(), backend="eager")
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        step_()
    rig.keep(model)


@case("torch.jit.trace")
def _(rig: Rig) -> None:
    model = net()
    traced = torch.jit.trace(model, batch(0, 0))
    train(rig, traced, sgd(traced))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.one, self.two, self.reentrant = net(), nn.Linear(3, 3), reentrant
        seeded(self.two)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = inputs.clone().requires_grad_()
        for part in (self.one[:2], self.one[2:], self.two):
            inputs = checkpoint(part, inputs, use_reentrant=self.reentrant)
        return inputs


@case("activation checkpointing, use_reentrant=False")
def _(rig: Rig) -> None:
    model = Checkpointed(reentrant=False)
    train(rig, model, sgd(model))


@case("activation checkpointing, use_reentrant=True", names="use_reentrant")
def _(rig: Rig) -> None:
    model = Checkpointed(reentrant=True)
    train(rig, model, sgd(model))


@case("activation checkpointing, use_reentrant=True, in no_sync", names="use_reentrant")
def _(rig: Rig) -> None:
    model = Checkpointed(reentrant=True)
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        with rig.no_sync():
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


def normalised(rig: Rig, **options: Any) -> dict[str, torch.Tensor]:
    """BatchNorm over inputs of unlike mean and spread; the running statistics of this rank at the end."""
    model = seeded(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
    forward = rig.distribute(model, optimizer := sgd(model), **(options if rig.arm == BWBENCH else {}))

    def loss(rank: int, step: int) -> torch.Tensor:
        with rig.buffers_of(rank, model):
            return loss_of(forward(batch(rank, step) * (1 + rank) + rank))

    for step in range(5):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)
    if rig.arm == DDP and rig.case.ddp.get("broadcast_buffers", True):
        rig.wrapped._sync_buffers()  # what the next forward pass begins with
    if rig.arm == BWBENCH and options:
        rig.handle.drain()
    return {name: value for name, value in model.named_buffers() if value.is_floating_point()}


@case("BatchNorm: parameters")
def _(rig: Rig) -> None:
    normalised(rig)


@case("BatchNorm: running statistics stay local, as documented", ddp={"broadcast_buffers": False})
def _(rig: Rig) -> None:
    mean = normalised(rig)["1.running_mean"]
    every = [torch.zeros_like(mean) for _ in range(rig.num_ranks)]
    if rig.arm == "truth":
        every = [rig.buffers[rank]["1.running_mean"] for rank in rig.ranks]
    else:
        torch.distributed.all_gather(every, mean)
    rig.keep_tensors({f"rank {rank}": value for rank, value in enumerate(every)})


@case("BatchNorm: buffers='broadcast', as torch's DDP has them")
def _(rig: Rig) -> None:
    found = normalised(rig, buffers="broadcast")
    rig.keep_tensors({name: rig.buffers[0][name] for name in found} if rig.arm == "truth" else found)


@case("BatchNorm: buffers='average'")
def _(rig: Rig) -> None:
    found = normalised(rig, buffers="average")
    if rig.arm == "truth":
        found = {name: torch.stack([rig.buffers[rank][name] for rank in rig.ranks]).mean(0) for name in found}
    rig.keep_tensors(found)


@case("dropout, another one on each rank")
def _(rig: Rig) -> None:
    model = nn.Sequential(net(), nn.Dropout(0.5))
    forward = rig.distribute(model, optimizer := sgd(model))

    def loss(rank: int, step: int) -> torch.Tensor:
        torch.manual_seed(100 * rank + step)
        return loss_of(forward(batch(rank, step)))

    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)


@case("weight_norm and spectral_norm before distribute")
def _(rig: Rig) -> None:
    model = net()
    model[0] = parametrizations.weight_norm(model[0])
    torch.manual_seed(1)
    model[2] = parametrizations.spectral_norm(model[2], n_power_iterations=3)
    forward = rig.distribute(model, optimizer := sgd(model))

    def loss(rank: int, step: int) -> torch.Tensor:
        with rig.buffers_of(rank, model):
            return loss_of(forward(batch(rank, step)))

    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)


@case("weight_norm after distribute", names="registered|added|new parameter|not the model's|replaced|no longer")
def _(rig: Rig) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def before(step: int) -> None:
        if step == 2:
            parametrizations.weight_norm(model[0])
            optimizer.add_param_group({"params": [p for n, p in model[0].named_parameters() if "original" in n]})

    train(rig, model, optimizer, before=before)


@case("functional_call with the model's parameters")
def _(rig: Rig) -> None:
    model = net()
    rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(
            lambda rank: loss_of(torch.func.functional_call(model, dict(model.named_parameters()), batch(rank, step)))
        )
        optimizer.step()
    rig.keep(model)


@case("methods of the model other than forward")
def _(rig: Rig) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def encode(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.net(inputs)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.encode(inputs).tanh()

    model = Encoder()
    rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(model.encode(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("recurrent layers (LSTM)")
def _(rig: Rig) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(6, 5, num_layers=2, batch_first=True)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.inner(inputs[:, None].expand(-1, 4, -1))[0]

    model = seeded(Recurrent())
    train(rig, model, adamw(model))


@case("attention (TransformerEncoderLayer)")
def _(rig: Rig) -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    model = seeded(layer)
    train(rig, model, adamw(model), inputs=lambda rank, step: batch(rank, step)[:, None].expand(-1, 3, -1))


@case("deepcopy of the model before, trained beside it")
def _(rig: Rig) -> None:
    model = net()
    teacher = copy.deepcopy(model).requires_grad_(False)
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: (forward(batch(rank, step)) - teacher(batch(rank, step)) - 1).pow(2).mean())
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.lerp_(other, 0.5)
    rig.keep(nn.ModuleList([model, teacher]))
