"""Ranks that do not do the same, and ranks that are lost."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from library_table_parts.rig import BWBENCH, DDP, LOCAL_SGD, Rig, adamw, batch, case, loss_of, net, seeded, sgd, train


def odd(rig: Rig) -> bool:
    """The one rank that is different: the last."""
    return rig.rank == rig.num_ranks - 1


class Free(nn.Module):
    """Parameters of any shapes, all of which count."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape)))
        seeded(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return sum(parameter.square().sum() for parameter in self.parameters()) * inputs.mean(1)


def shaped(rig: Rig, common: dict[str, tuple[int, ...]], other: dict[str, tuple[int, ...]], **options: Any) -> None:
    model = Free(**(other if odd(rig) else common))
    train(rig, model, sgd(model), **options)


@case("other shape of equal size on one rank", truth=False, names="shape|size")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6)}, {"a": (6, 4)})


@case("other size on one rank", truth=False, names="shape|size")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6)}, {"a": (4, 7)})


@case("sizes swapped between two parameters on one rank", truth=False, names="shape|size|order")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6), "b": (8,)}, {"a": (8,), "b": (4, 6)})


@case("other number of parameters on one rank", truth=False, names="parameter")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6)}, {"a": (4, 6), "b": (3,)})


@case("no parameter that is trained on one rank", truth=False, names="parameter|requires")
def _(rig: Rig) -> None:
    model = net()
    model.requires_grad_(not odd(rig))
    train(rig, model, sgd(model))


@case("other names on one rank", truth=False, names="name|parameter")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6), "b": (4, 6)}, {"a": (4, 6), "c": (4, 6)})


@case("order of equal parameters swapped on one rank", truth=False, names="name|parameter|order")
def _(rig: Rig) -> None:
    shaped(rig, {"a": (4, 6), "b": (4, 6)}, {"b": (4, 6), "a": (4, 6)})


@case("other type on one rank", truth=False, names="float64|type")
def _(rig: Rig) -> None:
    model = net().to(torch.float64 if odd(rig) else torch.float32)
    kind = model[0].weight.dtype
    train(rig, model, sgd(model), inputs=lambda rank, step: batch(rank, step).to(kind))


@case("another layer frozen on one rank", truth=False, names="frozen|requires_grad|trained|gradient|inconsistent")
def _(rig: Rig) -> None:
    model = net()
    model[0].requires_grad_(not odd(rig))
    train(rig, model, sgd(model))


@case("a parameter frozen later on one rank only", truth=False, names="frozen|requires_grad|trained|froze")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), before=lambda step: model[0].requires_grad_(step < 2 or not odd(rig)) and None)


@case("other buffers on one rank", truth=False, names="buffer")
def _(rig: Rig) -> None:
    model = net()
    model.register_buffer("extra", torch.zeros(5 if odd(rig) else 3))
    train(rig, model, sgd(model))


def by_method(rig: Rig, common: Any, other: Any, **options: Any) -> None:
    model = net()
    train(rig, model, sgd(model), method=other if odd(rig) else common, **options)


METHOD = "method|algorithm|collective|compression|option"


@case("other method on one rank: ring, bytegrad", truth=False, names=METHOD)
def _(rig: Rig) -> None:
    by_method(rig, "ring", "bytegrad")


@case("other method on one rank: ring, local-sgd", truth=False, names=METHOD)
def _(rig: Rig) -> None:
    by_method(rig, "ring", {"local-sgd": {"period": 4}})


@case("other method on one rank: ring, ddp", truth=False, names=METHOD)
def _(rig: Rig) -> None:
    by_method(rig, "ring", "ddp")


@case("other options on one rank: period of local-sgd", truth=False, names=METHOD + "|period")
def _(rig: Rig) -> None:
    by_method(rig, {"local-sgd": {"period": 2}}, {"local-sgd": {"period": 3}})


@case("other options on one rank: ratio of top-k", truth=False, names=METHOD + "|ratio")
def _(rig: Rig) -> None:
    model = net()
    codec = {"top-k": {"ratio": 0.1 if odd(rig) else 0.2}}
    options = {"collective": "all-gather", "compression": codec} if rig.arm == BWBENCH else {}
    train(rig, model, sgd(model, momentum=0.0), method="every-step", **options)


@case("other options on one rank: size of buckets", truth=False, names=METHOD + "|bucket")
def _(rig: Rig) -> None:
    by_method(
        rig, {"every-step": {"bucket": "1 kB"}}, "every-step", **({"collective": "ring"} if rig.arm == BWBENCH else {})
    )


LR = "learning rate|lr|optimizer"


@case("other lr on one rank", truth=False, names=LR, warning=True)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model, lr=0.2 if odd(rig) else 0.1))


@case("other optimizer class on one rank", truth=False, names="optimizer|AdamW|SGD")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, adamw(model) if odd(rig) else sgd(model))


@case("other weight decay on one rank", truth=False, names="weight_decay|weight decay|optimizer", warning=True)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model, weight_decay=0.1 if odd(rig) else 0.0))


@case("other parameter groups on one rank", truth=False, names="group|optimizer", warning=True)
def _(rig: Rig) -> None:
    model = net()
    halves = [model[2:], model[0]] if odd(rig) else [model[0], model[2:]]
    groups = [{"params": halves[0].parameters(), "lr": 0.01}, {"params": halves[1].parameters()}]
    train(rig, model, torch.optim.SGD(groups, lr=0.1))


@case("optimizer over other parameters on one rank", truth=False, names="optimizer|parameter", warning=True)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model[2:] if odd(rig) else model))


def not_finite(rig: Rig, value: float, method: Any = None) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model), method)

    def loss(rank: int, step: int) -> torch.Tensor:
        bad = step == 2 and rank == rig.num_ranks - 1
        return loss_of(forward(batch(rank, step))) * (value if bad else 1.0)

    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)


FINITE = "nan|inf|finite"


@case("NaN on one rank", names=FINITE)
def _(rig: Rig) -> None:
    not_finite(rig, torch.nan)


@case("infinity on one rank", names=FINITE)
def _(rig: Rig) -> None:
    not_finite(rig, torch.inf)


@case("NaN on one rank, with bytegrad", truth=False, names=FINITE, method="bytegrad", warning=True)
def _(rig: Rig) -> None:
    not_finite(rig, torch.nan)


@case("NaN on one rank, with top-k", truth=False, names=FINITE, method="top-k", warning=True)
def _(rig: Rig) -> None:
    not_finite(rig, torch.nan)


@case("NaN on one rank, with torch's DDP inside", names=FINITE, method="ddp", warning=True)
def _(rig: Rig) -> None:
    not_finite(rig, torch.nan)


@case("NaN on one rank, with local-sgd", names=FINITE, **LOCAL_SGD)
def _(rig: Rig) -> None:
    not_finite(rig, torch.nan)


def steps_then(rig: Rig, event: Any, steps: int = 5) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(steps):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(event(rank, step, forward)(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("exception in the forward pass on one rank", truth=False, lost="last")
def _(rig: Rig) -> None:
    def event(rank: int, step: int, forward: Any) -> Any:
        if odd(rig) and step == 2:
            raise ValueError("a file is broken")
        return forward

    steps_then(rig, event)


@case("exception in the backward pass on one rank", truth=False, lost="last")
def _(rig: Rig) -> None:
    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("a hook of the user's fails")

    def event(rank: int, step: int, forward: Any) -> Any:
        def watched(inputs: torch.Tensor) -> torch.Tensor:
            outputs = forward(inputs)
            if odd(rig) and step == 2:
                forward.get_submodule("module.0" if rig.arm == DDP else "0").weight.register_hook(fail)
            return outputs

        return watched

    steps_then(rig, event)


@case("out of memory on one rank, caught, and its batch skipped")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        try:
            rig.backward(
                lambda rank: None if (rank, step) == (rig.num_ranks - 1, 2) else loss_of(forward(batch(rank, step)))
            )
        except MemoryError:
            pass
        optimizer.step()
    rig.keep(model)


@case("a rank skips a whole step", truth=False, lost="last")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        if odd(rig) and step == 2:
            continue
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("a rank ends early without a word", truth=False, lost="last")
def _(rig: Rig) -> None:
    def event(rank: int, step: int, forward: Any) -> Any:
        if odd(rig) and step == 2:
            os._exit(0)
        return forward

    steps_then(rig, event)


@case("a rank is killed", truth=False, lost="last")
def _(rig: Rig) -> None:
    def event(rank: int, step: int, forward: Any) -> Any:
        if odd(rig) and step == 2:
            os._exit(9)
        return forward

    steps_then(rig, event)


@case("a rank never calls distribute", truth=False, lost="last")
def _(rig: Rig) -> None:
    model = net()
    if odd(rig):
        loss_of(model(batch(0, 0))).backward()
        return
    train(rig, model, sgd(model))


@case("two models distributed in another order on one rank", truth=False, names="parameter|shape|order|name")
def _(rig: Rig) -> None:
    one, two = net(), net(1)[:3]
    pairs = [(one, sgd(one)), (two, sgd(two))]
    forwards = {id(model): rig.distribute(model, opt) for model, opt in (pairs[::-1] if odd(rig) else pairs)}
    for step in range(3):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            rig.backward(lambda rank: loss_of(forwards[id(model)](batch(rank, step))))  # noqa: B023
            optimizer.step()


@case("one rank accumulates, the others do not", truth=False, lost="last", names="no_sync|second backward")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(2 if odd(rig) else 1):
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)
