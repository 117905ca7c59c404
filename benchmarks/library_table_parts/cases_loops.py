"""What is between ``zero_grad`` and ``step``: accumulation, clipping, scaling, skipped steps, passes by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from library_table_parts.rig import DDP, Rig, adamw, batch, case, loss_of, net, sgd, train

UNUSED = {"find_unused_parameters": True}


@case("accumulation under no_sync")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := adamw(model))
    for step in range(4):
        optimizer.zero_grad()
        with rig.no_sync():
            for micro in range(2):
                rig.backward(lambda rank: loss_of(forward(batch(rank, 3 * step + micro))) / 3)
        rig.backward(lambda rank: loss_of(forward(batch(rank, 3 * step + 2))) / 3)
        optimizer.step()
    rig.keep(model)


@case("accumulation under no_sync with the last micro-step inside as well", names="no_sync")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        with rig.no_sync():
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("accumulation without no_sync", names="no_sync")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := adamw(model))
    for step in range(4):
        optimizer.zero_grad()
        for micro in range(3):
            rig.backward(lambda rank: loss_of(forward(batch(rank, 3 * step + micro))) / 3)
        optimizer.step()
    rig.keep(model)


@case("accumulation by summing losses")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := adamw(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))) + loss_of(forward(batch(rank, step + 9))))
        optimizer.step()
    rig.keep(model)


@case("gradients never zeroed")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model, momentum=0.0, lr=0.02))
    for step in range(4):
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("second backward without step", names="no_sync|second backward")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    rig.backward(lambda rank: loss_of(forward(batch(rank, 0))))
    rig.backward(lambda rank: loss_of(forward(batch(rank, 1))))
    optimizer.step()
    rig.keep(model)


@case("backward twice with retain_graph", names="no_sync|second backward")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    kept = []
    rig.backward(lambda rank: kept.append(loss_of(forward(batch(rank, 0)))) or kept[-1], retain_graph=True)
    for loss in kept:
        (loss / len(kept)).backward()
    optimizer.step()
    rig.keep(model)


@case("gradient penalty (autograd.grad with create_graph)")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))

    def loss(rank: int, step: int) -> torch.Tensor:
        inputs = batch(rank, step).requires_grad_()
        outputs = forward(inputs)
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return loss_of(outputs) + slope.pow(2).mean()

    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)


@case("gradients set by hand (autograd.grad), no backward pass", names="backward")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        loss = sum(loss_of(forward(batch(rank, step))) for rank in rig.ranks) / len(rig.ranks)
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.grad = gradient
        optimizer.step()
    rig.keep(model)


@case("p.grad = None by hand")
def _(rig: Rig) -> None:
    model = net()

    def before(step: int) -> None:
        for parameter in model.parameters():
            parameter.grad = None

    train(rig, model, sgd(model), before=before)


@case("model.zero_grad()")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        model.zero_grad()
    rig.keep(model)


@case("optimizer.zero_grad(set_to_none=False)")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := adamw(model))
    for step in range(4):
        optimizer.zero_grad(set_to_none=False)
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("a step thrown away by zero_grad")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(5):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        if step != 2:
            optimizer.step()
    rig.keep(model)


@case("a step thrown away by model.zero_grad()")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(5):
        model.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        if step != 2:
            optimizer.step()
    rig.keep(model)


@case("step without a backward pass")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := adamw(model))
    for step in range(5):
        optimizer.zero_grad()
        if step != 2:
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("two steps with the same gradients", names="second step|without a backward")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(3):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        optimizer.step()
    rig.keep(model)


@case("gradient clipping by norm")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), clip=0.05)


@case("gradient clipping by value, and gradients scaled by hand")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 0.5
        optimizer.step()
    rig.keep(model)


def branch(rig: Rig, used: Any, **options: Any) -> None:
    """A layer beside the others, which ``used(rank, step)`` takes."""
    model = net()
    model.add_module("beside", nn.Linear(3, 3))
    with torch.no_grad():
        model.beside.weight.fill_(0.3), model.beside.bias.fill_(0.2)

    class Forward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = model

        def forward(self, inputs: torch.Tensor, beside: bool) -> torch.Tensor:
            outputs = self.all[:5](inputs)
            return self.all.beside(outputs) if beside else outputs

    whole = Forward()
    forward = rig.distribute(whole, optimizer := adamw(whole), **options)
    for step in range(5):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step), used(rank, step))))
        optimizer.step()
    rig.keep(whole)


@case("a parameter unused on all ranks, with AdamW", ddp=UNUSED)
def _(rig: Rig) -> None:
    branch(rig, lambda rank, step: False)


@case("a parameter unused on all ranks in some steps, with AdamW", ddp=UNUSED)
def _(rig: Rig) -> None:
    branch(rig, lambda rank, step: step % 2 == 0)


@case("a parameter used on one rank only", ddp=UNUSED)
def _(rig: Rig) -> None:
    branch(rig, lambda rank, step: rank == 1)


@case("a parameter used by other ranks in every step", ddp=UNUSED)
def _(rig: Rig) -> None:
    branch(rig, lambda rank, step: rank == step % 2)


@case("a parameter used on one rank only, with clipping and never zeroed", ddp=UNUSED)
def _(rig: Rig) -> None:
    branch(rig, lambda rank, step: rank == 1 and step > 1)


@case("a rank without a backward pass in some step")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: None if (rank, step) == (1, 2) else loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


def uneven(rig: Rig, *, join: bool, kind: Any = sgd) -> None:
    """Rank r has 3 + r batches."""
    model = net()
    forward = rig.distribute(model, optimizer := kind(model))

    def loop() -> None:
        for step in range(3 + (rig.num_ranks - 1 if rig.arm == "truth" else rig.rank)):
            optimizer.zero_grad()
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))) if step < 3 + rank else None)
            optimizer.step()

    if join:
        with rig.join():
            loop()
    else:
        loop()
    rig.keep(model)


@case("uneven batches, with join()")
def _(rig: Rig) -> None:
    uneven(rig, join=True)


@case("uneven batches, with join() and AdamW")
def _(rig: Rig) -> None:
    uneven(rig, join=True, kind=adamw)


@case("uneven batches, without join()", truth=False, lost="first")
def _(rig: Rig) -> None:
    uneven(rig, join=False)


@case("hooks of the user on parameters and modules")
def _(rig: Rig) -> None:
    model = net()
    model[0].weight.register_hook(lambda gradient: gradient * 2)
    model[0].register_forward_hook(lambda module, inputs, outputs: outputs * 1.5)
    forward = rig.distribute(model, optimizer := sgd(model))
    model[2].weight.register_hook(lambda gradient: gradient * 0.5)
    model[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 0.5,))
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("backward(inputs=...) of some parameters", ddp=UNUSED)
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))), inputs=list(model[2:].parameters()))
        optimizer.step()
    rig.keep(model)


@case("a forward pass without backward between steps (evaluation)")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            forward(batch(rig.rank, 70))
        model.train()
        forward(batch(rig.rank, 71))  # with a graph that nobody uses
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("the user averages gradients as well", names="[Aa]verag")
def _(rig: Rig) -> None:
    import torch.distributed as dist

    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        for parameter in model.parameters() if rig.arm in (DDP, "bwbench") else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= rig.num_ranks
        optimizer.step()
    rig.keep(model)
