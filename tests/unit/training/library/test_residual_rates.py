"""``error_feedback: update`` in a script whose schedule moves the learning rate, beside the algorithm written down."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.training.library.method import choose
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

RANKS, STEPS = 2, 8
TOP_K = {"top-k": {"ratio": 0.02, "exact": True, "error_feedback": "update"}}


def optimizer_of(model: nn.Module, *, groups: bool, momentum: float = 0.0) -> torch.optim.SGD:
    """Plain SGD; with two groups the first layer has a rate of its own."""
    first, *others = model.children()
    rest = [p for layer in others for p in layer.parameters()]
    split = [{"params": list(first.parameters()), "lr": 0.2}, {"params": rest}]
    return torch.optim.SGD(split if groups else model.parameters(), lr=0.1, momentum=momentum)


def schedule_of(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """From zero up, then down to a hundredth; the second group on its own way."""

    def rate(group: int, step: int) -> float:
        return (0.0, 1.0, 1.0, 0.3, 0.01, 0.01, 0.0, 0.5)[(step + group * (step > 3)) % STEPS]

    each = [lambda step, group=number: rate(group, step) for number in range(len(optimizer.param_groups))]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, each)


def published(*, groups: bool) -> torch.Tensor:
    """Karimireddy et al. 2019 for two nodes: p = lr g + e, x -= mean C(p), e = p - C(p)."""
    model = small_model()
    optimizer = optimizer_of(model, groups=groups)
    schedule = schedule_of(optimizer)
    bucket = list(reversed(list(model.parameters())))  # as the last layer's gradients are there first
    errors = [torch.zeros(sum(p.numel() for p in bucket)) for _ in range(RANKS)]
    for step in range(STEPS):
        rate_of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        rates = torch.cat([torch.full((p.numel(),), rate_of[id(p)]) for p in bucket])
        mean = torch.zeros_like(errors[0])
        for rank in range(RANKS):
            gradients = torch.autograd.grad(loss_of(model, batch(rank, step)), bucket)
            gradient = torch.cat([g.reshape(-1) for g in gradients])
            p = rates * gradient + errors[rank]
            # Entries are ranked as gradients: with one rate that is the same order.
            ranked = torch.where(rates > 0, p / rates, gradient)
            sent = torch.zeros_like(p)
            largest = ranked.abs().topk(round(0.02 * len(p))).indices
            sent[largest] = p[largest] * (rates[largest] > 0)
            errors[rank], mean = p - sent, mean + sent / RANKS
        with torch.no_grad():
            for parameter, part in zip(bucket, mean.split([p.numel() for p in bucket]), strict=True):
                parameter.sub_(part.view_as(parameter))
        optimizer.step()
        schedule.step()
    return values(model)


def trained(rank: int, *, groups: bool, saved_after: int | None = None) -> torch.Tensor:
    model = small_model()
    optimizer = optimizer_of(model, groups=groups)
    schedule = schedule_of(optimizer)
    handle = distribute(model, optimizer, "every-step", compression=TOP_K)
    for step in range(STEPS):
        if step == saved_after:  # another process goes on
            state = io.BytesIO()
            torch.save((handle.state_dict(), optimizer.state_dict(), schedule.state_dict()), state)
            before = copy.deepcopy(model.state_dict())
            handle.close()
            model = small_model(7)
            optimizer = optimizer_of(model, groups=groups)
            schedule = schedule_of(optimizer)
            handle = distribute(model, optimizer, "every-step", compression=TOP_K)
            model.load_state_dict(before)
            saved: Any = torch.load(io.BytesIO(state.getvalue()), weights_only=True)
            optimizer.load_state_dict(saved[1])
            schedule.load_state_dict(saved[2])
            handle.load_state_dict(saved[0])
        optimizer.zero_grad()
        loss_of(model, batch(rank, step)).backward()
        optimizer.step()
        schedule.step()
    handle.close()
    return values(model)


@pytest.mark.parametrize("groups", [False, True], ids=["one rate", "rates by group"])
def test_a_schedule_gives_what_the_paper_gives(groups: bool) -> None:
    expected = published(groups=groups)
    for found in together(RANKS, lambda rank: trained(rank, groups=groups)):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7), float((found - expected).abs().max())


@pytest.mark.parametrize("groups", [False, True], ids=["one rate", "rates by group"])
def test_training_goes_on_from_a_checkpoint_between_two_rates(groups: bool) -> None:
    whole = together(RANKS, lambda rank: trained(rank, groups=groups))
    resumed = together(RANKS, lambda rank: trained(rank, groups=groups, saved_after=4))
    assert all(torch.equal(one, other) for one, other in zip(whole, resumed, strict=True))


@pytest.mark.parametrize("collective", ["scatter-gather", "parameter-server", "hierarchical"])
def test_residuals_of_parts_and_of_ways_back_follow_the_rate(collective: str) -> None:
    """With a codec that scales with its input all that is kept is what it would be in the paper: updates are equal
    where the rate falls and where the gradient is as much smaller instead.
    """

    def work(rank: int, *, by_rate: bool) -> torch.Tensor:
        model = nn.Linear(12, 40)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        sign = {"sign": {"error_feedback": "update", "block": 8}}
        spelled: Any = (
            {"hierarchical": {"workers_per_host": 2, "across": "scatter-gather"}}
            if collective == "hierarchical"
            else collective
        )
        with distribute(model, optimizer, "every-step", collective=spelled, compression=sign):
            for step in range(4):
                scale = 0.125**step
                optimizer.param_groups[0]["lr"] = scale if by_rate else 1.0
                optimizer.zero_grad()
                linear = (model(batch(rank, step)) * torch.arange(40)).mean()
                (linear if by_rate else scale * linear).backward()
                optimizer.step()
        return values(model)

    by_rate = together(4, lambda rank: work(rank, by_rate=True))
    by_gradient = together(4, lambda rank: work(rank, by_rate=False))
    for one, other in zip(by_rate, by_gradient, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_rate_that_changes_after_the_gradients_were_averaged_is_refused() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = optimizer_of(model, groups=False)
        with distribute(model, optimizer, "every-step", compression=TOP_K):
            loss_of(model, batch(rank, 0)).backward()
            optimizer.param_groups[0]["lr"] = 0.05
            with pytest.raises(RuntimeError, match=r"changed from \[0.1\] to \[0.05\] .* before the backward pass"):
                optimizer.step()

    together(1, work)


@pytest.mark.parametrize(
    ("algorithm", "collective", "kind", "reason"),
    [
        ("every-step", "all-gather", torch.optim.Adam, "optimizer 'adam' is not linear in the gradient"),
        ("every-step", "all-gather", torch.optim.RMSprop, "optimizer 'RMSprop' is not linear"),
        ("diloco", "all-gather", torch.optim.SGD, "'diloco' sends something else than the gradient"),
        ("qadam", "scatter-gather", torch.optim.Adam, "'qadam' sends something else"),
    ],
)
def test_what_has_no_units_of_the_update_is_refused_by_name(algorithm: str, collective: str, kind: Any, reason: str):
    optimizer = kind([torch.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ConfigError, match=f"'top-k' cannot keep its residual .*{reason}.*error_feedback: true"):
        choose(algorithm, collective, TOP_K, optimizer, 4)
    choose(algorithm, collective, {"top-k": {"error_feedback": True}}, optimizer, 4)


@pytest.mark.parametrize("feedback", ["update", {"decay": 0.9}])
def test_torchs_own_residual_has_no_options(feedback: Any) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ConfigError, match="'torch' keeps torch's own residual, which has no options"):
        choose("ddp-powersgd", None, {"powersgd": {"error_feedback": feedback}}, optimizer, 4)
