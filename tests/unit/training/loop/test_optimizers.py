"""The learning rate by samples, and that torch's optimizers get what the options say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.base.registry import OPTIMIZERS
from bwbench.training.loop.optimizers import Adam, AdamW, Sgd


def sgd(**options) -> Sgd:
    return Sgd(Sgd.Config(**options))


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_every_optimizer_learns_a_line(name):
    torch.manual_seed(0)
    optimizer_class = OPTIMIZERS.load(name)
    optimizer = optimizer_class(optimizer_class.Config(lr=0.05))
    weight = torch.nn.Parameter(torch.zeros(3))
    torch_optimizer = optimizer.build([weight])
    goal = torch.tensor([0.3, -0.2, 0.1])
    for step in range(200):
        for group in torch_optimizer.param_groups:
            group["lr"] = optimizer.lr_at(step * 8, 8)
        torch_optimizer.zero_grad()
        torch.autograd.backward(((weight - goal) ** 2).sum())
        torch_optimizer.step()
    assert torch.allclose(weight, goal, atol=0.02)


def test_lr_is_as_written_without_a_base_batch():
    assert sgd(lr=0.1).lr_at(0, 4096) == 0.1
    assert sgd(lr=0.1, lr_scaling="sqrt").lr_at(10**6, 4096) == 0.1


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)])
def test_lr_grows_with_the_global_batch(scaling, factor):
    optimizer = sgd(lr=0.1, base_batch=32, lr_scaling=scaling)
    assert optimizer.lr_at(0, 32) == pytest.approx(0.1)
    assert optimizer.lr_at(0, 128) == pytest.approx(0.1 * factor)


def test_warm_up_rises_linearly_by_samples_and_ends_exactly():
    optimizer = sgd(lr=0.4, warmup="1000 samples")
    rates = [optimizer.lr_at(samples, 100) for samples in range(0, 1500, 100)]
    assert rates[:10] == pytest.approx([0.04 * step for step in range(1, 11)])
    assert rates[10:] == [0.4] * 5


@given(
    samples=st.integers(0, 10**9),
    global_batch=st.integers(1, 10**5),
    warmup=st.none() | st.integers(1, 10**6),
    scaling=st.sampled_from(["linear", "sqrt", "none"]),
)
def test_lr_is_positive_never_falls_and_never_exceeds_its_full_value(samples, global_batch, warmup, scaling):
    text = None if warmup is None else f"{warmup} samples"
    optimizer = sgd(lr=0.1, base_batch=64, lr_scaling=scaling, warmup=text)
    full = sgd(lr=0.1, base_batch=64, lr_scaling=scaling).lr_at(0, global_batch)
    now, later = optimizer.lr_at(samples, global_batch), optimizer.lr_at(samples + 1000, global_batch)
    assert 0 < now <= later <= full


def test_torch_gets_the_options():
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    group = sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4).build(parameters).param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.1, 0.9, True, 1e-4)
    for optimizer_class, decay in ((Adam, 0.0), (AdamW, 0.01)):
        optimizer = optimizer_class(optimizer_class.Config(betas=(0.8, 0.9), eps=1e-6))
        group = optimizer.build(parameters).param_groups[0]
        assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-3, (0.8, 0.9), 1e-6, decay)


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0},
        {"lr": -0.1},
        {"momentum": 1},
        {"nesterov": True},
        {"base_batch": 0},
        {"lr_scaling": "cubic"},
        {"warmup": 100},
        {"warmup": "0 samples"},
        {"betas": (0.9, 0.99)},
    ],
)
def test_options_without_sense_are_refused(options):
    with pytest.raises(ValidationError):
        Sgd.Config(**options)


def test_options_survive_json():
    options = Sgd.Config(lr=0.1, momentum=0.9, base_batch=128, warmup="500 samples")
    assert Sgd.Config.model_validate_json(options.model_dump_json(by_alias=True)) == options
    assert '"500 samples"' in options.model_dump_json(by_alias=True)
