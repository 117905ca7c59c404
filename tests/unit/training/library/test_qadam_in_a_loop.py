"""QAdam in a user's own loop: gradients are taken as they are when step() is called, beside Adam written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import distribute
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS, WARMUP_STEPS, NUM_STEPS = 3, 4, 10
LR, BETAS, EPS = 1e-2, (0.9, 0.999), 1e-8
PLAIN = {"algorithm": {"qadam": {"warmup_steps": WARMUP_STEPS}}, "compression": "none"}
ONE_BIT = {"algorithm": {"one-bit-adam": {"warmup_steps": WARMUP_STEPS}}}


def loop(
    rank: int,
    method: dict[str, Any],
    scale: float = 1.0,
    change: Callable[[nn.Module], object] = lambda model: None,
    accumulate: int = 1,
    **options: Any,
) -> torch.Tensor:
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, eps=EPS, **options)
    with distribute(model, optimizer, **method) as handle:
        for step in range(NUM_STEPS):
            optimizer.zero_grad()
            for micro_step in range(accumulate - 1):
                with handle.no_sync():
                    (scale * loss_of(model, batch(rank, 100 * micro_step + step))).backward()
            (scale * loss_of(model, batch(rank, step))).backward()
            for parameter in model.parameters():
                parameter.grad.div_(scale)
            change(model)
            sent = handle.payload_bytes
            optimizer.step()
            assert (handle.payload_bytes > sent) == (step >= WARMUP_STEPS)
    return values(model)


def reference(change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Adam on the mean of the gradients; then the mean of all momenta, and v as it was."""
    model = small_model()
    x = values(model)
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    for step in range(NUM_STEPS):
        gradients = []
        for rank in range(NUM_RANKS):
            model.zero_grad()
            torch.nn.utils.vector_to_parameters(x, model.parameters())
            loss_of(model, batch(rank, step)).backward()
            gradients.append(torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]))
        if step < WARMUP_STEPS:
            gradient = change(torch.stack(gradients).mean(0))
            v = BETAS[1] * v + (1 - BETAS[1]) * gradient**2
            m = BETAS[0] * m + (1 - BETAS[0]) * gradient
        else:
            m = torch.stack([BETAS[0] * m + (1 - BETAS[0]) * change(gradient) for gradient in gradients]).mean(0)
        v_hat = v / (1 - BETAS[1] ** min(step + 1, WARMUP_STEPS))
        x = x - LR * m / (1 - BETAS[0] ** (step + 1)) / (v_hat.sqrt() + EPS)
    return x


@pytest.mark.filterwarnings("ignore:algorithm")
@pytest.mark.parametrize("norm", [0.05, 1e6])
def test_clipping_after_the_warm_up_is_that_of_each_ranks_gradient(norm: float) -> None:
    found = together(
        NUM_RANKS, lambda rank: loop(rank, PLAIN, change=lambda m: nn.utils.clip_grad_norm_(m.parameters(), norm))
    )
    expected = reference(lambda gradient: gradient * min(1.0, norm / (float(gradient.norm()) + 1e-6)))
    assert all(torch.equal(found[0], other) for other in found)
    assert torch.allclose(found[0], expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore:algorithm")
@pytest.mark.parametrize("method", [PLAIN, ONE_BIT, {"algorithm": {"qadam": {"warmup_steps": WARMUP_STEPS}}}])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_scaled_loss_that_is_unscaled_before_the_step_changes_nothing(
    method: dict[str, Any], accumulate: int
) -> None:
    plain, scaled = (
        together(NUM_RANKS, lambda rank, scale=scale: loop(rank, method, scale, accumulate=accumulate))
        for scale in (1.0, 2.0**16)
    )
    assert all(torch.equal(scaled[0], other) for other in scaled)
    assert torch.equal(scaled[0], plain[0])  # a power of two


def test_a_scaler_may_leave_unscaling_to_a_fused_step() -> None:
    def work(rank: int, fused: bool) -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        with distribute(model, optimizer, **ONE_BIT):
            for step in range(NUM_STEPS):
                optimizer.zero_grad()
                scaler.scale(loss_of(model, batch(rank, step))).backward()
                scaler.step(optimizer)
                scaler.update()
        return values(model)

    fused, plain = (together(NUM_RANKS, lambda rank, fused=fused: work(rank, fused)) for fused in (True, False))
    assert torch.allclose(fused[0], plain[0], atol=1e-5)


def test_a_parameter_that_nobody_uses_after_the_warm_up_stays() -> None:
    def work(rank: int) -> tuple[bool, bool]:
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.5)
        with distribute(model, optimizer, **ONE_BIT):
            for step in range(NUM_STEPS):
                if step == WARMUP_STEPS + 2:
                    model[2].requires_grad_(False)
                    frozen, others = values(model[2]), values(model[0])
                optimizer.zero_grad()
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
        return torch.equal(values(model[2]), frozen), torch.equal(values(model[0]), others)

    assert together(NUM_RANKS, work) == [(True, False)] * NUM_RANKS
