"""Ranks that would not train the same hear of it, all of them, before anything is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from bwbench.base.errors import ConfigError
from tests.unit.training.library.together import batch, loss_of, small_model, together

Made = tuple[nn.Module, torch.optim.Optimizer, dict[str, Any]]


def sgd(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **({"lr": 0.1} | options))


def messages(num_ranks: int, make: Callable[[int], Made]) -> list[str]:
    """What ``distribute`` says on each rank."""

    def work(rank: int) -> str:
        model, optimizer, options = make(rank)
        began = time.monotonic()
        with pytest.raises(ConfigError) as found:
            distribute(model, optimizer, **({"algorithm": "ring"} | options))
        assert time.monotonic() - began < 10
        distribute_alone_is_possible(model, optimizer)
        return str(found.value)

    return together(num_ranks, work)


def distribute_alone_is_possible(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Nothing of a refused call is left in the model."""
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    assert "step" not in vars(optimizer)


def unequal(rank: int, case: str) -> Made:
    """What rank 1 makes in another way than the others."""
    odd = rank == 1
    model: nn.Module = nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40), nn.Linear(40, 4))
    options: dict[str, Any] = {}
    if odd and case == "shape":
        model[0].weight = nn.Parameter(torch.ones(40 * 12 // 8, 8))
    if odd and case == "size":
        model[2] = nn.Linear(40, 5)
    if odd and case == "type":
        model[2].double()
    if odd and case == "missing":
        model[2] = nn.Linear(40, 4, bias=False)
    if odd and case == "more":
        model.append(nn.Linear(4, 4))
    if odd and case == "frozen":
        model[0].bias.requires_grad_(False)
    if odd and case == "buffer":
        model[1] = nn.BatchNorm1d(40, track_running_stats=False)
    if case == "order":
        names = ["b", "a"] if odd else ["a", "b"]
        model = nn.ModuleDict({name: nn.Linear(3, 3) for name in names})
    if case == "strides":
        model = nn.Conv2d(3, 5, 3)
        model = model.to(memory_format=torch.channels_last) if odd else model
    optimizer: torch.optim.Optimizer = sgd(model)
    if odd and case == "lr":
        optimizer = sgd(model, lr=0.2)
    if odd and case == "tensor lr":
        optimizer = sgd(model, lr=torch.tensor(0.25))
    if odd and case == "optimizer":
        optimizer = torch.optim.Adam(model.parameters())
    if odd and case == "subset":
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    if odd and case == "groups":
        optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[1:].parameters()}], lr=0.1)
    if odd and case == "state":
        optimizer = sgd(model, momentum=0.9)
        model(torch.randn(4, 12)).sum().backward()
        optimizer.step()
    if case == "state" and not odd:
        optimizer = sgd(model, momentum=0.9)
    if odd and case == "algorithm":
        options["algorithm"] = "diloco"
    if odd and case == "option":
        options["algorithm"] = {"ring": {"bucket": "64 kB"}}
    if odd and case == "collective":
        options["collective"] = "scatter-gather"
    if odd and case == "codec":
        options["compression"] = "fp16"
    return model, optimizer, options


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("shape", "rank 1: parameter '0.weight' has shape [60, 8], rank 0 has [40, 12]"),
        ("size", "rank 1: parameter '2.weight' has shape [5, 40], rank 0 has [4, 40]"),
        ("type", "rank 1: parameter '2.weight' has type 'float64', rank 0 has 'float32'"),
        ("missing", "rank 1: parameter '2.bias' is missing, rank 0 has it"),
        ("more", "rank 1: parameter '3.weight' is there, rank 0 has none"),
        ("frozen", "rank 1: parameter '0.bias' has requires_grad False, rank 0 has True"),
        ("buffer", "rank 1: buffer '1.running_mean' is missing, rank 0 has it"),
        ("order", "rank 1: parameter 'b.weight' stands where rank 0 has parameter 'a.weight'"),
        ("strides", "rank 1: parameter 'weight' has strides [27, 1, 9, 3], rank 0 has None"),
        ("lr", "rank 1: optimizer group 0 has lr 0.2, rank 0 has 0.1"),
        ("tensor lr", "rank 1: optimizer group 0 has lr 0.25, rank 0 has 0.1"),
        ("optimizer", "rank 1: the optimizer has name 'Adam', rank 0 has 'SGD'"),
        ("subset", "rank 1: parameter '1.weight' has optimizer group None, rank 0 has 0"),
        ("groups", "rank 1: parameter '1.weight' has optimizer group 1, rank 0 has 0"),
        ("state", "rank 1: the optimizer has state 'from earlier steps', rank 0 has 'none'"),
        ("algorithm", "rank 1: algorithm has name 'diloco', rank 0 has 'every-step'"),
        ("option", "rank 1: algorithm has bucket '64 kB', rank 0 has None"),
        ("collective", "rank 1: collective has name 'scatter-gather', rank 0 has 'ring'"),
        ("codec", "rank 1: compression 0 has name 'fp16', rank 0 has 'none'"),
    ],
)
def test_all_ranks_say_what_is_different_on_one(case: str, text: str) -> None:
    found = messages(3, lambda rank: unequal(rank, case))
    assert found[0] == found[1] == found[2]
    assert text in found[0]
    assert found[0].endswith("; all ranks need the same model, optimizer and method")
    assert "\n" not in found[0]


def test_ranks_that_differ_in_the_same_way_are_named_together_and_few_differences_are_enough() -> None:
    def make(rank: int) -> Made:
        model = nn.Sequential(*[nn.Linear(3, 3, bias=rank == 0) for _ in range(9)])
        return model, sgd(model), {}

    (text, *others) = messages(4, make)
    assert text.startswith("ranks 1, 2 and 3: parameter '0.bias' is missing")
    assert "and 5 more" in text
    assert others == [text] * 3


def wrong_alone(rank: int, case: str) -> Made:
    model = small_model()
    optimizer, options = sgd(model), {}
    if rank == 2:
        if case == "wrapped":
            return nn.Sequential(nn.DataParallel(model)), optimizer, options
        if case == "word":
            options["algorithm"] = "rink"
        if case == "crash":
            options["compression"] = {"top-k": {"ratio": "much"}}
        if case == "strangers":
            optimizer = sgd(small_model())
    return model, optimizer, options


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("wrapped", "rank 2: module '0' is a DataParallel, which averages by itself"),
        ("word", "rank 2: unknown algorithm 'rink'. Did you mean 'ring'?"),
        ("crash", "rank 2: "),
        ("strangers", "rank 2: the optimizer has 6 parameters that are not the model's"),
    ],
)
def test_nobody_waits_for_a_rank_that_cannot_train(case: str, text: str) -> None:
    found = messages(3, lambda rank: wrong_alone(rank, case))
    assert found[0] == found[1] == found[2]
    assert found[0].startswith(text)


def test_what_is_wrong_on_all_ranks_is_said_as_on_one() -> None:
    def make(rank: int) -> Made:
        model = small_model()
        return model, sgd(model), {"algorithm": "rink"}

    assert all(text.startswith("unknown algorithm 'rink'") for text in messages(2, make))


def test_a_second_handle_on_one_rank_alone_is_told_to_the_others() -> None:
    def work(rank: int) -> str:
        model = small_model()
        with distribute(model, sgd(model), "ring"):
            other = model if rank == 1 else small_model()
            with pytest.raises(ConfigError) as found:
                distribute(other, sgd(other), "ring")
        return str(found.value)

    assert all(text.startswith("rank 1: the model or the optimizer has been given") for text in together(2, work))


def test_compiling_on_one_rank_is_no_difference() -> None:
    def work(rank: int) -> None:
        model = small_model()
        compiled = torch.compile(model, backend="eager") if rank == 0 else model
        with distribute(compiled, sgd(model), "ring"):
            loss_of(model, batch(rank, 0)).backward()

    together(2, work)


def test_a_refused_model_can_be_distributed_afterwards() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = sgd(model, lr=0.1 + rank)
        with pytest.raises(ConfigError, match="lr 1.1"):
            distribute(model, optimizer, "ring")
        optimizer.param_groups[0]["lr"] = 0.1
        distribute(model, optimizer, "ring").close()

    together(2, work)
