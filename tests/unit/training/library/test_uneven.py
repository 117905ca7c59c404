"""Ranks with different numbers of batches inside of ``handle.join()``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

from bwbench import Distributed, distribute
from bwbench.base.errors import ConfigError
from tests.unit.training.library.together import batch, loss_of, small_model, values
from tests.unit.training.library.together import together as run_together

T = TypeVar("T")
BATCHES = {2: (5, 2), 4: (3, 6, 0, 5)}
TOP_K: dict[str, object] = {"algorithm": "every-step", "collective": "all-gather"}
TOP_K["compression"] = {"top-k": {"ratio": 0.1}}
RING = {"algorithm": "ring"}
DDP = {"algorithm": "ddp"}
QADAM = {"algorithm": {"qadam": {"warmup_steps": 2}}}
DELAYED = {"algorithm": {"deco-sgd": {"ratio": 0.3, "staleness": 2}}}
LOCAL: dict[str, dict[str, Any]] = {
    "local-sgd": {"algorithm": {"local-sgd": {"period": 2}}},
    "late local-sgd": {"algorithm": {"local-sgd": {"period": 3, "overlap": 2}}},
    "post-local-sgd": {"algorithm": {"local-sgd": {"period": 2, "warmup": 3}}},
    "diloco": {"algorithm": {"diloco": {"period": 2}}},
    "decentralized": {"algorithm": "decentralized", "collective": "ring"},
    "low-precision": {"algorithm": "low-precision-decentralized"},
    "async": {"algorithm": {"async": {"sync_interval": "20 ms"}}},
    "torch-post-local-sgd": {"algorithm": {"torch-post-local-sgd": {"period": 2, "warmup": 2}}},
}


def together(num_ranks: int, work: Callable[[int], T]) -> list[T]:
    """A rank that waits for another one in vain says so soon."""
    return run_together(num_ranks, work, 20.0)


def optimizer_of(model: nn.Module, method: dict[str, Any]) -> torch.optim.Optimizer:
    if method is QADAM:
        return torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0 if method is TOP_K else 0.9)


Body = Callable[[nn.Module, torch.optim.Optimizer, Distributed, int], None]


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, batch(handle.rank, step)).backward()
    optimizer.step()


def train(
    rank: int, method: dict[str, Any], batches: Sequence[int], body: Body = plain, epochs: int = 2, **options: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters and the optimizer's state of a rank after epochs of uneven length."""
    model = small_model()
    optimizer = optimizer_of(model, method)
    with distribute(model, optimizer, **method) as handle:
        for epoch in range(epochs):
            with handle.join(**options):
                for step in range(batches[rank]):
                    body(model, optimizer, handle, 100 * epoch + step)
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    return values(model), torch.cat([value.reshape(-1).float() for value in [torch.zeros(1), *state]])


def by_hand(batches: Sequence[int], *, all_ranks: bool = True, clip: float | None = None) -> torch.Tensor:
    """One process that sees what all ranks see, with the gradients of those that have data."""
    model = small_model()
    optimizer = optimizer_of(model, RING)
    for epoch in range(2):
        for step in range(max(batches)):
            trainers = [rank for rank, count in enumerate(batches) if step < count]
            optimizer.zero_grad()
            for rank in trainers:
                mean_over = len(batches) if all_ranks else len(trainers)
                (loss_of(model, batch(rank, 100 * epoch + step)) / mean_over).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return values(model)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("all_ranks", [True, False])
@pytest.mark.parametrize("method", [RING, DDP], ids=["ring", "ddp"])
def test_the_mean_is_over_all_ranks_or_over_those_with_data(
    method: dict[str, Any], all_ranks: bool, num_ranks: int
) -> None:
    batches = BATCHES[num_ranks]
    found = together(num_ranks, lambda rank: train(rank, method, batches, divide_by_initial_world_size=all_ranks))
    assert all(torch.equal(found[0][0], other) for other, _ in found)
    assert all(torch.equal(found[0][1], other) for _, other in found)
    assert torch.allclose(found[0][0], by_hand(batches, all_ranks=all_ranks), atol=1e-5)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize(
    "method", [TOP_K, QADAM, DELAYED, {"algorithm": "no-communication"}], ids=["top-k", "qadam", "delayed", "none"]
)
def test_replicas_stay_equal_with_every_method_that_averages_gradients(method: dict[str, Any], num_ranks: int) -> None:
    found = together(num_ranks, lambda rank: train(rank, method, BATCHES[num_ranks]))
    assert all(torch.equal(found[0][0], other) for other, _ in found)
    assert all(torch.equal(found[0][1], other) for _, other in found)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("name", LOCAL)
def test_methods_that_leave_gradients_local_take_all_their_rounds(name: str, num_ranks: int) -> None:
    method = LOCAL[name]
    batches = BATCHES[num_ranks]
    seen: list[torch.Tensor] = []

    def work(rank: int) -> tuple[torch.Tensor, float]:
        model = small_model()
        optimizer = optimizer_of(model, method)
        with distribute(model, optimizer, **method) as handle:
            with handle.join():
                for step in range(batches[rank]):
                    plain(model, optimizer, handle, step)
            seen.append(values(model))
            plain(model, optimizer, handle, 50)  # all are at the same step again
            handle.drain()
            state = handle.state_dict()["algorithm"]
            steps = next((float(state[key]) for key in ("step", "num_steps", "steps") if key in state), -1.0)
        return values(model), steps

    found = together(num_ranks, work)
    assert len({steps for _, steps in found}) == 1
    assert found[0][1] in (-1.0, max(batches) + 1)
    spread = max(float((one - other).norm()) for one, _ in found for other, _ in found)
    start = float((found[0][0] - values(small_model())).norm())
    assert spread < 2 * start


def test_a_rank_without_data_keeps_its_parameters_between_rounds() -> None:
    def work(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, {"local-sgd": {"period": 10}}) as handle:
            with handle.join():
                for step in range(4 if rank == 0 else 1):
                    plain(model, optimizer, handle, step)
                after_own = values(model)
            return after_own, values(model)

    (_, first), (own, second) = together(2, work)
    assert torch.equal(own, second)
    assert not torch.equal(first, second)


def test_clipping_and_schedulers_reach_ranks_without_data() -> None:
    """They clip nothing and step no scheduler themselves; the optimizer's state comes from who trained to the end."""

    def work(rank: int) -> tuple[torch.Tensor, float]:
        model = small_model()
        optimizer = optimizer_of(model, RING)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        with distribute(model, optimizer, "ring") as handle, handle.join():
            for step in range((2, 5)[rank]):
                optimizer.zero_grad()
                loss_of(model, batch(rank, step)).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                scheduler.step()
        return values(model), optimizer.param_groups[0]["lr"]

    (first, early_lr), (second, lr) = together(2, work)
    assert torch.equal(first, second)
    assert early_lr == 0.1 * 0.5**4  # of the last step that was taken
    assert lr == 0.1 * 0.5**5


def test_nothing_is_sent_at_the_end_where_replicas_agree_already() -> None:
    loads: list[int] = []

    def work(rank: int) -> None:
        model = small_model()
        optimizer = optimizer_of(model, RING)
        optimizer.register_load_state_dict_post_hook(lambda _: loads.append(rank))
        with distribute(model, optimizer, "ring") as handle, handle.join():
            for step in range((2, 5)[rank]):
                plain(model, optimizer, handle, step)

    together(2, work)
    assert loads == []


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
    """As a ``GradScaler`` does it: every third step meets an infinity."""
    scale = 1024.0
    optimizer.zero_grad()
    factor = torch.inf if step % 3 == 2 and handle.rank == 1 else 1.0
    (loss_of(model, batch(handle.rank, step)) * scale * factor).backward()
    finite = all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(scale)
    if finite:
        optimizer.step()


@pytest.mark.parametrize(
    "method",
    [RING, TOP_K, DDP, QADAM, *(LOCAL[name] for name in ("local-sgd", "decentralized", "async"))],
    ids=["ring", "top-k", "ddp", "qadam", "local-sgd", "decentralized", "async"],
)
def test_a_step_that_is_skipped_is_skipped_by_ranks_without_data(method: dict[str, Any]) -> None:
    found = together(2, lambda rank: train(rank, method, (2, 6), scaled))
    assert all(bool(parameters.isfinite().all()) for parameters, _ in found)
    if method in (RING, TOP_K, DDP, QADAM):
        assert torch.equal(found[0][0], found[1][0])


@pytest.mark.parametrize("method", [RING, DDP, LOCAL["decentralized"], LOCAL["diloco"]], ids=str)
@pytest.mark.parametrize("batches", [(7, 4), (5, 5), (4, 7), (1, 6), (0, 3)])
def test_accumulation_that_does_not_come_out_even(method: dict[str, Any], batches: tuple[int, int]) -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        if step % 2 == 0:
            optimizer.zero_grad()
        with handle.no_sync() if step % 2 == 0 else nullcontext():
            loss_of(model, batch(handle.rank, step)).backward()
        if step % 2 == 1:
            optimizer.step()

    found = together(2, lambda rank: train(rank, method, batches, body))
    if method in (RING, DDP):
        assert torch.equal(found[0][0], found[1][0])


def test_closures() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Distributed, step: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch(handle.rank, step))
            loss.backward()
            return loss

        optimizer.step(closure)

    found = together(2, lambda rank: train(rank, RING, BATCHES[2], body))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][0], by_hand(BATCHES[2]), atol=1e-5)


def test_buffers_come_from_who_has_data() -> None:
    def work(rank: int, way: str) -> torch.Tensor:
        model = nn.Sequential(nn.BatchNorm1d(12), small_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring", buffers=way) as handle, handle.join():
            for step in range(rank * 3):
                plain(model, optimizer, handle, step)
        return model[0].running_mean.clone()

    def alone() -> torch.Tensor:
        norm = nn.BatchNorm1d(12)
        for step in range(3):
            norm(batch(1, step))
        return norm.running_mean

    for way in ("local", "broadcast", "average"):
        for found in together(2, lambda rank, way=way: work(rank, way)):
            assert torch.allclose(found, alone(), atol=1e-6)


@pytest.mark.parametrize("method", [RING, LOCAL["local-sgd"], LOCAL["decentralized"]], ids=str)
def test_all_ranks_stop_with_the_first(method: dict[str, Any]) -> None:
    def work(rank: int) -> int:
        model = small_model()
        optimizer = optimizer_of(model, method)
        taken = 0
        with distribute(model, optimizer, **method) as handle:
            with (
                pytest.raises(RuntimeError, match="rank 1 has no more data, and rank 0 has"),
                handle.join(throw_on_early_termination=True),
            ):
                for step in range((5, 2)[rank]):
                    plain(model, optimizer, handle, step)
                    taken += 1
            optimizer.zero_grad()
            plain(model, optimizer, handle, 50)  # and may go on together
        return taken

    assert together(2, work) == [2, 2]


def test_even_loops_stop_nobody() -> None:
    found = together(2, lambda rank: train(rank, RING, (3, 3), throw_on_early_termination=True))
    assert torch.allclose(found[0][0], by_hand((3, 3)), atol=1e-5)


def test_an_error_inside_waits_for_nobody() -> None:
    def work(rank: int) -> float:
        model = small_model()
        optimizer = optimizer_of(model, RING)
        began = time.monotonic()
        with pytest.raises(ZeroDivisionError), distribute(model, optimizer, "ring") as handle, handle.join():
            for step in range(2 + rank):
                plain(model, optimizer, handle, step)
                if step == 1:
                    raise ZeroDivisionError
        return time.monotonic() - began

    assert max(together(2, work)) < 20


def test_what_is_refused_inside() -> None:
    def work(rank: int) -> None:
        model = small_model()
        optimizer = optimizer_of(model, RING)
        with distribute(model, optimizer, "ring") as handle:
            with handle.join():
                plain(model, optimizer, handle, 0)
                with pytest.raises(RuntimeError, match="not inside of another"), handle.join():
                    pass
                for verb in (handle.drain, handle.state_dict):
                    with pytest.raises(RuntimeError, match="not all at the same point"):
                        verb()
            handle.drain()
        with handle.join():  # closed: trains alone
            for step in range(rank):
                plain(model, optimizer, handle, step)

    together(2, work)


def test_the_mean_over_those_with_data_is_of_gradients() -> None:
    def work(rank: int) -> None:
        model = small_model()
        with (
            distribute(model, optimizer_of(model, RING), "local-sgd") as handle,
            pytest.raises(ConfigError, match="'local-sgd' averages parameters"),
            handle.join(divide_by_initial_world_size=False),
        ):
            pass

    together(2, work)


def test_one_rank_has_nobody_to_wait_for() -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_of(model, RING)
        with distribute(model, optimizer, "ring") as handle, handle.join():
            plain(model, optimizer, handle, 0)
            handle.drain()
        return values(model)

    together(1, work)


@pytest.mark.parametrize("method", [RING, DDP], ids=["ring", "ddp"])
def test_a_step_without_a_backward_pass_is_one_of_zeros(method: dict[str, Any]) -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_of(model, method)
        with distribute(model, optimizer, **method) as handle:
            for step in range(4):
                optimizer.zero_grad()
                if rank != step % 2:
                    loss_of(model, batch(rank, step)).backward()
                optimizer.step()
            with handle.no_sync():
                optimizer.zero_grad()
                loss_of(model, batch(rank, 7)).backward()
            optimizer.step()
        return values(model)

    one, other = together(2, work)
    assert torch.equal(one, other)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_without_join_the_rank_that_did_not_come_is_named(num_ranks: int) -> None:
    ended = threading.Barrier(num_ranks)

    def work(rank: int) -> str:
        model = small_model()
        said = "nothing"
        handle = distribute(model, optimizer := optimizer_of(model, RING), "ring")
        try:
            for step in range(2 if rank == 1 else 4):
                plain(model, optimizer, handle, step)
        except RuntimeError as error:
            said = str(error)
        ended.wait(60)
        handle.close(together=False)
        return said

    found = run_together(num_ranks, work, 3.0)
    assert found.pop(1) == "nothing"
    for said in found:
        assert "rank 1 did not come to step 3: ranks take the same number of steps, or use handle.join()" in said
