"""QAdam and 1-bit Adam: Adam in the warm-up, closed forms after it."""

from __future__ import annotations

import pytest
import torch

from tests.references import compressors as rc
from tests.references.momentum_methods import OneBitAdam, QAdam
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


def test_qadam_in_warm_up_is_adam() -> None:
    for decoupled, make in (
        (False, lambda p: torch.optim.Adam(p, LR, weight_decay=0.1)),
        (True, lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1)),
    ):
        replicas = run(QAdam(start(3), LR, warmup_steps=9, weight_decay=0.1, decoupled=decoupled), 6)
        near(flat(replicas.parameters[1]), torch_run(make, 3, 6))


@pytest.mark.parametrize(("bias_m", "bias_v"), [("on", "frozen"), ("on", "on"), ("none", "none")])
def test_qadam_frozen_closed_form(bias_m: str, bias_v: str) -> None:
    """A constant gradient: m = (1 - b1^t) g, v = (1 - b2^W) g^2."""
    warm, steps, b1, b2, eps = 3, 7, 0.9, 0.99, 1e-8
    options = {"warmup_steps": warm, "betas": (b1, b2), "eps": eps, "roundtrip": rc.identity}
    one = QAdam(start(2), LR, bias_m=bias_m, bias_v=bias_v, **options)
    grads = [gradient_at(0, one.parameters[0]) for _ in range(2)]
    g = flat(grads[0])
    expected = flat(one.parameters[0])
    for t in range(1, steps + 1):
        one.step(grads)
        c1 = 1 - b1**t if bias_m == "on" else 1
        c2 = {"frozen": 1 - b2 ** min(t, warm), "on": 1 - b2**t, "none": 1}[bias_v]
        m, v = (1 - b1**t) * g, (1 - b2 ** min(t, warm)) * g * g
        expected = expected - LR * (m / c1) / (torch.sqrt(v / c2) + eps)
        near(flat(one.parameters[1]), expected)


def test_qadam_clip_and_ways() -> None:
    one = QAdam(start(2), LR, warmup_steps=1, clip=0.5, roundtrip=rc.identity)
    grads = gradients_of(one)
    one.step(grads)
    clipped = [flat(g) * min(1.0, 0.5 / (float(flat(g).norm()) + 1e-6)) for g in grads]
    near(one.m, 0.1 * sum(clipped) / 2)
    ways = [run(QAdam(start(2), LR, warmup_steps=2, two_way=way, roundtrip=rc.identity), 5) for way in (True, False)]
    same(*ways)
    exact = ways[0]
    rough = run(QAdam(start(2), LR, warmup_steps=2), 5)
    assert 0 < (flat(exact.parameters[0]) - flat(rough.parameters[0])).abs().max() < 0.05


def test_one_bit_adam() -> None:
    exact = run(QAdam(start(3), LR, warmup_steps=2, bias_m="none", bias_v="none", roundtrip=rc.identity), 6)
    same(run(OneBitAdam(start(3), LR, warmup_steps=2, roundtrip=rc.identity), 6), exact)
    for up_whole in (False, True):
        one = OneBitAdam(start(3), LR, warmup_steps=2, block=4, up_whole=up_whole)
        for t in range(8):
            grads = gradients_of(one, t)
            wanted = sum(0.9 * one.m + 0.1 * flat(g) for g in grads) / 3
            kept = sum(one.up_error) / 3 + one.down_error
            one.step(grads)
            now = sum(one.up_error) / 3 + one.down_error
            near(one.m + now, wanted + kept)  # nothing is lost
            assert (now.abs().max() > 0) == (t >= 2)
        # blocks of 4 within chunks of 10, 10, 9: one magnitude each
        chunks = [one.m[begin:end] for begin, end in rc.cut_rounded_up(LENGTH, 3)]
        assert all(len(chunk[begin : begin + 4].abs().unique()) == 1 for chunk in chunks for begin in (0, 4, 8))
