"""What is sent in part: nothing is lost, and everything sent is plain averaging."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.references import compressors as rc
from tests.references.gradient_methods import GradientAllReduce
from tests.references.sparse_methods import DeepGradientCompression, ErrorFeedback, PowerSGD, RandomK
from tests.unit.references.closed_forms import (
    LENGTH,
    LR,
    SHAPES,
    flat,
    gradient_at,
    gradients_of,
    near,
    run,
    same,
    start,
)

COMPRESSORS = [lambda x: rc.top_k(x, 3), lambda x: rc.sign_block(x, 8), lambda x: rc.threshold(x, 0.5)]


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("units", ["update", "gradient"])
def test_error_feedback_loses_nothing(compressor: Callable, units: str) -> None:
    one = ErrorFeedback(start(3), LR, compressor=compressor, units=units)
    before = flat(one.parameters[0])
    given = [torch.zeros(LENGTH, dtype=torch.float64) for _ in range(3)]
    sent = [torch.zeros(LENGTH, dtype=torch.float64) for _ in range(3)]
    moved = torch.zeros(LENGTH, dtype=torch.float64)
    for t in range(8):
        rate = LR / (t + 1)
        grads = gradients_of(one, t)
        one.step(grads, rate)
        for rank in range(3):
            given[rank] += flat(grads[rank]) * (rate if units == "update" else 1)
            sent[rank] += one.sent[rank]
        moved += sum(one.sent) / 3 * (1 if units == "update" else rate)
    for rank in range(3):
        near(sent[rank] + one.errors[rank], given[rank])
    near(flat(one.parameters[2]), before - moved)


def test_error_feedback_units() -> None:
    def at_schedule(units: str, **options: Any) -> Any:
        one = ErrorFeedback(start(3), LR, compressor=lambda x: rc.top_k(x, 4), units=units, **options)
        for t in range(8):
            one.step(gradients_of(one, t), LR / (t + 1))
        return one

    same(at_schedule("update"), at_schedule("gradient-rescaled"))
    distance = flat(at_schedule("update").parameters[0]) - flat(at_schedule("gradient").parameters[0])
    assert distance.abs().max() > 1e-4
    everything = ErrorFeedback(start(3), LR, compressor=lambda x: rc.top_k(x, LENGTH), momentum=0.9)
    same(run(everything, 5), run(GradientAllReduce(start(3), LR, momentum=0.9), 5))
    per_tensor = ErrorFeedback(start(1), LR, compressor=lambda x: rc.top_k(x, 1), per_tensor=True, order=[2, 0, 1])
    per_tensor.step(gradients_of(per_tensor))
    assert int((per_tensor.sent[0] != 0).sum()) == 3
    with pytest.raises(ValueError, match="weight decay"):
        ErrorFeedback(start(1), LR, compressor=rc.identity, weight_decay=0.1)


def test_dgc_everything_sent() -> None:
    options = {"share_end": 1.0, "momentum": 0.9}
    plain = run(GradientAllReduce(start(3), LR, momentum=0.9), 5)
    same(run(DeepGradientCompression(start(3), LR, masking=False, **options), 5), plain)
    no_momentum = run(GradientAllReduce(start(3), LR), 5)
    same(run(DeepGradientCompression(start(3), LR, **options), 5), no_momentum)


def test_dgc_sparse() -> None:
    one = DeepGradientCompression(start(2), LR, share_start=0.5, share_end=0.05, share_steps=3, clip=1.0)
    velocity = [torch.zeros(LENGTH, dtype=torch.float64) for _ in range(2)]
    for t in range(7):
        grads = gradients_of(one, t)
        old = [v.clone() for v in one.v]
        one.step(grads)
        for rank in range(2):
            g = flat(grads[rank])
            g = g * min(1.0, 1 / math.sqrt(2) / (float(g.norm()) + 1e-6))
            velocity[rank] = 0.9 * velocity[rank] + g
            near(one.sent[rank] + one.v[rank], old[rank] + velocity[rank])
            gone = one.sent[rank] != 0
            velocity[rank][gone] = 0
            share = 0.5 * 0.1 ** (min(t, 3) / 3)
            assert int(gone.sum()) == math.ceil(share * LENGTH)
            assert (old[rank] + one.u[rank])[~gone].abs().max() <= one.sent[rank][gone].abs().min()


def full_q(rank: int | None = None) -> list[Tensor | None]:
    """Random start matrices for SHAPES; the vector goes uncompressed."""
    torch.manual_seed(3)
    return [
        None if len(shape) < 2 else torch.randn(math.prod(shape[1:]), rank or math.prod(shape[1:])).double()
        for shape in SHAPES
    ]


def test_powersgd_full_rank_is_exact() -> None:
    one = PowerSGD(start(3), LR, initial_q=full_q(), momentum=0.9)
    # [4, 3] needs rank 3; [2, 3, 2] is [2, 6], where columns beyond two become rounding noise: take two
    one.q[2] = one.initial_q[2] = one.initial_q[2][:, :2].clone()
    same(run(one, 5), run(GradientAllReduce(start(3), LR, momentum=0.9), 5), 1e-9)
    paper = run(PowerSGD(start(1), LR, initial_q=[None] * 3, rule="powersgd", momentum=0.5), 1)
    near(flat(paper.parameters[0]), flat(start(1)[0]) - 2 * LR * flat(gradient_at(0, start(1)[0])))


def test_powersgd_projection_feedback_and_plain_steps() -> None:
    one = PowerSGD(start(3), LR, initial_q=full_q(1), plain_steps=1)
    q = [value.clone() if value is not None else None for value in one.q]
    for t in range(6):
        grads = gradients_of(one, t)
        kept = [[e.clone() for e in errors] for errors in one.errors]
        one.step(grads)
        for index in range(3):
            wanted = sum(grads[rank][index] + kept[rank][index] for rank in range(3)) / 3
            near(one.decoded[index] + sum(one.errors[rank][index] for rank in range(3)) / 3, wanted)
            if t >= 1 and q[index] is not None:
                m = wanted.reshape(wanted.shape[0], -1)
                basis = torch.linalg.qr(m @ q[index]).Q  # the product is the projection on what M Q spans
                near(one.decoded[index].reshape(m.shape), basis @ basis.T @ m)
                q[index] = one.q[index].clone()


def test_powersgd_warm_start_finds_the_best_rank() -> None:
    torch.manual_seed(4)
    left, right = (torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q for _ in range(2))
    m = left @ torch.diag(torch.tensor([9.0, 6, 1, 0.5, 0.2, 0.1, 0, 0], dtype=torch.float64)) @ right.T
    options: dict = {"initial_q": [torch.randn(8, 2, dtype=torch.float64)], "feedback": False}
    best = left[:, :2] @ torch.diag(torch.tensor([9.0, 6], dtype=torch.float64)) @ right[:, :2].T
    warm = PowerSGD([[torch.zeros(8, 8, dtype=torch.float64)]], 0.0, **options)
    cold = PowerSGD([[torch.zeros(8, 8, dtype=torch.float64)]], 0.0, warm_start=False, **options)
    for _ in range(15):
        warm.step([[m]])
        cold.step([[m]])
    near(warm.decoded[0], best, 1e-9)
    assert (cold.decoded[0] - best).abs().max() > 1e-3


def test_random_k() -> None:
    def pick(t: int) -> Tensor:
        return (torch.arange(7) * 4 + t) % LENGTH

    one = RandomK(start(3), LR, indices=pick)
    given, sent = torch.zeros(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    for t in range(6):
        grads = gradients_of(one, t)
        one.step(grads)
        given, sent = given + flat(grads[1]), sent + one.sent[1]
        assert set(one.sent[1].nonzero().reshape(-1).tolist()) <= set(pick(t).tolist())
    near(sent + one.errors[1], given)
    same(run(RandomK(start(2), LR, indices=lambda t: torch.arange(LENGTH), momentum=0.9), 4),
         run(GradientAllReduce(start(2), LR, momentum=0.9), 4))  # fmt: skip
    # every entry alone once: the unbiased messages average to the gradient
    total = torch.zeros(LENGTH, dtype=torch.float64)
    fair = RandomK(start(1), 0.0, indices=lambda t: torch.tensor([t]), feedback=False, unbiased=True)
    for _ in range(LENGTH):
        fair.step(gradients_of(fair))
        total = total + fair.sent[0] / LENGTH
    near(total, flat(gradient_at(0, start(1)[0])))
