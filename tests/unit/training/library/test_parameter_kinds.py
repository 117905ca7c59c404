"""Parameters of all kinds, on two ranks: they train as one process does on the mean of both gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from bwbench import distribute
from tests.unit.training.library.together import together

NUM_RANKS, NUM_STEPS = 2, 4


class Odd(nn.Module):
    """A factor of no dimension, an empty parameter, one that no loss uses, and one that is used in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 12))
        self.unused = nn.Parameter(torch.ones(5))
        self.inner, self.outer = nn.Linear(12, 12), nn.Linear(12, 12)
        self.outer.weight = self.inner.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scale * self.outer(torch.cat([self.inner(inputs), self.empty]).tanh())


class Complex(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 4, dtype=dtype))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs.to(self.weight.dtype) @ self.weight).abs()


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(12, 6, sparse=True), nn.Linear(6, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(inputs.argsort(dim=1)[:, :3]).sum(1))


class OnlyEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 6, sparse=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table(inputs.argsort(dim=1)[:, :3]).sum(1)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        pictures = inputs.repeat(1, 4).view(len(inputs), 3, 4, 4).contiguous(memory_format=torch.channels_last)
        return self.second(self.first(pictures).tanh()).flatten(1)


def plain(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def mixed() -> nn.Module:
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16).double(), nn.Linear(16, 4).bfloat16())
    model[1].register_forward_pre_hook(lambda _, inputs: inputs[0].double())
    model[2].register_forward_pre_hook(lambda _, inputs: inputs[0].bfloat16())
    model.register_buffer("places", torch.arange(4))
    return model


def with_integers() -> nn.Module:
    model = plain()
    model.codes = nn.Parameter(torch.arange(6), requires_grad=False)
    model.register_buffer("marks", torch.tensor([True, False]))
    return model


def parametrized() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(12, 16)), nn.Tanh(), nn.Linear(16, 4))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "fp64": lambda: plain(torch.float64),
    "fp16": lambda: plain(torch.float16),
    "bf16": lambda: plain(torch.bfloat16),
    "mixed": mixed,
    "complex64": lambda: Complex(torch.complex64),
    "complex128": lambda: Complex(torch.complex128),
    "integers": with_integers,
    "odd": Odd,
    "sparse": Embedding,
    "only-sparse": OnlyEmbedding,
    "channels-last": Pictures,
    "compiled": lambda: torch.compile(plain(), backend="eager"),
    "compiled-in-place": lambda: compiled_in_place(plain()),
    "lstm": lambda: Recurrent(),
    "parametrized": parametrized,
    "copied": lambda: copy.deepcopy(plain()),
}
COPIED = ("fp64", "fp16", "bf16", "mixed", "complex64", "complex128")  # gradients travel as copies


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 6, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.cells(inputs.view(-1, 3, 4))[0].sum(1)


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def made(kind: str, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[kind]()


def loss_on(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * rank + step))
    first = next(model.parameters())
    real = first.dtype if first.is_floating_point() else torch.float32
    outputs = model(inputs.to(real)).float()
    return functional.smooth_l1_loss(outputs, torch.ones_like(outputs))


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    if name == "fused":
        return torch.optim.AdamW(trained, lr=0.02, eps=1e-4, weight_decay=0, fused=True)
    if name == "foreach":
        return torch.optim.Adam(trained, lr=0.02, eps=1e-4, foreach=True)  # eps: 1e-8 is 0 in fp16
    return torch.optim.SGD(trained, lr=0.1, momentum=0.9)


def alone(kind: str, optimizer_name: str) -> list[torch.Tensor]:
    """One process, on the mean of the losses of all ranks. Sparse gradients are made dense, as means are."""
    model = made(kind)
    optimizer = optimizer_of(model, optimizer_name)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        for rank in range(NUM_RANKS):
            (loss_on(model, rank, step) / NUM_RANKS).backward()
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None and parameter.grad.is_sparse:
                dense = parameter.grad.to_dense()
                parameter.grad = None
                parameter.grad = dense
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def train(model: nn.Module, optimizer_name: str, rank: int, algorithm: Any, zero: str) -> list[torch.Tensor]:
    optimizer = optimizer_of(model, optimizer_name)
    with distribute(model, optimizer, algorithm):
        for step in range(NUM_STEPS):
            loss_on(model, rank, step).backward()
            optimizer.step()
            optimizer.zero_grad() if zero == "optimizer" else model.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def check(kind: str, algorithm: str, optimizer: str = "sgd", zero: str = "optimizer") -> None:
    expected = alone(kind, optimizer)
    models = [made(kind, seed=1 + rank) for rank in range(NUM_RANKS)]  # here, because threads share torch's seed
    found = together(NUM_RANKS, lambda rank: train(models[rank], optimizer, rank, algorithm, zero), 20)
    for number, parameter in enumerate(expected):
        assert torch.equal(found[0][number], found[1][number])
        assert found[0][number].dtype == parameter.dtype
        atol = {torch.bfloat16: 0.02, torch.float16: 3e-3}.get(parameter.dtype, 2e-5)
        assert torch.allclose(found[0][number], parameter, atol=atol, rtol=0), (number, parameter.shape)


@pytest.mark.parametrize("zero", ["optimizer", "model"])
@pytest.mark.parametrize("kind", MODELS)
def test_two_ranks_train_as_one(kind: str, zero: str) -> None:
    check(kind, "ring", zero=zero)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in (*COPIED, "odd")])  # torch refuses unused ones
def test_inside_torchs_ddp_as_well(kind: str) -> None:
    check(kind, "ddp")


@pytest.mark.parametrize("optimizer", ["fused", "foreach"])
@pytest.mark.parametrize("kind", ["plain", "channels-last", "odd", "sparse", "bf16", "fp16", "fp64", "mixed"])
def test_fused_optimizers(kind: str, optimizer: str) -> None:
    check(kind, "ring", optimizer)


@pytest.mark.parametrize("algorithm", ["ring", "local-sgd", "decentralized", "qadam"])
def test_channels_last_stays_what_it_is(algorithm: str) -> None:
    models = [made("channels-last", seed=1 + rank) for rank in range(NUM_RANKS)]
    together(NUM_RANKS, lambda rank: train(models[rank], "fused", rank, algorithm, "optimizer"), 20)
    for model in models:
        assert model.first.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_copy_of_a_model_inside_torchs_ddp_is_a_model_of_its_own() -> None:
    models = [made("plain") for _ in range(NUM_RANKS)]

    def work(rank: int) -> None:
        model = models[rank]
        with distribute(model, optimizer_of(model, "sgd"), "ddp"):
            average = copy.deepcopy(model)
            with torch.no_grad():
                next(average.parameters()).zero_()
            inputs = torch.ones(2, 12)
            assert not torch.equal(average(inputs), model(inputs))
        assert "forward" not in vars(model)

    together(NUM_RANKS, work)


def test_a_compiled_model_is_as_before_when_the_handle_is_closed() -> None:
    models = [made("compiled") for _ in range(NUM_RANKS)]

    def work(rank: int) -> None:
        forward = models[rank].forward
        distribute(models[rank], optimizer_of(models[rank], "sgd"), "ddp").close()
        assert models[rank].forward is forward

    together(NUM_RANKS, work)


def test_users_of_64_bits_are_told_that_gradients_are_rounded(caplog: pytest.LogCaptureFixture) -> None:
    models = [made(kind) for kind in ("mixed", "mixed")]
    with caplog.at_level("INFO", "bwbench"):
        together(NUM_RANKS, lambda rank: distribute(models[rank], optimizer_of(models[rank], "sgd"), "ring").close())
    assert "64-bit gradients of 2 parameters, '1.weight' first, are rounded to float32" in caplog.text


def test_a_model_may_be_compiled_after_it_was_distributed() -> None:
    models = [made("plain") for _ in range(NUM_RANKS)]

    def work(rank: int) -> list[torch.Tensor]:
        model = models[rank]
        optimizer = optimizer_of(model, "sgd")
        with distribute(model, optimizer, "ring"):
            compiled = torch.compile(model, backend="eager")
            for step in range(NUM_STEPS):
                loss_on(compiled, rank, step).backward()
                optimizer.step()
                optimizer.zero_grad()
        return [parameter.detach() for parameter in model.parameters()]

    for found in together(NUM_RANKS, work):
        assert all(torch.allclose(*pair, atol=2e-5) for pair in zip(found, alone("plain", "sgd"), strict=True))
