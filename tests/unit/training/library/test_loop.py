"""A user's own loop: what gradients, steps and zero_grad are after distribute()."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from bwbench import Distributed, distribute
from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.training.loop.muon import Muon
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS = 3


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)


def plain_training(num_steps: int, micro_steps: int = 1) -> torch.Tensor:
    """One process that sees the batches of all ranks, gradients added up by hand."""
    model = small_model()
    optimizer = sgd(model)
    for step in range(num_steps):
        optimizer.zero_grad()
        for rank in range(NUM_RANKS):
            for micro_step in range(micro_steps):
                (loss_of(model, batch(rank, step * micro_steps + micro_step)) / NUM_RANKS).backward()
        optimizer.step()
    return values(model)


def train(
    rank: int,
    loop: Callable[[nn.Module, torch.optim.Optimizer, Distributed, int], None],
    algorithm: str = "ring",
    num_steps: int = 4,
) -> torch.Tensor:
    model = small_model()
    optimizer = sgd(model)
    with distribute(model, optimizer, algorithm) as handle:
        for step in range(num_steps):
            loop(model, optimizer, handle, step)
    return values(model)


def zero_first(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, batch(handle.rank, step)).backward()
    optimizer.step()


def zero_last(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    loss_of(model, batch(handle.rank, step)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def zero_by_model(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    model.zero_grad()
    loss_of(model, batch(handle.rank, step)).backward()
    optimizer.step()


def zero_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    loss_of(model, batch(handle.rank, step)).backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None


def closure(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    def evaluated() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch(handle.rank, step))
        loss.backward()
        return loss

    loss = optimizer.step(evaluated)
    assert isinstance(loss, torch.Tensor)


@pytest.mark.parametrize("algorithm", ["ring", "ddp"])
@pytest.mark.parametrize("loop", [zero_first, zero_last, zero_by_model, zero_by_hand, closure])
def test_every_common_loop_trains_as_one_process_would(loop: Callable[..., None], algorithm: str) -> None:
    found = together(NUM_RANKS, lambda rank: train(rank, loop, algorithm))
    assert all(torch.equal(found[0], other) for other in found)
    assert torch.allclose(found[0], plain_training(4), atol=1e-5)


def test_gradients_are_the_means_after_backward_so_that_clipping_is_right() -> None:
    def work(rank: int) -> tuple[torch.Tensor, float]:
        model = small_model()
        optimizer = sgd(model)
        with distribute(model, optimizer, "ring"):
            loss_of(model, batch(rank, 0)).backward()
            gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).clone()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            before = values(model)
            optimizer.step()
            assert 0 < (values(model) - before).norm() < 1.1e-4
        return gradient, float(norm)

    found = together(NUM_RANKS, work)
    model = small_model()
    sum(loss_of(model, batch(rank, 0)) for rank in range(NUM_RANKS)).div(NUM_RANKS).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    for gradient, norm in found:
        assert torch.allclose(gradient, expected, atol=1e-6)
        assert norm == pytest.approx(float(expected.norm()), rel=1e-5)


@pytest.mark.parametrize("algorithm", ["ring", "ddp"])
def test_micro_steps_under_no_sync_are_sent_once(algorithm: str) -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        sent = handle.payload_bytes
        with handle.no_sync():
            loss_of(model, batch(handle.rank, 3 * step)).backward()
            loss_of(model, batch(handle.rank, 3 * step + 1)).backward()
        assert handle.payload_bytes == sent
        loss_of(model, batch(handle.rank, 3 * step + 2)).backward()
        assert handle.payload_bytes > sent
        optimizer.step()
        optimizer.zero_grad()

    found = together(NUM_RANKS, lambda rank: train(rank, loop, algorithm))
    assert all(torch.equal(found[0], other) for other in found)
    assert torch.allclose(found[0], plain_training(4, micro_steps=3), atol=1e-5)


def test_all_passes_under_no_sync_are_averaged_by_step() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        with handle.no_sync():
            loss_of(model, batch(handle.rank, step)).backward()
        optimizer.step()
        optimizer.zero_grad()

    found = together(NUM_RANKS, lambda rank: train(rank, loop))
    assert torch.allclose(found[0], plain_training(4), atol=1e-5)


def test_gradients_that_are_not_cleared_add_up_as_in_torch() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        loss_of(model, batch(handle.rank, step)).backward()
        optimizer.step()

    model = small_model()
    optimizer = sgd(model)
    for step in range(3):
        for rank in range(NUM_RANKS):
            (loss_of(model, batch(rank, step)) / NUM_RANKS).backward()
        optimizer.step()
    found = together(NUM_RANKS, lambda rank: train(rank, loop, num_steps=3))
    assert torch.allclose(found[0], values(model), atol=1e-4)


def test_parameters_that_a_rank_did_not_use_count_as_zero() -> None:
    def work(rank: int) -> list[torch.Tensor]:
        model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        with distribute(model, optimizer, "ring"):
            model[min(rank, 1)](torch.ones(2, 4)).sum().backward()  # rank 0 uses the first, the others the second
            gradients = [p.grad.clone() for p in model.parameters()]
            optimizer.step()
        return gradients

    for gradients in together(3, work):
        assert torch.allclose(gradients[0], torch.full((4, 4), 2 / 3))
        assert torch.allclose(gradients[2], torch.full((4, 4), 4 / 3))


def test_a_rank_without_any_gradient_keeps_in_step() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        if handle.rank != step % NUM_RANKS:  # its data has run out, say
            loss_of(model, batch(handle.rank, step)).backward()
        optimizer.step()
        optimizer.zero_grad()

    found = together(NUM_RANKS, lambda rank: train(rank, loop))
    assert all(torch.equal(found[0], other) for other in found)


def test_a_step_may_be_skipped_on_all_ranks() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        loss_of(model, batch(handle.rank, 99)).backward()
        optimizer.zero_grad()  # thrown away
        zero_last(model, optimizer, handle, step)

    found = together(NUM_RANKS, lambda rank: train(rank, loop))
    assert torch.allclose(found[0], plain_training(4), atol=1e-5)


def test_a_second_backward_pass_is_refused_and_can_be_taken_back() -> None:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        loss_of(model, batch(handle.rank, 99)).backward()
        with pytest.raises(RuntimeError, match="no_sync"):
            loss_of(model, batch(handle.rank, 99)).backward()
        optimizer.zero_grad()
        zero_last(model, optimizer, handle, step)

    found = together(NUM_RANKS, lambda rank: train(rank, loop))
    assert torch.allclose(found[0], plain_training(4), atol=1e-5)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("broken")


def test_after_a_backward_pass_that_failed_nothing_goes_on() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = sgd(model)
        with distribute(model, optimizer, "ring"):
            hidden = Broken.apply(model[:2](batch(rank, 0)))
            with pytest.raises(ValueError, match="broken"):
                model[2:](hidden).sum().backward()
            for forbidden in (optimizer.step, optimizer.zero_grad):
                with pytest.raises(RuntimeError, match="from a checkpoint"):
                    forbidden()

    together(1, work)


@pytest.mark.parametrize("scheduler_first", [True, False])
def test_schedulers_work_without_a_warning(scheduler_first: bool) -> None:
    def work(rank: int) -> float:
        model = small_model()
        optimizer = sgd(model)
        schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2)] if scheduler_first else []
        with distribute(model, optimizer, "ring"):
            schedulers = schedulers or [torch.optim.lr_scheduler.StepLR(optimizer, 2)]
            for step in range(4):
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
                schedulers[0].step()
                optimizer.zero_grad()
        return optimizer.param_groups[0]["lr"]

    assert together(2, work) == pytest.approx([1e-3, 1e-3])


def test_replicas_begin_as_that_of_rank_0() -> None:
    def work(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        model = nn.Sequential(small_model(seed=rank), nn.BatchNorm1d(4))
        model[1].running_mean.fill_(rank)
        distribute(model, sgd(model), "ring").close()
        return values(model), model[1].running_mean.clone()

    for parameters, running_mean in together(NUM_RANKS, work):
        assert torch.equal(parameters[:-8], values(small_model(seed=0)))
        assert running_mean.sum() == 0


def test_closing_leaves_a_model_that_trains_alone() -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = sgd(model)
        handle = distribute(model, optimizer, "ring")
        zero_first(model, optimizer, handle, 0)
        handle.close()
        handle.close()
        zero_first(model, optimizer, handle, 1)
        alone = values(model)
        with distribute(model, optimizer, "ring-fp16") as again:
            zero_first(model, optimizer, again, 2)
        return alone

    found = together(2, work)
    assert not torch.equal(*found)


def test_a_copy_of_the_model_has_nothing_to_do_with_peers() -> None:
    def work(rank: int) -> bool:
        model = small_model()
        optimizer = sgd(model)
        with distribute(model, optimizer, "ring") as handle:
            zero_first(model, optimizer, handle, 0)
            average = copy.deepcopy(model)
            loss_of(average, batch(rank, 0)).backward()
            sent = handle.payload_bytes
            return sent > 0 and torch.equal(values(average), values(model))

    assert together(2, work) == [True, True]


def test_a_model_has_one_handle_at_a_time() -> None:
    def work(rank: int) -> None:
        model = small_model()
        with distribute(model, sgd(model), "ring"), pytest.raises(ConfigError, match="already"):
            distribute(model, sgd(model), "ring")

    together(1, work)


@pytest.mark.parametrize("algorithm", sorted(PRESETS))
def test_every_method_runs_in_one_process(algorithm: str) -> None:
    def work(rank: int) -> None:
        model = small_model()
        known = ALGORITHMS.load(PRESETS[algorithm].algorithm).optimizers
        own = Muon(model.parameters()) if "muon" in known else torch.optim.Adam(model.parameters())
        optimizer = own if known and "sgd" not in known else sgd(model)
        if "dgc" in algorithm or algorithm in ("ef-signsgd", "random-k", "cocktail-sgd", "demo"):  # go with no momentum
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = values(model)
        with distribute(model, optimizer, algorithm) as handle:
            for step in range(3):
                zero_first(model, optimizer, handle, step)
        assert (values(model) - before).norm() > 0

    together(1, work)


def test_what_cannot_be_trained_is_said() -> None:
    model = small_model()
    with pytest.raises(ConfigError, match="2 parameters that are not the model's"):
        distribute(model[0], sgd(model[:1].append(model[2])))
    with pytest.raises(ConfigError, match="no parameter that requires a gradient"):
        distribute(model.requires_grad_(False), sgd(model))
