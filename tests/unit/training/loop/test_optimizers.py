"""The learning rate by samples, and that torch's optimizers get what the options say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.base.registry import OPTIMIZERS
from bwbench.training.loop.optimizers import AbstractOptimizer, Adam, AdamW, Muon, Sgd


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


def rates_of(optimizer: AbstractOptimizer, budget: int, global_batch: int) -> list[float]:
    return [optimizer.lr_at(samples, global_batch) for samples in range(0, budget, global_batch)]


@pytest.mark.parametrize("kind", [Sgd, AdamW, Muon])
def test_a_linear_decay_loses_the_same_in_every_step_and_leaves_the_last_one_something(kind):
    optimizer = kind(kind.Config(lr=0.1, decay="linear").within(1000))
    assert rates_of(optimizer, 1000, 100) == pytest.approx([0.1 * (1 - step / 10) for step in range(10)])
    assert optimizer.lr_at(1000, 100) == optimizer.lr_at(5000, 100) == 0.0


def test_a_cosine_is_half_a_period_behind_the_warm_up():
    optimizer = sgd(lr=0.2, warmup="200 samples", decay="cosine", decay_to=0.1, decay_over="1000 samples")
    rates = rates_of(optimizer, 1000, 100)
    left = [0.1 + 0.9 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)]
    assert rates == pytest.approx([0.1, 0.2, *(0.2 * share for share in left)])
    assert optimizer.lr_at(1000, 100) == pytest.approx(0.02)


def test_a_decay_ends_where_it_was_told_or_where_training_does():
    assert Sgd.Config(decay="linear").within(500).decay_over == 500
    assert Sgd.Config(decay="linear", decay_over="800 samples").within(500).decay_over == 800
    plain = Sgd.Config(lr=0.3)
    assert plain.within(500) is plain
    with pytest.raises(ValueError, match="has no end"):
        Sgd(Sgd.Config(decay="linear")).lr_at(0, 10)


@given(
    samples=st.integers(0, 10**6),
    global_batch=st.integers(1, 1000),
    budget=st.integers(1000, 10**6),
    decay=st.sampled_from(["cosine", "linear"]),
    least=st.none() | st.floats(0.0, 0.9),
)
def test_a_decay_never_rises_and_ends_at_its_share(samples, global_batch, budget, decay, least):
    optimizer = sgd(lr=0.1, decay=decay, decay_to=least, decay_over=f"{budget} samples")
    now, later = optimizer.lr_at(samples, global_batch), optimizer.lr_at(samples + 777, global_batch)
    assert 0 <= later <= now <= 0.1
    assert now > 0 or samples >= budget
    assert optimizer.lr_at(budget, global_batch) == pytest.approx(0.1 * (least or 0.0))


@pytest.mark.parametrize("options", [{"decay_to": 0.1}, {"decay_over": "100 samples"}])
def test_what_is_of_a_decay_needs_one(options):
    with pytest.raises(ValidationError, match="says nothing without a decay; add 'decay: cosine' or 'decay: linear'"):
        Sgd.Config(**options)


def test_records_say_nothing_of_a_decay_that_is_not_there():
    assert not any("decay_" in key or key == "decay" for key in Sgd.Config().model_dump(mode="json", by_alias=True))
    dumped = AdamW.Config(decay="cosine").within(900).model_dump(mode="json", by_alias=True)
    assert (dumped["decay"], dumped["decay_to"], dumped["decay_over"]) == ("cosine", None, "900 samples")
    assert AdamW.Config.model_validate(dumped) == AdamW.Config(decay="cosine", decay_over="900 samples")


def test_a_group_may_have_a_multiple_of_the_rate():
    muon = Muon(Muon.Config(lr=0.02, adamw_ratio=0.1, decay="linear").within(1000))
    optimizer = muon.build([torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2))])
    assert muon.set_rate(optimizer, 500, 100) == pytest.approx(0.01)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.001])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flat": True}, "leave 'flat' out"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs a momentum"),
        ({"coefficients": "torch"}, "muloco"),
        ({"scale": "none"}, "spectral-norm"),
        ({"steps": 0}, "greater than or equal to 1"),
    ],
)
def test_options_of_muon_without_sense_are_refused(options, words):
    with pytest.raises(ValidationError, match=words):
        Muon.Config(**options)


def shapes_of(optimizer: torch.optim.Optimizer) -> list[list[tuple[int, ...]]]:
    return [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]


def test_muon_leaves_embeddings_and_the_last_layer_to_adamw():
    model = torch.nn.Sequential(
        torch.nn.Embedding(11, 4), torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 3)
    )
    matrices, others = shapes_of(Muon(Muon.Config()).build_for(model))
    assert matrices == [(6, 4)] and others == [(11, 4), (6,), (6,), (6,), (3, 6), (3,)]
    assert shapes_of(Muon(Muon.Config()).build(model.parameters()))[0] == [(11, 4), (6, 4), (3, 6)]
    alone = Muon(Muon.Config()).build_for(torch.nn.Linear(4, 2))  # one layer, which is the last
    assert [group["matrices"] for group in alone.param_groups] == [False]


def test_filters_are_matrices():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    assert shapes_of(Muon(Muon.Config()).build_for(model))[0] == [(8, 1, 3, 3)]
