"""Optimizers: which, how many, over what, and what scripts do with them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch import nn

from library_table_parts.rig import LOCAL_SGD, Rig, adamw, batch, case, loss_of, net, sgd, train


def with_optimizer(rig: Rig, kind: Any, **options: Any) -> None:
    model = net()
    train(rig, model, kind(model.parameters(), **options))


@case("fused Adam")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.Adam, lr=0.02, fused=True)


@case("fused SGD with momentum")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.SGD, lr=0.05, momentum=0.9, fused=True)


@case("capturable Adam")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.Adam, lr=0.02, capturable=True)


@case("foreach AdamW with amsgrad")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.AdamW, lr=0.02, foreach=True, amsgrad=True)


@case("lr as a tensor")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.Adam, lr=torch.tensor(0.02), foreach=False)


@case("differentiable optimizer")
def _(rig: Rig) -> None:
    with_optimizer(rig, torch.optim.SGD, lr=0.05, differentiable=True)


@case("Adagrad, RMSprop, NAdam, RAdam, Rprop, ASGD, Adadelta, Adamax, Adafactor")
def _(rig: Rig) -> None:
    found = {}
    for name in ("Adagrad", "RMSprop", "NAdam", "RAdam", "Rprop", "ASGD", "Adadelta", "Adamax", "Adafactor"):
        with_optimizer(rig, getattr(torch.optim, name), lr=0.01)
        found |= {f"{name} {key}": value for key, value in rig.found.items()}
        if rig.handle is not None:
            rig.handle.close()
            rig.handle = None
    rig.found = found


@case("Muon for matrices and AdamW for the rest", names="one optimizer|parameters that are not|already|given to")
def _(rig: Rig) -> None:
    model = net()
    matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.02)
    rest = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=0.02)
    forward = rig.distribute(model, matrices)
    if rig.handle is not None:  # as far as a user gets by reading: the model again, with the other optimizer
        rig.distribute(model, rest)
    for step in range(4):
        matrices.zero_grad(), rest.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        matrices.step(), rest.step()
    rig.keep(model)


@case("two optimizers, of which one was distributed", names="one optimizer|optimizer.{0,40}(not|without|other)|cover")
def _(rig: Rig) -> None:
    model = net()
    one, two = adamw(model[0]), adamw(model[2:])
    forward = rig.distribute(model, one)
    for step in range(4):
        one.zero_grad(), two.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        one.step(), two.step()
    rig.keep(model)


@case("two optimizers, of which the other steps first", names="one optimizer|optimizer.{0,40}(not|without|other)|cover")
def _(rig: Rig) -> None:
    model = net()
    one, two = adamw(model[0]), adamw(model[2:])
    forward = rig.distribute(model, one)
    for step in range(4):
        one.zero_grad(), two.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        two.step(), one.step()
    rig.keep(model)


@case(
    "two optimizers, of which one was distributed, with local-sgd", names="another optimizer", warning=True, **LOCAL_SGD
)
def _(rig: Rig) -> None:
    model = net()
    one, two = sgd(model[0], momentum=0.0), sgd(model[2:], momentum=0.0)
    forward = rig.distribute(model, one)
    for step in range(4):
        one.zero_grad(), two.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        one.step(), two.step()
    rig.keep(model)


@case("optimizer over some parameters only")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, adamw(model[2:]))


@case("optimizer over some parameters only, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model[2:], momentum=0.0))


@case("optimizer over another model", truth=False, names="not the model's")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(copy.deepcopy(model)))


@case("parameter groups with options of their own")
def _(rig: Rig) -> None:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2:].parameters(), "weight_decay": 0.3}]
    train(rig, model, torch.optim.SGD(groups, lr=0.1, momentum=0.9))


@case("add_param_group after distribute")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model[2:])

    def before(step: int) -> None:
        if step == 2:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})

    train(rig, model, optimizer, before=before)


@case("add_param_group of parameters of another model", names="not the model's|add_param_group|given to")
def _(rig: Rig) -> None:
    model, extra = net(), nn.Linear(3, 3)
    with torch.no_grad():
        extra.weight.copy_(torch.eye(3)), extra.bias.zero_()
    optimizer = sgd(model)
    forward = rig.distribute(model, optimizer)
    optimizer.add_param_group({"params": list(extra.parameters())})
    for step in range(3):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(extra(forward(batch(rank, step)))))
        optimizer.step()
    rig.keep(nn.ModuleList([model, extra]))


@case("two models with two handles, in turn")
def _(rig: Rig) -> None:
    maker, judge = net(), net(1)[:3]
    of_maker, of_judge = adamw(maker), adamw(judge)
    made, judged = rig.distribute(maker, of_maker), rig.distribute(judge, of_judge)
    for step in range(4):
        of_judge.zero_grad()
        rig.backward(lambda rank: judged(torch.cat([made(batch(rank, step)).detach()] * 2, 1)).mean())
        of_judge.step()
        of_maker.zero_grad()
        judge.requires_grad_(False)
        rig.backward(lambda rank: -judged(torch.cat([made(batch(rank, step))] * 2, 1)).pow(2).mean())
        judge.requires_grad_(True)
        of_maker.step()
    rig.keep(nn.ModuleList([maker, judge]))


@case("GAN: the generator's loss gives the discriminator gradients too", names="second backward")
def _(rig: Rig) -> None:
    maker, judge = net(), net(1)[:3]
    of_maker, of_judge = adamw(maker), adamw(judge)
    made, judged = rig.distribute(maker, of_maker), rig.distribute(judge, of_judge)
    for step in range(4):
        of_maker.zero_grad()
        rig.backward(lambda rank: -judged(torch.cat([made(batch(rank, step))] * 2, 1)).pow(2).mean())
        of_maker.step()
        of_judge.zero_grad()  # throws the generator's part away
        rig.backward(lambda rank: judged(torch.cat([made(batch(rank, step)).detach()] * 2, 1)).pow(2).mean())
        of_judge.step()
    rig.keep(nn.ModuleList([maker, judge]))


@case("two models, one loss")
def _(rig: Rig) -> None:
    one, two = net(), net(1)
    first, second = adamw(one), sgd(two)
    forward, other = rig.distribute(one, first), rig.distribute(two, second)
    for step in range(4):
        first.zero_grad(), second.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step)) * other(batch(rank, step))))
        first.step(), second.step()
    rig.keep(nn.ModuleList([one, two]))


@case("closure")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    forward = rig.distribute(model, optimizer)
    for step in range(4):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))  # noqa: B023
            return torch.zeros(())

        optimizer.step(closure)
    rig.keep(model)


@case("LBFGS", names="LBFGS|several gradients|closure")
def _(rig: Rig) -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    forward = rig.distribute(model, optimizer)
    for step in range(2):

        def closure() -> float:
            optimizer.zero_grad()
            rig.backward(lambda rank: loss_of(forward(batch(rank, step))))  # noqa: B023
            return float(sum(p.grad.pow(2).sum() for p in model.parameters()))

        optimizer.step(closure)
    rig.keep(model)


@case("schedulers, made before and after distribute")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    before = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    forward = rig.distribute(model, optimizer)
    after = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=8)
    for step in range(6):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        before.step(), after.step()
    rig.keep(model)


@case("step hooks of the optimizer")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    optimizer.register_step_pre_hook(lambda *_: [p.grad.mul_(0.5) for p in model.parameters()] and None)
    counted = itertools.count()
    forward = rig.distribute(model, optimizer)
    optimizer.register_step_post_hook(lambda *_: next(counted) and None)
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)
    rig.keep_tensors({"steps": torch.tensor(float(next(counted)))})


@case("moving average of the weights (swa_utils)")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    forward = rig.distribute(model, optimizer)
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        averaged.update_parameters(model)
    rig.keep(averaged.module)


def swapped(rig: Rig, **options: Any) -> None:
    model = net()
    optimizer: Any = sgd(model, **options)
    forward = rig.distribute(model, optimizer)
    for step in range(4):
        if step == 2:
            optimizer = sgd(model, lr=0.05, **options)
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("another optimizer from some step on", names="second backward|optimizer")
def _(rig: Rig) -> None:
    swapped(rig)


@case("another optimizer from some step on, with local-sgd", names="second backward|optimizer", **LOCAL_SGD)
def _(rig: Rig) -> None:
    swapped(rig, momentum=0.0)


@case("an optimizer of the user's own, which steps by hand", names="second backward|optimizer")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, sgd(model))
    for step in range(4):
        model.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    rig.keep(model)


@case("step inside of the backward pass, one optimizer a parameter", names="one optimizer|inside|several|own")
def _(rig: Rig) -> None:
    model = net()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}
    forward = rig.distribute(model, next(iter(optimizers.values())))
    if rig.arm == "truth":
        rig.backward(lambda rank: loss_of(forward(batch(rank, 0))))
        for optimizer in optimizers.values():
            optimizer.step()
    else:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
        rig.backward(lambda rank: loss_of(forward(batch(rank, 0))))
    rig.keep(model)
