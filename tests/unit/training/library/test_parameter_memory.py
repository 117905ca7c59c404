"""What users do to the memory of parameters and gradients after distribute()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

LOCAL_SGD = {"local-sgd": {"period": 2}}
ALGORITHMS = [
    LOCAL_SGD,
    {"local-sgd": {"period": 2, "overlap": 1}},
    {"local-sgd": {"period": 2, "warmup": 1}},
    {"diloco": {"period": 2}},
    "decentralized",
]


def prune_in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.where(parameter.abs() > 0.2, parameter, 0))


def prune_elsewhere(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = torch.where(parameter.data.abs() > 0.2, parameter.data, 0)


def there_and_back(model: nn.Module) -> None:
    model.double()
    model.float()


def untouched(model: nn.Module) -> None:
    pass


def train(rank: int, algorithm: Any, moment: str, change: Callable[[nn.Module], None]) -> torch.Tensor:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with distribute(model, optimizer, algorithm) as handle:
        for step in range(6):
            if step == 2 and moment == "before":
                change(model)
            optimizer.zero_grad()
            loss_of(model, batch(rank, step)).backward()
            if step == 2 and moment == "between":
                change(model)
            optimizer.step()
        handle.drain()
        return values(model)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize("moment", ["before", "between"])
@pytest.mark.parametrize(
    ("change", "the_same"), [(prune_elsewhere, prune_in_place), (there_and_back, untouched)], ids=["p.data", ".to"]
)
def test_values_that_lie_elsewhere_are_averaged_as_if_they_did_not(
    algorithm: Any, moment: str, change: Callable[[nn.Module], None], the_same: Callable[[nn.Module], None]
) -> None:
    found = together(2, lambda rank: train(rank, algorithm, moment, change))
    expected = together(2, lambda rank: train(rank, algorithm, moment, the_same))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("algorithm", ["ring", "local-sgd"])
def test_another_type_is_refused_by_name(algorithm: str) -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = distribute(model, optimizer, algorithm)
        model[2].double()
        try:
            with pytest.raises(RuntimeError, match="'2.weight' is float64 now and was float32"):
                optimizer.step()
        finally:
            handle.close(together=False)

    together(2, work)


@pytest.mark.parametrize("fused", [False, True])  # which walks through the memory of both side by side
def test_gradients_whose_memory_is_replaced_are_averaged(fused: bool) -> None:  # noqa: FBT001
    def work(rank: int) -> torch.Tensor:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused)
        ranks = range(2) if rank < 0 else [rank]
        handle = distribute(model, optimizer, "ring") if rank >= 0 else None
        for step in range(3):
            optimizer.zero_grad(set_to_none=handle is None)
            model.to(memory_format=torch.channels_last)  # replaces the memory of gradients, too
            for each in ranks:
                inputs = batch(each, step).resize_(2, 3, 4, 4)
                (model(inputs).sin().sum() / len(ranks)).backward()
            optimizer.step()
        if handle is not None:
            handle.close()
        return values(model)

    found = together(2, work)
    expected = work(-1)
    assert all(torch.allclose(each, expected, atol=1e-5) for each in found)


def test_gradients_that_are_set_by_hand_are_averaged() -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring"):
            for step in range(3):
                optimizer.zero_grad()
                gradients = torch.autograd.grad(loss_of(model, batch(rank, step)), list(model.parameters()))
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.grad = gradient
                optimizer.step()
        return values(model)

    def plain() -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            for rank in range(2):
                (loss_of(model, batch(rank, step)) / 2).backward()
            optimizer.step()
        return values(model)

    expected = plain()
    assert all(torch.allclose(each, expected, atol=1e-6) for each in together(2, work))


def test_a_gradient_set_by_hand_stays_beside_those_of_a_backward_pass() -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring"):
            loss_of(model, batch(rank, 0)).backward()
            optimizer.step()
            optimizer.zero_grad()
            model[0].weight.requires_grad_(False)
            model[0].weight.requires_grad_(True)
            model[0].weight.grad = torch.full_like(model[0].weight, float(rank))
            model[4](torch.ones(20)).sum().backward()
            return model[0].weight.grad.clone()

    assert all(torch.equal(each, torch.full_like(each, 0.5)) for each in together(2, work))


def test_a_trainable_parameter_outside_of_the_optimizer_is_warned_of_where_parameters_are_averaged() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model[2:].parameters(), lr=0.1)
        distribute(model, optimizer, "ring").close()
        with pytest.warns(UserWarning, match=r"'0.weight' \(2 in all\) is trainable and not in the optimizer"):
            handle = distribute(model, optimizer, LOCAL_SGD)
        handle.close()

    together(1, work)


def test_a_step_inside_of_the_backward_pass_is_refused() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = distribute(model, optimizer, "ring")
        model[0].weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        with pytest.raises(RuntimeError, match="inside of the backward pass"):
            loss_of(model, batch(rank, 0)).backward()
        handle.close(together=False)

    together(2, work)


def test_another_order_in_memory_is_refused_inside_of_torchs_ddp() -> None:
    def work(rank: int) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        handle = distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), "ddp")
        model.to(memory_format=torch.channels_last)
        with pytest.raises(RuntimeError, match="lie in memory in another order"):
            model(torch.ones(2, 3, 4, 4)).sum().backward()
        handle.close(together=False)

    together(2, work)


def test_a_pass_around_torchs_ddp_is_refused() -> None:
    def work(rank: int) -> None:
        model = small_model()
        handle = distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), "ddp")
        with pytest.raises(RuntimeError, match="belongs to no call of the model"):
            model[4](model[:4](torch.ones(3, 12))).sum().backward()
        handle.close(together=False)

    together(2, work)


@pytest.mark.parametrize("algorithm", ["ring", "ddp"])
def test_a_step_without_a_pass_moves_nothing(algorithm: str) -> None:
    def work(rank: int) -> bool:
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
        with distribute(model, optimizer, algorithm):
            loss_of(model, batch(rank, 0)).backward()
            optimizer.step()
            optimizer.zero_grad()
            before = values(model)
            optimizer.step()
            return torch.equal(values(model), before)

    assert together(2, work) == [True, True]


@pytest.mark.parametrize("algorithm", ["local-sgd", "ef-signsgd"])
def test_an_optimizer_that_takes_the_steps_of_the_one_given_is_refused(algorithm: str) -> None:
    def work(rank: int) -> None:
        model = small_model()
        given = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = distribute(model, given, algorithm)
        loss_of(model, batch(rank, 0)).backward()
        given.step()
        given.zero_grad()
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of(model, batch(rank, 0)).backward()
        other.step()
        other.zero_grad()
        with pytest.raises(RuntimeError, match="'0.weight' was changed after the backward pass"):
            loss_of(model, batch(rank, 1)).backward()
        handle.close(together=False)

    together(2, work)
