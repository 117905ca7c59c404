"""What counts as finite, and that training on one node is watched as well."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bwbench.methods.algorithms.buckets import is_finite, watch_parameters
from bwbench.methods.algorithms.single import Single


class Control:
    found: str | None = None

    def diverged(self, what: str) -> None:
        self.found = self.found or what


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_value_among_many_is_seen(bad: float) -> None:
    values = torch.randn(100_003)
    assert is_finite(values)
    values[77_777] = bad
    assert not is_finite(values)
    values[5] = -bad
    assert not is_finite(values)


def test_large_values_that_add_up_beyond_the_range_are_finite() -> None:
    assert is_finite(torch.full((1000,), 3e38))
    assert is_finite(torch.tensor([]))


def test_local_gradients_are_named_and_set_to_zero() -> None:
    model, control = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), Control()
    algorithm = Single()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    running = algorithm.attach(
        SimpleNamespace(
            model=model, optimizer=optimizer, control=control, user_loop=None, shrink=1.0, write_gradient=None
        )
    )
    running.begin_step()
    torch.autograd.backward(model(torch.ones(2, 3)).sum())
    running.gradients_ready()
    assert control.found is None
    model[0].weight.grad[1, 1] = float("nan")
    running.gradients_ready()
    assert control.found == "the gradient of 0.weight holds nan"
    assert not model[0].weight.grad.any()


def test_hooks_on_parameters_do_the_same() -> None:
    model, control = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), Control()
    watch_parameters(model, control)
    (model(torch.ones(2, 3)).sum() * float("inf")).backward()
    assert control.found is not None and control.found.startswith("the gradient of 1.")
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
