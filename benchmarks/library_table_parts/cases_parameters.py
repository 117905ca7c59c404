"""What parameters can be: frozen, tied, sparse, of any type, shape, place and layout."""

from __future__ import annotations

import copy

import torch
from torch import nn

from library_table_parts.rig import LOCAL_SGD, Rig, adamw, batch, case, loss_of, net, seeded, sgd, train

UNUSED = {"find_unused_parameters": True}


@case("frozen from the start")
def _(rig: Rig) -> None:
    model = net()
    model[0].requires_grad_(False)
    train(rig, model, adamw(model))


@case("frozen later", ddp=UNUSED)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, adamw(model), before=lambda step: model[0].requires_grad_(step < 2) and None)


@case("frozen later, DDP without find_unused_parameters")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, adamw(model), before=lambda step: model[0].requires_grad_(step < 2) and None)


@case("frozen later and unfrozen again", ddp=UNUSED)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), steps=6, before=lambda step: model[0].requires_grad_(step not in (2, 3)) and None)


@case("frozen later, gradients zeroed by model.zero_grad()", ddp=UNUSED)
def _(rig: Rig) -> None:
    model = net()

    def before(step: int) -> None:
        model.zero_grad()
        model[0].requires_grad_(step < 2)

    train(rig, model, adamw(model), before=before)


@case("unfrozen later", names="frozen|unfr|requires_grad|trainable|require.{0,20}gradient")
def _(rig: Rig) -> None:
    model = net()
    model[0].requires_grad_(False)
    train(rig, model, sgd(model), before=lambda step: model[0].requires_grad_(step >= 2) and None)


@case(
    "unfrozen later, by add_param_group",
    names="frozen|unfr|requires_grad|requires a gradient now|trainable|not the model's|add_param_group",
)
def _(rig: Rig) -> None:
    model = net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def before(step: int) -> None:
        if step == 2:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})

    train(rig, model, optimizer, before=before)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        seeded(self)
        self.head.weight = self.words.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(self.words((inputs.abs() * 5).long() % 11))))


@case("tied parameters")
def _(rig: Rig) -> None:
    model = Tied()
    train(rig, model, adamw(model))


@case("tied parameters, untied later")
def _(rig: Rig) -> None:
    model = Tied()

    def before(step: int) -> None:
        if step == 2:  # the new head is in no optimizer: it gets gradients and stays as it is
            model.head.weight = nn.Parameter(model.head.weight.detach().clone())

    train(rig, model, sgd(model), before=before)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 5, sparse=True)
        seeded(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.words((inputs.abs() * 9).long() % 30).sum(1)


@case("sparse gradients with SGD", names="sparse")
def _(rig: Rig) -> None:
    model = Words()
    train(rig, model, sgd(model, momentum=0.0))


@case("sparse gradients with SparseAdam", names="sparse")
def _(rig: Rig) -> None:
    model = Words()
    train(rig, model, torch.optim.SparseAdam(model.parameters(), lr=0.05))


class Odd(nn.Module):
    """A layer, and a parameter of the shape in question."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.odd = nn.Parameter(torch.ones(shape))
        seeded(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs) * (1 + self.odd.sum())


@case("zero-size parameters")
def _(rig: Rig) -> None:
    model = Odd(0, 4)
    train(rig, model, sgd(model))


@case("0-d parameters")
def _(rig: Rig) -> None:
    model = Odd()
    train(rig, model, adamw(model))


@case("zero-size parameters, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = Odd(0, 4)
    train(rig, model, sgd(model, momentum=0.0))


@case("0-d parameters, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = Odd()
    train(rig, model, sgd(model, momentum=0.0))


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Linear(4, 3)
        seeded(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.two(torch.relu(self.one(inputs))).mean((2, 3)))


def pictures(rank: int, step: int) -> torch.Tensor:
    return batch(rank, step, 4, 3, 8, 8).contiguous(memory_format=torch.channels_last)


@case("channels-last")
def _(rig: Rig) -> None:
    model = Pictures().to(memory_format=torch.channels_last)
    train(rig, model, adamw(model), inputs=pictures)
    strides = torch.tensor(model.one.weight.stride(), dtype=torch.float32)
    rig.keep_tensors({"strides": strides})  # or convolutions are slow from then on, and nobody says so


@case("channels-last, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = Pictures().to(memory_format=torch.channels_last)
    train(rig, model, sgd(model, momentum=0.0), inputs=pictures)


@case("channels-last after distribute")
def _(rig: Rig) -> None:
    model = Pictures()
    train(
        rig, model, sgd(model), inputs=pictures,
        before=lambda step: model.to(memory_format=torch.channels_last) and None,
    )  # fmt: skip


@case("parameters that are not contiguous")
def _(rig: Rig) -> None:
    model = net()
    model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
    train(rig, model, adamw(model))


@case("parameters that are not contiguous, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = net()
    model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
    train(rig, model, sgd(model, momentum=0.0))


@case("parameters that share memory")
def _(rig: Rig) -> None:
    model = net()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    begin = 0
    for parameter in model.parameters():
        parameter.data = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    train(rig, model, sgd(model))
    rig.keep_tensors({"flat": flat})


def typed(rig: Rig, kind: torch.dtype, **options: object) -> None:
    model = net().to(kind)
    train(rig, model, sgd(model, momentum=0.0), inputs=lambda rank, step: batch(rank, step).to(kind), **options)


@case("fp64 parameters", names="float64", tolerance=1e-6)
def _(rig: Rig) -> None:
    typed(rig, torch.float64)


@case("bf16 parameters", names="bfloat16", tolerance=2e-2)
def _(rig: Rig) -> None:
    typed(rig, torch.bfloat16)


@case("fp16 parameters", names="float16", tolerance=5e-3)
def _(rig: Rig) -> None:
    typed(rig, torch.float16)


@case("bf16 parameters, with local-sgd", names="bfloat16", tolerance=3e-2, **LOCAL_SGD)
def _(rig: Rig) -> None:
    typed(rig, torch.bfloat16)


@case("one bf16 layer among fp32 ones", names="bfloat16", tolerance=2e-2)
def _(rig: Rig) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.two(torch.tanh(self.one(inputs.bfloat16())).float())

    model = seeded(Mixed())
    model.one.bfloat16()
    train(rig, model, sgd(model))


@case("complex parameters", names="complex")
def _(rig: Rig) -> None:
    model = nn.Linear(6, 3, dtype=torch.complex64)
    seeded(model)
    forward = rig.distribute(model, optimizer := torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: (forward(batch(rank, step).to(torch.complex64)) - 0.5).abs().pow(2).mean())
        optimizer.step()
    rig.keep(model)


@case("frozen parameters of other types", names="dtype|bfloat16|int8")
def _(rig: Rig) -> None:
    model = net()
    model.register_parameter("scale", nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False))
    model.register_parameter("fine", nn.Parameter(torch.ones(3, dtype=torch.bfloat16) * rig.rank, requires_grad=False))
    train(rig, model, sgd(model))


@case("meta model", names="meta")
def _(rig: Rig) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 3))
    train(rig, model, sgd(model))


@case("lazy modules not yet materialised", truth=False, names="[Ll]azy|[Uu]ninitialized|no shape yet")
def _(rig: Rig) -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))
    train(rig, model, torch.optim.SGD(model.parameters(), lr=0.1))


@case("no parameter requires a gradient", names="no parameter|doesn't require|does not require")
def _(rig: Rig) -> None:
    model = net().requires_grad_(False)
    train(rig, model, sgd(model))


@case("ParameterList, ParameterDict and nested modules")
def _(rig: Rig) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.ParameterList(torch.zeros(6) for _ in range(3))
            self.named = nn.ParameterDict({"bias": torch.zeros(3)})
            self.deep = nn.ModuleDict({"a": nn.ModuleList([nn.Sequential(nn.Linear(3, 3))])})

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            outputs = torch.stack([inputs @ row for row in self.rows], 1) + self.named["bias"]
            return self.deep["a"][0](outputs)

    model = seeded(Nested())
    train(rig, model, adamw(model))


@case("unequal initialisation")
def _(rig: Rig) -> None:
    model = net(seed=rig.rank)
    train(rig, model, sgd(model))


@case("unequal initialisation of frozen parameters and buffers")
def _(rig: Rig) -> None:
    model = net(seed=rig.rank)
    model[0].requires_grad_(False)
    model.register_buffer("scale", torch.full((3,), 1.0 + rig.rank))
    model.register_forward_hook(lambda module, inputs, outputs: outputs * module.scale)
    train(rig, model, sgd(model))
    rig.keep_tensors({"scale": model.scale})


@case("parameters shared by two models", names="given to distribute|already")
def _(rig: Rig) -> None:
    one, two = net(), net(1)
    two[0] = one[0]
    first, second = sgd(one), torch.optim.SGD(two[2:].parameters(), lr=0.1)
    forward = rig.distribute(one, first)
    other = rig.distribute(two, second)
    for step in range(3):
        first.zero_grad(), second.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))) + loss_of(other(batch(rank, step))))
        first.step(), second.step()
    rig.keep(copy.deepcopy(nn.ModuleList([one, two])))


@case("a parameter registered after distribute", names="registered|added|new parameter|not the model's|unknown")
def _(rig: Rig) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def before(step: int) -> None:
        if step == 2:
            model[4] = seeded(nn.Linear(8, 3), 5)
            optimizer.add_param_group({"params": list(model[4].parameters())})

    train(rig, model, optimizer, before=before)
