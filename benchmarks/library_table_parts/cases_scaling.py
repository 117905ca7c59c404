"""Lower precision, and gradients that are scaled, unscaled or clipped before the step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from library_table_parts.rig import BWBENCH, Rig, adamw, batch, case, loss_of, net, sgd, train


@case("autocast(bf16)", tolerance=1e-2)
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))

    def loss(rank: int, step: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = forward(batch(rank, step))
        return loss_of(outputs.float())

    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        optimizer.step()
    rig.keep(model)


def scaled(rig: Rig, *, bad: Any = None, clip: bool = False, kind: Any = sgd) -> None:
    """A GradScaler, and in step 2 a loss that is not finite on the ranks ``bad``."""
    model = net()
    optimizer = kind(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    forward = rig.distribute(model, optimizer)

    def loss(rank: int, step: int) -> torch.Tensor:
        value = loss_of(forward(batch(rank, step)))
        return scaler.scale(value * (torch.inf if step == 2 and rank in (bad or ()) else 1.0))

    for step in range(6):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss(rank, step))
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
    rig.keep(model)
    rig.keep_tensors({"scale": torch.tensor(scaler.get_scale())})


@case("GradScaler")
def _(rig: Rig) -> None:
    scaled(rig)


@case("GradScaler with an infinity on one rank")
def _(rig: Rig) -> None:
    scaled(rig, bad=(1,))


@case("GradScaler with an infinity on all ranks")
def _(rig: Rig) -> None:
    scaled(rig, bad=(0, 1, 2, 3))


@case("GradScaler with unscale_, clipping and an infinity on one rank")
def _(rig: Rig) -> None:
    scaled(rig, bad=(0,), clip=True, kind=adamw)


@case(
    "GradScaler with an infinity on one rank, with local-sgd",
    method={"local-sgd": {"period": 2}},
    options={"compression": "none"},
)
def _(rig: Rig) -> None:
    """The rank skips its own step, and all take part in the rounds. DDP, which has no rounds, does something else."""
    models = [net() for _ in rig.ranks]
    optimizers = [sgd(model) for model in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2) for _ in models]
    forwards = [rig.distribute(model, optimizer) for model, optimizer in zip(models, optimizers, strict=True)]
    for step in range(6):
        for rank, forward, optimizer, scaler in zip(rig.ranks, forwards, optimizers, scalers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(forward(batch(rank, step))) * (torch.inf if (rank, step) == (1, 2) else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if rig.arm == "truth" and step % 2 == 1:
            with torch.no_grad():
                for same in zip(*(model.parameters() for model in models), strict=True):
                    mean = torch.stack(list(same)).mean(0)
                    for parameter in same:
                        parameter.copy_(mean)
    rig.keep(models[0])


def qadam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


@case("GradScaler with QAdam in its warm-up, which is Adam", method="qadam", tolerance=1e-4)
def _(rig: Rig) -> None:
    scaled(rig, kind=qadam)


@case("GradScaler with an infinity on one rank, with QAdam", method="qadam", tolerance=1e-4)
def _(rig: Rig) -> None:
    scaled(rig, kind=qadam, bad=(1,))


@case("clipping by norm with QAdam in its warm-up, which is Adam", method="qadam", tolerance=1e-4)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, qadam(model), clip=0.05)


class FrozenAdam(torch.optim.Adam):
    """Adam whose variance stays as it is after two steps, by the words of the paper."""

    moments: dict[nn.Parameter, tuple[torch.Tensor, torch.Tensor]] = {}
    steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for parameter in self.param_groups[0]["params"]:
            zeros = torch.zeros_like(parameter)
            momentum, variance = self.moments.setdefault(parameter, (zeros, zeros.clone()))
            momentum.mul_(0.9).add_(parameter.grad, alpha=0.1)
            if self.steps <= 2:
                variance.mul_(0.999).add_(parameter.grad**2, alpha=0.001)
            deviation = (variance / (1 - 0.999 ** min(self.steps, 2))).sqrt() + 1e-8
            parameter -= 0.01 * momentum / (1 - 0.9**self.steps) / deviation


FROZEN: Any = {"method": {"qadam": {"warmup_steps": 2}}, "options": {"compression": "none"}, "tolerance": 1e-4}


def after_warm_up(rig: Rig, *, scale: float, clip: float | None) -> None:
    """A loss that is scaled and gradients that are unscaled and clipped: on each rank its own, as QAdam has them."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01) if rig.arm == BWBENCH else FrozenAdam(model.parameters())
    forward = rig.distribute(model, optimizer)
    for step in range(6):
        sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for rank in rig.ranks:
            optimizer.zero_grad()
            (loss_of(forward(batch(rank, step))) * scale).backward()
            for parameter in model.parameters():
                parameter.grad.div_(scale)
            if clip is not None and step >= 2:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            for total, parameter in zip(sums, model.parameters(), strict=True):
                total += parameter.grad / len(rig.ranks)
        if rig.arm == "truth":
            for total, parameter in zip(sums, model.parameters(), strict=True):
                parameter.grad = total
        optimizer.step()
    rig.keep(model)


@case("QAdam after its warm-up", **FROZEN)
def _(rig: Rig) -> None:
    after_warm_up(rig, scale=1.0, clip=None)


@case("QAdam after its warm-up, clipping by norm", **FROZEN)
def _(rig: Rig) -> None:
    after_warm_up(rig, scale=1.0, clip=0.05)


@case("QAdam after its warm-up, a loss scaled by 1024", **FROZEN)
def _(rig: Rig) -> None:
    after_warm_up(rig, scale=1024.0, clip=None)
