"""Rounds of local steps: against torch by hand, and closed forms with constant gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.references import compressors as rc
from tests.references.gradient_methods import GradientAllReduce
from tests.references.periodic import DiLoCo, LocalSGD, SparseLoCo, StreamingDiLoCo
from tests.unit.references.closed_forms import (
    LENGTH,
    LR,
    flat,
    gradient_at,
    gradients_of,
    near,
    run,
    same,
    start,
    torch_run,
)


def by_hand_local(ranks: int, steps: int, when: Callable[[int], bool]) -> Tensor:
    """torch.optim.SGD with momentum on each rank by itself, weights averaged after the steps that `when` names."""
    every = start(ranks)
    optimizers = [torch.optim.SGD(tensors, LR, momentum=0.9) for tensors in every]
    for t in range(steps):
        for rank, tensors in enumerate(every):
            for tensor, grad in zip(tensors, gradient_at(rank, tensors, t), strict=True):
                tensor.grad = grad
            optimizers[rank].step()
        if when(t):
            for group in zip(*every, strict=True):
                average = torch.stack(group).mean(0)
                for tensor in group:
                    tensor.copy_(average)
    return torch.stack([flat(tensors) for tensors in every])


def test_local_sgd_is_torch_with_averaging() -> None:
    for first, when in ((None, lambda t: t % 3 == 2), (0, lambda t: t % 3 == 0)):
        one = run(LocalSGD(start(3), LR, period=3, first=first, momentum=0.9), 8)
        near(torch.stack([flat(tensors) for tensors in one.parameters]), by_hand_local(3, 8, when))
    every = run(LocalSGD(start(3), LR, period=1), 5)
    same(every, run(GradientAllReduce(start(3), LR), 5))
    # momenta averaged at every step: the same as averaging gradients
    every = run(LocalSGD(start(3), LR, period=1, momentum=0.9, average_state=True), 5)
    same(every, run(GradientAllReduce(start(3), LR, momentum=0.9), 5))
    post = run(LocalSGD(start(3), LR, period=4, warmup_steps=9, momentum=0.9), 9)
    same(post, run(GradientAllReduce(start(3), LR, momentum=0.9), 9))


def test_post_local_sgd_counts_from_the_end_of_warm_up() -> None:
    one = LocalSGD(start(2), LR, period=3, warmup_steps=2)
    equal = []
    run(one, 9, lambda t: equal.append(torch.equal(flat(one.parameters[0]), flat(one.parameters[1]))))
    assert [t for t, yes in enumerate(equal) if yes] == [0, 1, 4, 7]


def test_delayed_averaging_closed_form() -> None:
    """Constant gradients, H = 3, tau = 2: after steps 2 + 2 and 5 + 2 the difference that rank i had at 2 (at 5)
    is replaced by the mean, while its later local steps stay.
    """
    one = LocalSGD(start(2), LR, period=3, overlap=2)
    grads = gradients_of(one)
    g = [flat(x) for x in grads]
    origin, both = flat(one.parameters[0]), (g[0] + g[1]) / 2
    own_steps = {0: 1, 1: 2, 2: 3, 3: 4, 4: 2, 5: 3, 6: 4, 7: 2}  # local steps not yet averaged
    for t in range(8):
        one.step(grads)
        own = own_steps[t]
        for rank in range(2):
            near(flat(one.parameters[rank]), origin - LR * ((t + 1 - own) * both + own * g[rank]))
    alone = run(LocalSGD(start(1), LR, period=3, overlap=2, momentum=0.9), 9)
    near(flat(alone.parameters[0]), torch_run(lambda p: torch.optim.SGD(p, LR, momentum=0.9), 1, 9))


def test_diloco_is_torch_outer_on_local_runs() -> None:
    one = DiLoCo(start(3), LR, period=4, outer_lr=0.7, outer_momentum=0.9, rule="adamw")
    shared = start(1)[0]
    outer = torch.optim.SGD(shared, 0.7, momentum=0.9, nesterov=True)
    local = start(3)
    inner = [torch.optim.AdamW(tensors, LR) for tensors in local]
    for t in range(13):
        one.step(gradients_of(one, t))
        for rank, tensors in enumerate(local):
            for tensor, grad in zip(tensors, gradient_at(rank, tensors, t), strict=True):
                tensor.grad = grad
            inner[rank].step()
        if t % 4 == 3:
            for index, tensor in enumerate(shared):
                tensor.grad = sum(tensor - tensors[index] for tensors in local) / 3
            outer.step()
            for tensors in local:
                for mine, theirs in zip(tensors, shared, strict=True):
                    mine.copy_(theirs)
        for rank in range(3):
            near(flat(one.parameters[rank]), flat(local[rank]))
    plain = DiLoCo(start(3), LR, period=3, outer_lr=1.0, outer_momentum=0.0)
    same(run(plain, 7), run(LocalSGD(start(3), LR, period=3), 7))


def test_streaming_diloco_reduces_to_diloco() -> None:
    whole = {"fragments": [torch.arange(LENGTH)], "offsets": [0]}
    streaming = StreamingDiLoCo(start(3), LR, period=4, rule="adamw", **whole)
    diloco = DiLoCo(start(3), LR, period=4, rule="adamw")
    for t in range(13):
        streaming.step(gradients_of(streaming, t))
        diloco.step(gradients_of(diloco, t))
        same(streaming, diloco)
    # two fragments at the same time are as one
    halves = {"fragments": [torch.arange(0, LENGTH, 2), torch.arange(1, LENGTH, 2)], "offsets": [0, 0]}
    same(run(StreamingDiLoCo(start(3), LR, period=4, rule="adamw", **halves), 13), diloco)
    alone = run(StreamingDiLoCo(start(1), LR, period=4, mix=1.0, overlap=2, **whole), 9)
    near(flat(alone.parameters[0]), torch_run(lambda p: torch.optim.SGD(p, LR), 1, 9))


def test_streaming_diloco_offsets_overlap_and_mix() -> None:
    """Constant gradients, no outer momentum, outer lr 1: closed form of the first arrival of each fragment."""
    even, odd = torch.arange(0, LENGTH, 2), torch.arange(1, LENGTH, 2)
    options: dict = {"fragments": [even, odd], "offsets": [0, 2], "overlap": 1, "mix": 0.25}
    one = StreamingDiLoCo(start(2), LR, period=4, outer_lr=1.0, outer_momentum=0.0, **options)
    grads = gradients_of(one)
    g = [flat(x) for x in grads]
    origin, both = flat(one.parameters[0]), (g[0] + g[1]) / 2
    for t in range(1, 6):
        one.step(grads)
        for rank in range(2):
            free = origin - LR * t * g[rank]
            now = flat(one.parameters[rank])
            if t < 3:
                near(now, free)
            else:  # odd: sent after step 2, arrived after step 3
                merged = 0.25 * (origin - 3 * LR * g[rank]) + 0.75 * (origin - 2 * LR * both)
                near(now[odd], (merged - (t - 3) * LR * g[rank])[odd])
            if t == 5:  # even: sent after step 4, arrived after step 5
                near(now[even], (0.25 * free + 0.75 * (origin - 4 * LR * both))[even])
            elif t < 5:
                near(now[even], free[even])
    late = StreamingDiLoCo(start(2), LR, period=4, outer_lr=1.0, outer_momentum=0.0, start=5, **options)
    run(late, 6)
    assert torch.equal(late.reference, origin)


def test_sparseloco() -> None:
    dense = SparseLoCo(start(3), LR, period=3, k=8, chunk=8, rule="adamw")
    same(run(dense, 7), run(LocalSGD(start(3), LR, period=3, rule="adamw"), 7))
    one = SparseLoCo(start(2), LR, period=2, k=2, chunk=10, beta=0.95, roundtrip=rc.sign_block)
    for t in range(8):
        errors, reference = [e.clone() for e in one.errors], one.reference.clone()
        grads = gradients_of(one, t)
        ends = [flat(x) - LR * flat(g) for x, g in zip(one.parameters, grads, strict=True)]
        one.step(grads)
        if t % 2 == 1:
            for rank in range(2):
                near(one.sent[rank] + one.errors[rank], 0.95 * errors[rank] + reference - ends[rank])
                counts = [int((one.sent[rank][b : b + 10] != 0).sum()) for b in (0, 10, 20)]
                assert counts == [2, 2, 2]
                assert len(one.sent[rank][:10].abs().unique()) == 2  # zero and one scale
            near(flat(one.parameters[0]), reference - sum(one.sent) / 2)
            assert torch.equal(flat(one.parameters[0]), flat(one.parameters[1]))
    short = SparseLoCo(start(1), LR, period=1, k=7, chunk=25, quantise_chunk=False, per_tensor=True)
    run(short, 1)  # tensors of 12, 5 and 12 entries: the vector of 5 goes whole
    assert [int((part != 0).sum()) for part in short.sent[0].split([12, 5, 12])] == [7, 5, 7]
