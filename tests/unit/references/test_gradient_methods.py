"""References that average gradients: against torch.optim, and what must be kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.references import compressors as rc
from tests.references.gossip import LowPrecisionDecentralized
from tests.references.gradient_methods import ByteGrad, GradientAllReduce, ParameterServer
from tests.references.momentum_methods import OneBitAdam, QAdam
from tests.references.periodic import SparseLoCo
from tests.references.replicas import scatter_gather
from tests.references.sparse_methods import DeepGradientCompression
from tests.unit.references.closed_forms import LENGTH, LR, flat, gradients_of, near, run, same, start, torch_run

OPTIMIZERS = [
    ("sgd", {}, lambda p: torch.optim.SGD(p, LR)),
    (
        "sgd",
        {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, LR, momentum=0.9, dampening=0.2, weight_decay=0.1),
    ),
    ("sgd", {"momentum": 0.9, "nesterov": True}, lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True)),
    ("adam", {"weight_decay": 0.1}, lambda p: torch.optim.Adam(p, LR, weight_decay=0.1)),
    ("adamw", {"betas": (0.8, 0.95), "eps": 1e-3}, lambda p: torch.optim.AdamW(p, LR, betas=(0.8, 0.95), eps=1e-3)),
]


@pytest.mark.parametrize(("rule", "options", "make"), OPTIMIZERS)
def test_gradient_all_reduce_is_torch_on_the_mean(rule: str, options: dict, make: Callable) -> None:
    for ranks in (1, 3):
        # one torch run sees the gradients of all ranks at one point, as equal replicas do
        replicas = run(GradientAllReduce(start(ranks), LR, rule=rule, **options), 6)
        for tensors in replicas.parameters:
            near(flat(tensors), torch_run(make, ranks, 6))


def test_bytegrad() -> None:
    plain = run(GradientAllReduce(start(3), LR, momentum=0.9), 5)
    for order in ([0, 1, 2], [2, 0, 1]):
        for cut in (rc.cut_rounded_up, rc.cut_balanced):
            options = {"roundtrip": rc.identity, "order": order, "cut": cut, "momentum": 0.9}
            same(run(ByteGrad(start(3), LR, pad_multiple=3, **options), 5), plain)
    one = ByteGrad(start(3), 1.0)
    grads = gradients_of(one)
    before = flat(one.parameters[0])
    one.step(grads)
    vectors = torch.stack([flat(g) for g in grads])
    error = ((before - flat(one.parameters[0])) - vectors.mean(0)).abs().max()
    assert 0 < error <= 2.1 * (vectors.max() - vectors.min()) / 255
    assert all(torch.equal(flat(one.parameters[0]), flat(tensors)) for tensors in one.parameters)


def test_bytegrad_chunks_are_compressed_alone() -> None:
    one = ByteGrad(start(2), 1.0)
    grads = gradients_of(one)
    before = flat(one.parameters[0])
    for rank in range(2):
        grads[rank][0][0, 0] = 1e6  # in the first chunk, entries 0 .. 14
    one.step(grads)
    error = (before - flat(one.parameters[0]) - torch.stack([flat(g) for g in grads]).mean(0)).abs()
    assert error[:15].max() > 0.1 and error[15:].max() < 0.05


def test_parameter_server() -> None:
    plain = run(GradientAllReduce(start(3), LR, rule="adam"), 5)
    same(run(ParameterServer(start(3), LR, rule="adam", shards=2), 5), plain)
    same(run(ParameterServer(start(3), LR, units="update"), 5), run(GradientAllReduce(start(3), LR), 5))
    for shards in (1, 3):
        top, sign = (lambda x: rc.top_k(x, 2)), rc.sign_block
        one = ParameterServer(start(3), 1.0, up=top, down=sign, shards=shards)
        given, begin = torch.zeros(LENGTH, dtype=torch.float64), flat(one.parameters[0])
        for t in range(6):
            grads = gradients_of(one, t)
            one.step(grads)
            given = given + sum(flat(g) for g in grads) / 3
        moved = begin - flat(one.parameters[0])
        near(moved + sum(one.up_error) / 3 + one.down_error, given)


def test_scatter_gather_by_hand() -> None:
    """Two ranks, two chunks of two, up = top-1 of the chunk, down = double it: every number by hand."""
    vectors = [torch.tensor([1.0, 2, 3, 4]), torch.tensor([8.0, 6, 5, 0])]
    up, down = [torch.zeros(4), torch.zeros(4)], torch.zeros(4)
    cuts = rc.cut_rounded_up(4, 2)
    result = scatter_gather(vectors, cuts, lambda x: rc.top_k(x, 1), lambda x: 2 * x, up, down)
    assert result.tolist() == [8, 2, 5, 4]
    assert up[0].tolist() == [1, 0, 3, 0] and up[1].tolist() == [0, 6, 0, 0]
    assert down.tolist() == [-4, -1, -2.5, -2]


def test_works_in_float32() -> None:
    """The dtype given is the dtype computed in."""
    every = [[tensor.float() for tensor in tensors] for tensors in start(2)]
    for one in (
        ByteGrad(every, LR),
        QAdam(every, LR, warmup_steps=1),
        OneBitAdam(every, LR, warmup_steps=1),
        LowPrecisionDecentralized(every, LR),
        DeepGradientCompression(every, LR, share_end=0.2),
        SparseLoCo(every, LR, period=1, k=3, chunk=8, rule="adamw"),
    ):
        run(one, 3)
        assert all(tensor.dtype == torch.float32 for tensors in one.parameters for tensor in tensors)
        assert not torch.equal(flat(one.parameters[0]), flat(every[0]))
