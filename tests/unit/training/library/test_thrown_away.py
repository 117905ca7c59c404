"""Gradients that are thrown away in the middle of a step: nothing of them is sent, on any rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from tests.unit.training.library.test_frozen import TwoHeads
from tests.unit.training.library.together import batch, together, values

NUM_RANKS = 3
BOTH_HEADS, FIRST_HEAD = 0, 1
METHODS: dict[str, dict[str, Any]] = {
    "ring": {"algorithm": "ring"},
    "ring-fp16": {"algorithm": "ring-fp16"},
    "local-sgd": {"algorithm": {"local-sgd": {"period": 1}}},
    "bf16": {"algorithm": "ring"},
}
TOLERANCES = {"ring": 1e-5, "ring-fp16": 1e-2, "local-sgd": 1e-2, "bf16": 0.15}  # of what is sent, and of parameters


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1.0)  # what leaks is far above what is rounded


def clear(how: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if how == "model":
        model.zero_grad()
    else:
        optimizer.zero_grad(set_to_none=how == "none")


@pytest.mark.parametrize("how", ["none", "zeros", "model"])
@pytest.mark.parametrize("of_rank_0", [FIRST_HEAD, None], ids=["another pass", "no pass"])
@pytest.mark.parametrize("name", METHODS)
def test_a_micro_step_that_is_thrown_away_is_not_sent(name: str, of_rank_0: int | None, how: str) -> None:
    dtype = torch.bfloat16 if name == "bf16" else torch.float32

    def work(rank: int) -> torch.Tensor:
        model = TwoHeads().to(dtype)
        optimizer = sgd(model)
        with distribute(model, optimizer, **METHODS[name]) as handle:
            with handle.no_sync():
                model.loss(batch(rank, 1).to(dtype), BOTH_HEADS).backward()
            clear(how, model, optimizer)
            heads = of_rank_0 if rank == 0 else BOTH_HEADS
            if heads is not None:
                model.loss(batch(rank, 2).to(dtype), heads).backward()
            optimizer.step()
        return values(model).float()

    found = together(NUM_RANKS, work)
    model = TwoHeads().to(dtype)
    optimizer = sgd(model)
    for rank in range(NUM_RANKS):
        heads = of_rank_0 if rank == 0 else BOTH_HEADS
        if heads is not None:
            (model.loss(batch(rank, 2).to(dtype), heads) / NUM_RANKS).backward()
    optimizer.step()
    for rank, mine in enumerate(found):
        assert torch.equal(mine, found[0]), f"rank {rank} has another replica"
        torch.testing.assert_close(mine, values(model).float(), rtol=0.0, atol=TOLERANCES[name])


def test_gradients_are_none_between_steps_and_views_of_a_bucket_within() -> None:
    def work(rank: int) -> list[bool]:
        model = TwoHeads()
        optimizer = sgd(model)
        with distribute(model, optimizer, "ring"):
            model.loss(batch(rank, 0), BOTH_HEADS).backward()
            storages = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
            optimizer.step()
            optimizer.zero_grad()
            none = all(parameter.grad is None for parameter in model.parameters())
            model.loss(batch(rank, 1), BOTH_HEADS).backward()
            again = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
            optimizer.zero_grad(set_to_none=False)
            zero = not any(bool(parameter.grad.any()) for parameter in model.parameters())
        return [len(storages) == 1, none, storages == again, zero]

    assert together(2, work) == [[True] * 4] * 2
