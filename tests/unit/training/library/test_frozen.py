"""Parameters that are used, frozen or unfrozen in some steps only: what the optimizer sees of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS, NUM_STEPS = 3, 6
METHODS: dict[str, dict[str, Any]] = {
    "ring": {"algorithm": "ring"},
    "top-k": {"algorithm": "every-step", "collective": "all-gather", "compression": {"top-k": {"ratio": 1.0}}},
    "local-sgd": {"algorithm": {"local-sgd": {"period": 1}}},
}


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5)


class TwoHeads(nn.Module):
    """The second head is used in even steps only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = small_model()[:3], nn.Linear(20, 4), nn.Linear(20, 4)
        with torch.no_grad():
            for number, parameter in enumerate([*self.first.parameters(), *self.second.parameters()]):
                parameter.copy_(torch.linspace(-0.1, 0.1 + number, parameter.numel()).view_as(parameter))

    def loss(self, inputs: torch.Tensor, step: int) -> torch.Tensor:
        hidden = self.body(inputs)
        output = self.first(hidden) + (self.second(hidden) if step % 2 == 0 else 0.0)
        return (output - inputs[:, :4].sin()).pow(2).mean()


def plain(
    model: nn.Module, loss: Callable[[int, int], torch.Tensor], before: Callable[[int], None] = lambda _: None
) -> torch.Tensor:
    """One process with the batches of all ranks."""
    optimizer = adamw(model)
    for step in range(NUM_STEPS):
        before(step)
        optimizer.zero_grad()
        for rank in range(NUM_RANKS):
            (loss(rank, step) / NUM_RANKS).backward()
        optimizer.step()
    return values(model)


@pytest.mark.parametrize("name", ["ring", "top-k"])
@pytest.mark.parametrize("clear", ["optimizer", "model", "hand"])
def test_a_parameter_that_nobody_used_is_left_alone(name: str, clear: str) -> None:
    def work(rank: int) -> torch.Tensor:
        model = TwoHeads()
        optimizer = adamw(model)
        with distribute(model, optimizer, **METHODS[name]):
            for step in range(NUM_STEPS):
                if clear == "hand":
                    for parameter in model.parameters():
                        parameter.grad = None
                else:
                    {"optimizer": optimizer, "model": model}[clear].zero_grad()
                model.loss(batch(rank, step), step).backward()
                assert (model.second.weight.grad is None) == (step % 2 == 1)
                optimizer.step()
        return values(model)

    model = TwoHeads()
    expected = plain(model, lambda rank, step: model.loss(batch(rank, step), step))
    for found in together(NUM_RANKS, work):
        assert torch.allclose(found, expected, atol=1e-4)


def test_with_zeros_instead_of_none_it_is_moved_as_in_torch() -> None:
    def train(optimizer: torch.optim.Optimizer, model: TwoHeads) -> torch.Tensor:
        for step in range(NUM_STEPS):
            optimizer.zero_grad(set_to_none=False)
            model.loss(batch(0, step), step).backward()
            optimizer.step()
        return values(model)

    def work(rank: int) -> torch.Tensor:
        model = TwoHeads()
        optimizer = adamw(model)
        with distribute(model, optimizer, "ring"):
            return train(optimizer, model)

    model = TwoHeads()
    assert torch.allclose(together(1, work)[0], train(adamw(model), model), atol=1e-6)


def test_a_local_step_leaves_alone_what_this_rank_did_not_use() -> None:
    def work(rank: int) -> list[bool]:
        model = TwoHeads()
        optimizer = adamw(model)
        with distribute(model, optimizer, {"local-sgd": {"period": 100}}):
            for step in range(2):
                optimizer.zero_grad()
                model.loss(batch(rank, step), rank + 2 * step).backward()
                optimizer.step()
            moved = [not torch.equal(*pair) for pair in zip(model.parameters(), TwoHeads().parameters(), strict=True)]
        return moved[-2:]

    assert together(3, work) == [[True, True], [False, False], [True, True]]


@pytest.mark.parametrize("name", METHODS)
def test_what_is_frozen_later_moves_no_more_and_goes_on_when_it_is_unfrozen(name: str) -> None:
    def freeze(model: nn.Module, step: int) -> None:
        model[2].requires_grad_(not 2 <= step < 4)

    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = adamw(model)
        with distribute(model, optimizer, **METHODS[name]):
            for step in range(NUM_STEPS):
                freeze(model, step)
                optimizer.zero_grad()
                loss_of(model, batch(0 if name == "local-sgd" else rank, step)).backward()
                optimizer.step()
        return values(model)

    model = small_model()
    same = name == "local-sgd"
    expected = plain(
        model, lambda rank, step: loss_of(model, batch(0 if same else rank, step)), lambda step: freeze(model, step)
    )
    for found in together(NUM_RANKS, work):
        assert torch.allclose(found, expected, atol=1e-4)


def test_gradients_of_zero_that_were_left_do_not_move_what_is_frozen() -> None:
    def work(rank: int) -> bool:
        model = small_model()
        optimizer = adamw(model)
        with distribute(model, optimizer, "ring"):
            for step in range(3):
                if step == 1:
                    model[2].requires_grad_(False)
                    before = values(model[2])
                optimizer.zero_grad(set_to_none=False)
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
        return torch.equal(values(model[2]), before)

    assert together(2, work) == [True, True]


@pytest.mark.parametrize("algorithm", ["ring", "qadam"])
def test_unlike_frozen_parameters_end_training_on_all_ranks(algorithm: str) -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = adamw(model)
        handle = distribute(model, optimizer, algorithm)
        loss_of(model, batch(rank, 0)).backward()
        optimizer.step()
        if rank:
            model[2].weight.requires_grad_(False)
        with pytest.raises(RuntimeError, match=r"'2\.weight' is frozen on rank 1, 2 and not on the others"):
            loss_of(model, batch(rank, 1)).backward()
        handle.close(together=False)

    together(NUM_RANKS, work)


@pytest.mark.parametrize("algorithm", ["ring", "local-sgd"])
def test_what_is_unfrozen_later_is_named(algorithm: str) -> None:
    def work(rank: int) -> None:
        model = small_model()
        model[2].weight.requires_grad_(False)
        optimizer = adamw(model)
        handle = distribute(model, optimizer, algorithm)
        loss_of(model, batch(rank, 0)).backward()
        optimizer.step()
        model[2].weight.requires_grad_(True)
        with pytest.raises(RuntimeError, match=r"'2\.weight' requires a gradient now .* distribute\(\.\.\.\) again"):
            loss_of(model, batch(rank, 1)).backward()
        handle.close()
        with distribute(model, optimizer, algorithm):
            optimizer.zero_grad()
            loss_of(model, batch(rank, 1)).backward()
            optimizer.step()

    together(2, work)


def test_a_parameter_that_the_optimizer_gets_later_is_named() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = adamw(model)
        with distribute(model, optimizer, "ring"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3, 5))]})
            with pytest.raises(RuntimeError, match=r"a parameter of shape \(3, 5\) that was not the model's"):
                loss_of(model, batch(rank, 0)).backward()

    together(2, work)


def test_parameters_of_the_handle_may_come_to_the_optimizer_later() -> None:
    def work(rank: int) -> bool:
        model = small_model()
        optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.1)
        with distribute(model, optimizer, "ring"):
            optimizer.add_param_group({"params": list(model[2].parameters())})
            loss_of(model, batch(rank, 0)).backward()
            optimizer.step()
        return torch.equal(values(model[2]), values(small_model()[2]))

    assert together(2, work) == [False, False]
