"""Muon against what its formulas say of singular values, torch's own Muon, and torch's AdamW."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bwbench.training.loop.muon import COEFFICIENTS, SCALES, Muon, orthogonalized, triples
from tests.references.rules import JORDAN, MULOCO, muon, spread_evenly

SHAPES = [(6, 6), (4, 9), (9, 4), (5, 2, 3, 3), (7,), (1, 3)]
STEPS = 20


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(random(*shape, seed=number).to(dtype)) for number, shape in enumerate(SHAPES)]


def gradient_at(tensor: Tensor, step: int) -> Tensor:
    """Another one in every step and place, of full rank."""
    noise = random(*tensor.shape, seed=1000 + step).to(tensor.dtype)
    return torch.sin(tensor) + 0.3 * tensor + noise


def train(optimizer: torch.optim.Optimizer, tensors: list[nn.Parameter], steps: int = STEPS, begin: int = 0) -> None:
    for step in range(begin, begin + steps):
        for tensor in tensors:
            tensor.grad = gradient_at(tensor.detach(), step)
        optimizer.step()


@pytest.mark.parametrize(("name", "table"), [("muloco", MULOCO), ("jordan", JORDAN)])
@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (1, 6), (40, 30)])
def test_a_step_is_a_polynomial_of_the_singular_values(
    name: str, table: list[tuple[float, float, float]], shape: tuple[int, int]
) -> None:
    matrix = random(*shape).double()
    before = matrix.clone()
    found = orthogonalized(matrix, triples(name, 5))
    torch.testing.assert_close(found, spread_evenly(matrix, table), rtol=1e-10, atol=1e-10)
    assert torch.equal(matrix, before)
    in_fp32 = orthogonalized(matrix.float(), triples(name, 5))
    torch.testing.assert_close(in_fp32.double(), found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "low", "high"), [("muloco", 0.85, 1.15), ("jordan", 0.65, 1.25)])
def test_singular_values_end_near_one(name: str, low: float, high: float) -> None:
    matrix = random(60, 40).double()
    values = torch.linalg.svdvals(matrix)
    assert values[0] / values[-1] > 5
    ends = torch.linalg.svdvals(orthogonalized(matrix, triples(name, 5)))
    assert low < float(ends[-1]) and float(ends[0]) < high


def test_more_steps_repeat_the_last_of_the_table() -> None:
    assert triples("jordan", 3) == list(COEFFICIENTS["jordan"]) * 3
    assert triples("muloco", 7)[4:] == [COEFFICIENTS["muloco"][-1]] * 3
    assert triples("muloco", 2) == list(COEFFICIENTS["muloco"][:2])


def test_a_gradient_of_zeros_moves_nothing() -> None:
    assert not orthogonalized(torch.zeros(3, 4), triples("muloco", 5)).any()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": True, "momentum": 0.8, "weight_decay": 0.1},
        {"coefficients": "jordan", "scale": "original", "adamw_ratio": 0.3},
        {"momentum": 0.0, "scale": "match-rms-adamw", "betas": (0.8, 0.99), "eps": 1e-4},
    ],
    ids=str,
)
def test_twenty_steps_are_the_papers(options: dict[str, Any]) -> None:
    """The reference (tests/references/rules.py) knows the iteration by singular values alone."""
    tensors = parameters(torch.float64)
    expected, states = [tensor.detach().clone() for tensor in tensors], [dict[str, Any]() for _ in tensors]
    optimizer = Muon(tensors, lr=0.05, **options)
    for step in range(STEPS):
        gradients = [gradient_at(tensor.detach(), step) for tensor in tensors]
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient.clone()
        optimizer.step()
        for number, gradient in enumerate(gradients):
            expected[number] = muon(expected[number], gradient, states[number], 0.05, **options)
        for tensor, wanted in zip(tensors, expected, strict=True):
            torch.testing.assert_close(tensor.detach(), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has a Muon of its own from 2.9 on")
@pytest.mark.parametrize(("scale", "adjust"), [("original", "original"), ("match-rms-adamw", "match_rms_adamw")])
@pytest.mark.parametrize("nesterov", [True, False])
def test_with_one_triple_it_is_torchs_own(scale: str, adjust: str, nesterov: bool) -> None:  # noqa: FBT001
    """Which computes in bfloat16, of eight bits, and takes a mean where we take a sum, of the same direction."""
    ours, theirs = ([nn.Parameter(random(*shape)) for shape in ((6, 6), (4, 9), (9, 4))] for _ in range(2))
    options = {"lr": 0.02, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.1}
    train(Muon(ours, coefficients="jordan", scale=scale, **options), ours)
    train(torch.optim.Muon(theirs, adjust_lr_fn=adjust, **options), theirs)
    for mine, other, shape in zip(ours, theirs, ((6, 6), (4, 9), (9, 4)), strict=True):
        way = (other.detach() - random(*shape)).norm()
        assert float((mine.detach() - other.detach()).norm() / way) < 0.03


@pytest.mark.parametrize("options", [{}, {"betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.1}], ids=str)
def test_what_is_no_matrix_is_torchs_adamw_to_the_bit(options: dict[str, Any]) -> None:
    mine, other = (nn.Parameter(random(9)) for _ in range(2))
    train(Muon([mine], lr=0.02, **options), [mine])
    train(torch.optim.AdamW([other], lr=0.02, **{"betas": (0.9, 0.95), **options}), [other])
    assert torch.equal(mine, other)


def test_tables_that_are_said_to_be_no_matrices_are_not() -> None:
    table, matrix = nn.Parameter(random(5, 3)), nn.Parameter(random(4, 4))
    optimizer = Muon([table, matrix], matrices=[matrix])
    assert [[id(p) for p in group["params"]] for group in optimizer.param_groups] == [[id(matrix)], [id(table)]]


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("spectral-norm", lambda rows, columns: math.sqrt(rows / columns)),
        ("original", lambda rows, columns: max(1.0, math.sqrt(rows / columns))),
        ("match-rms-adamw", lambda rows, columns: 0.2 * math.sqrt(max(rows, columns))),
    ],
)
@pytest.mark.parametrize("shape", [(3, 12), (12, 3), (4, 2, 3, 3)])
def test_how_far_a_step_goes(name: str, factor: Callable[[int, int], float], shape: tuple[int, ...]) -> None:
    """All singular values of an update are about the rate times a factor of the shape."""
    parameter = nn.Parameter(torch.zeros(shape))
    parameter.grad = random(*shape)
    Muon([parameter], lr=0.1, weight_decay=0.0, scale=name).step()
    matrix = parameter.detach().flatten(1)
    wanted = 0.1 * factor(*matrix.shape)
    assert SCALES[name](*matrix.shape) == pytest.approx(wanted / 0.1)
    values = torch.linalg.svdvals(matrix)
    assert float(values.min()) > 0.8 * wanted and float(values.max()) < 1.2 * wanted


def test_parameters_without_a_gradient_stay() -> None:
    tensors = parameters()
    before = [tensor.detach().clone() for tensor in tensors]
    optimizer = Muon(tensors)
    optimizer.step()
    tensors[0].grad = torch.ones_like(tensors[0])
    assert optimizer.step(lambda: 3.0) == 3.0
    assert not torch.equal(tensors[0], before[0])
    assert all(torch.equal(tensor, old) for tensor, old in zip(tensors[1:], before[1:], strict=True))


def test_it_goes_on_from_its_state_to_the_bit() -> None:
    whole, again = parameters(), parameters()
    train(Muon(whole), whole, 9)
    first = Muon(again)
    train(first, again, 4)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = Muon(again, lr=0.5)
    second.load_state_dict(copy.deepcopy(torch.load(file, weights_only=True)))
    train(second, again, 5, begin=4)
    assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True))


def test_strides_of_a_parameter_change_nothing() -> None:
    plain = nn.Parameter(random(4, 3, 3, 3))
    last = nn.Parameter(random(4, 3, 3, 3).to(memory_format=torch.channels_last))
    for tensor in (plain, last):
        train(Muon([tensor]), [tensor], 3)
    torch.testing.assert_close(plain.detach(), last.detach().contiguous(), rtol=1e-5, atol=1e-6)
