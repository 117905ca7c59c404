"""Optimizers that a method does not go with: by their class, in a parameter group, and later on."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.training.library.method import choose
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

Optimizer = torch.optim.Optimizer
SECOND_MOMENTUM = "does not go with compression 'dgc': it keeps a momentum of its own"
LATE = "a momentum of 0.9 multiplies that: it trains better without"


class OwnSgd(torch.optim.SGD):
    """Somebody's own."""


class OddSgd(torch.optim.SGD):
    """Steps in its own way."""

    def step(self, closure: Any = None) -> None: ...


def parameters() -> list[torch.Tensor]:
    return [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]


def in_second_group() -> Optimizer:
    first, second = parameters()
    return torch.optim.SGD([{"params": [first]}, {"params": [second], "momentum": 0.9}], lr=0.1)


def in_first_group() -> Optimizer:
    first, second = parameters()
    return torch.optim.SGD([{"params": [first], "momentum": 0.9}, {"params": [second]}], lr=0.1)


MOMENTA = {
    "SGD": lambda: torch.optim.SGD(parameters(), lr=0.1, momentum=0.9),
    "first group": in_first_group,
    "second group": in_second_group,
    "subclass": lambda: OwnSgd(parameters(), lr=0.1, momentum=0.9),
    "subclass with its own step": lambda: OddSgd(parameters(), lr=0.1, momentum=0.9),
    "RMSprop": lambda: torch.optim.RMSprop(parameters(), momentum=0.9),
}
BETAS = {
    "Adam": lambda: torch.optim.Adam(parameters()),
    "NAdam": lambda: torch.optim.NAdam(parameters()),
    "RAdam": lambda: torch.optim.RAdam(parameters()),
    "Adamax": lambda: torch.optim.Adamax(parameters()),
}
NONE = {
    "SGD": lambda: torch.optim.SGD(parameters(), lr=0.1),
    "RMSprop": lambda: torch.optim.RMSprop(parameters()),
    "Adagrad": lambda: torch.optim.Adagrad(parameters()),
}


@pytest.mark.parametrize("name", [*MOMENTA, *BETAS])
def test_dgc_refuses_every_second_momentum(name: str) -> None:
    with pytest.raises(ConfigError, match=SECOND_MOMENTUM):
        choose("dgc", None, None, (MOMENTA | BETAS)[name](), 2)


@pytest.mark.parametrize("name", NONE)
def test_dgc_goes_with_optimizers_that_have_none(name: str) -> None:
    assert choose("dgc", None, None, NONE[name](), 2).warnings == ()


@pytest.mark.parametrize("method", ["ef-signsgd", "random-k"])
@pytest.mark.parametrize("name", MOMENTA)
def test_a_momentum_that_multiplies_what_comes_late_is_told(name: str, method: str) -> None:
    (warning,) = choose(method, None, None, MOMENTA[name](), 2).warnings
    assert LATE in warning and "momentum: 0" in warning


@pytest.mark.parametrize("method", ["top-k", "local-sgd", "bytegrad", {"random-k": {"error_feedback": False}}])
def test_other_methods_say_nothing_of_a_momentum(method: Any) -> None:
    if isinstance(method, dict):
        assert choose("every-step", None, method, MOMENTA["SGD"](), 2).warnings == ()
    else:
        assert choose(method, None, None, MOMENTA["SGD"](), 2).warnings == ()


@pytest.mark.parametrize("switch", ["amsgrad", "maximize", "capturable", "differentiable"])
def test_qadam_refuses_variants_in_any_group(switch: str) -> None:
    first, second = parameters()
    for changed in (0, 1):
        groups: list[dict[str, Any]] = [{"params": [first]}, {"params": [second]}]
        groups[changed][switch] = True
        with pytest.raises(ConfigError, match=f"Adam with {switch}=True"):
            choose("qadam", None, None, torch.optim.Adam(groups), 2)


def trained(algorithm: str, optimizer_class: type[Optimizer], change: dict[str, Any], **options: Any) -> torch.Tensor:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_class(model.parameters(), lr=0.1, **options)
        with distribute(model, optimizer, algorithm):
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
                optimizer.param_groups[0].update(change)
        return values(model)

    return together(1, work)[0]


@pytest.mark.parametrize(
    ("algorithm", "kind", "change", "message"),
    [
        ("dgc", torch.optim.SGD, {"momentum": 0.9}, SECOND_MOMENTUM),
        ("qadam", torch.optim.Adam, {"amsgrad": True}, "Adam with amsgrad=True"),
        ("one-bit-adam", torch.optim.AdamW, {"maximize": True}, "Adam with maximize=True"),
    ],
)
def test_what_is_switched_on_later_is_refused(
    algorithm: str, kind: type[Optimizer], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        trained(algorithm, kind, change)


def test_a_momentum_that_comes_later_is_told_once() -> None:
    with pytest.warns(UserWarning, match=LATE) as said:
        trained("ef-signsgd", torch.optim.SGD, {"momentum": 0.9})
    assert len(said) == 1


def test_momenta_that_go_up_and_down_are_nothing_new() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained("ring", torch.optim.SGD, {"momentum": 0.5}, momentum=0.9)
        trained("local-sgd", torch.optim.SGD, {"momentum": 0.5})
