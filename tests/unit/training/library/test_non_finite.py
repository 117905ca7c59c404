"""NaN and infinity in gradients of some ranks: seen by all, skipped by all, and the user's to handle."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from bwbench import Distributed, distribute
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS, BAD_RANK, BAD_STEP, NUM_STEPS = 3, 1, 3, 8
ROUNDS_OF_2: list[Any] = [{"local-sgd": {"period": 2}}, {"diloco": {"period": 2}}]
TOP_K = {"algorithm": "every-step", "collective": "all-gather", "compression": {"top-k": {"ratio": 0.1}}}
AVERAGING: dict[str, dict[str, Any]] = {
    "ring": {"algorithm": "ring"},
    "ddp": {"algorithm": "ddp"},
    "no-communication": {"algorithm": "no-communication"},
    "top-k": TOP_K,
    "scatter-gather": TOP_K | {"collective": "scatter-gather"},
    "powersgd": {"algorithm": "every-step", "compression": "powersgd"},
    "qadam in its warm-up": {"algorithm": {"qadam": {"warmup_steps": 5}}},
    "qadam after it": {"algorithm": {"qadam": {"warmup_steps": 2}}},
    "post-local SGD in its warm-up": {"algorithm": {"local-sgd": {"warmup": 5, "period": 2}}},
    "async in its warm-up": {"algorithm": {"async": {"warmup_steps": 100}}},
}
LOCAL: dict[str, dict[str, Any]] = {
    "local-sgd": {"algorithm": {"local-sgd": {"period": 2}}},
    "local-sgd, a round in the bad step": {"algorithm": {"local-sgd": {"period": BAD_STEP + 1}}},
    "local-sgd with overlap": {"algorithm": {"local-sgd": {"period": 2, "overlap": 1}}},
    "diloco": {"algorithm": {"diloco": {"period": 2}}},
    "streaming-diloco": {"algorithm": {"streaming-diloco": {"period": 4, "overlap": 1}}},
    "decentralized": {"algorithm": "decentralized"},
    "low-precision-decentralized": {"algorithm": "low-precision-decentralized"},
    "async": {"algorithm": {"async": {"sync_interval": "10 ms"}}},
}


def optimizer_of(model: nn.Module, method: dict[str, Any], **options: Any) -> torch.optim.Optimizer:
    if "qadam" in str(method):
        return torch.optim.Adam(model.parameters(), lr=1e-2, **options)
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def bad_loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    loss = loss_of(model, batch(rank, step))
    return loss * torch.inf if (rank, step) == (BAD_RANK, BAD_STEP) else loss


def scaled(rank: int, method: dict[str, Any], clear: str = "optimizer", **options: Any) -> dict[str, Any]:
    """A loop with a GradScaler: which steps were taken, and what came of it."""
    model = small_model()
    optimizer = optimizer_of(model, method, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    taken, found = [], []
    with distribute(model, optimizer, **method) as handle:
        for step in range(NUM_STEPS):
            {"optimizer": optimizer, "model": model}[clear].zero_grad()
            scaler.scale(bad_loss(model, rank, step)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            taken.append(scaler.get_scale() == before)
            found.append(handle.nonfinite)
        handle.drain()
        end = values(model)
    return {"taken": taken, "found": found, "end": end}


ALL_BUT_ONE = [step != BAD_STEP for step in range(NUM_STEPS)]


@pytest.mark.parametrize("name", AVERAGING)
def test_all_ranks_skip_the_step_in_which_one_met_an_infinity(name: str) -> None:
    found = together(NUM_RANKS, lambda rank: scaled(rank, AVERAGING[name]))
    for rank in found:
        assert rank["taken"] == ALL_BUT_ONE
        assert [step for step, text in enumerate(rank["found"]) if text] == [BAD_STEP]
        assert f"holds nan on rank {BAD_RANK}" in rank["found"][BAD_STEP]
        assert torch.isfinite(rank["end"]).all()
        if not name.startswith("post-local"):
            assert torch.equal(rank["end"], found[0]["end"])


@pytest.mark.parametrize("clear", ["optimizer", "model"])
@pytest.mark.parametrize("name", LOCAL)
def test_where_gradients_stay_local_one_rank_skips_and_nobody_waits_for_ever(name: str, clear: str) -> None:
    found = together(NUM_RANKS, lambda rank: scaled(rank, LOCAL[name], clear))
    for rank, result in enumerate(found):
        assert result["taken"] == (ALL_BUT_ONE if rank == BAD_RANK else [True] * NUM_STEPS)
        assert torch.isfinite(result["end"]).all()
    if name in ("local-sgd", "diloco", "local-sgd, a round in the bad step"):  # the last step ends in a round
        assert all(torch.equal(result["end"], found[0]["end"]) for result in found)


def test_a_skipped_step_of_local_sgd_is_a_step_without_an_update() -> None:
    def work(rank: int) -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, {"local-sgd": {"period": 2}}):
            for step in range(4):
                loss_of(model, batch(rank, step)).backward()
                if (rank, step) != (BAD_RANK, 1):
                    optimizer.step()
                optimizer.zero_grad()
        return values(model)

    def gradients(rank: int, step: int) -> None:
        replicas[rank].zero_grad()
        loss_of(replicas[rank], batch(rank, step)).backward()

    replicas = [small_model() for _ in range(NUM_RANKS)]
    for step in range(4):
        for rank, model in enumerate(replicas):
            if (rank, step) != (BAD_RANK, 2):
                gradients(rank, step)
            if (rank, step) != (BAD_RANK, 1):
                torch.optim.SGD(model.parameters(), lr=0.1).step()
            else:  # takes part in the round when its next gradients are there
                gradients(rank, step + 1)
        if step % 2:
            with torch.no_grad():
                for same in zip(*(model.parameters() for model in replicas), strict=True):
                    mean = torch.stack(list(same)).mean(0)
                    for parameter in same:
                        parameter.copy_(mean)
    for found in together(NUM_RANKS, work):
        assert torch.allclose(found, values(replicas[0]), atol=1e-4)  # sent as fp16


@pytest.mark.parametrize(
    "name", ["ring", "top-k", "scatter-gather", "powersgd", "qadam in its warm-up", "qadam after it"]
)
@pytest.mark.parametrize("drains", [False, True])
def test_a_step_that_is_thrown_away_leaves_no_trace(name: str, drains: bool) -> None:
    def work(rank: int, throws: bool) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_of(model, AVERAGING[name])
        with distribute(model, optimizer, **AVERAGING[name]) as handle:
            for step in range(NUM_STEPS):
                if step == BAD_STEP:
                    if not throws:
                        continue
                    bad_loss(model, rank, step).backward()
                    assert handle.nonfinite
                else:
                    loss_of(model, batch(rank, step)).backward()
                    optimizer.step()
                if drains:
                    handle.drain()
                optimizer.zero_grad()
        return values(model)

    found, expected = (together(NUM_RANKS, lambda rank, throws=throws: work(rank, throws)) for throws in (True, False))
    for rank in range(NUM_RANKS):
        assert torch.equal(found[rank], expected[rank])


@pytest.mark.parametrize("name", ["top-k", "qadam in its warm-up", "qadam after it"])
def test_saving_between_backward_pass_and_step_changes_nothing(name: str) -> None:
    def work(rank: int, drains: bool) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_of(model, AVERAGING[name])
        with distribute(model, optimizer, **AVERAGING[name]) as handle:
            for step in range(NUM_STEPS):
                loss_of(model, batch(rank, step)).backward()
                if drains:
                    handle.drain()
                optimizer.step()
                optimizer.zero_grad()
        return values(model)

    found, expected = (together(NUM_RANKS, lambda rank, drains=drains: work(rank, drains)) for drains in (True, False))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("algorithm", ["ring", "ddp", TOP_K["algorithm"]])
def test_nan_on_one_rank_is_named_on_all_and_reaches_nothing_but_its_parameter(
    algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work(rank: int) -> tuple[list[bool], str | None]:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if rank == BAD_RANK:
            model[2].bias.register_hook(lambda gradient: gradient * torch.nan)
        with distribute(model, optimizer, algorithm) as handle:
            loss_of(model, batch(rank, 0)).backward()
            finite = [bool(parameter.grad.isfinite().all()) for parameter in model.parameters()]
            optimizer.step()
            assert [bool(parameter.isfinite().all()) for parameter in model.parameters()] == finite
            return finite, handle.nonfinite

    with caplog.at_level(logging.WARNING, "bwbench"):
        found = together(NUM_RANKS, work)
    text = f"the gradient of 2.bias holds nan on rank {BAD_RANK}"
    assert found == [([True, True, True, False, True, True], text)] * NUM_RANKS
    assert [text in record.getMessage() and "step 1" in record.getMessage() for record in caplog.records] == [True] * 3


def test_local_gradients_stay_as_they_are_and_on_their_rank() -> None:
    def work(rank: int) -> tuple[int, str | None]:
        model = small_model()
        with distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), "local-sgd") as handle:
            if rank == BAD_RANK:
                model[2].bias.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([3]), torch.inf))
            loss_of(model, batch(rank, 0)).backward()
            return int((~model[2].bias.grad.isfinite()).sum()), handle.nonfinite

    expected: list[tuple[int, str | None]] = [(0, None)] * NUM_RANKS
    expected[BAD_RANK] = 1, f"the gradient of 2.bias holds inf on rank {BAD_RANK}"
    assert together(NUM_RANKS, work) == expected


@pytest.mark.parametrize("algorithm", [*ROUNDS_OF_2, "decentralized", "async"])
@pytest.mark.parametrize("skips", [False, True])
def test_nan_in_local_gradients_is_named_on_all_when_ranks_agree(
    algorithm: Any, skips: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def work(rank: int) -> tuple[str | None, str | None]:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        hook = lambda gradient: gradient * torch.nan  # noqa: E731
        handle = distribute(model, optimizer, algorithm)
        for step in range(2):
            bad = model[2].bias.register_hook(hook) if rank == BAD_RANK and step == (0 if skips else 1) else None
            loss_of(model, batch(rank, step)).backward()
            if bad is not None:
                bad.remove()
            if not (skips and handle.nonfinite):
                optimizer.step()
            optimizer.zero_grad()
        between = handle.nonfinite
        handle.drain()
        after = handle.nonfinite
        handle.close()
        return between, after

    with caplog.at_level(logging.WARNING, "bwbench"):
        found = together(NUM_RANKS, work)
    text = f"the gradient of 2.bias holds nan on rank {BAD_RANK}"
    assert [text in str(after) for _, after in found].count(True) >= NUM_RANKS - 1
    if algorithm in ROUNDS_OF_2 and not skips:
        assert all(text in str(between) for rank, (between, _) in enumerate(found) if rank != BAD_RANK)
    named = [record.getMessage() for record in caplog.records if text in record.getMessage()]
    assert len(named) == NUM_RANKS
    assert ["since ranks last agreed" in line for line in named].count(True) == NUM_RANKS - 1


def test_a_fused_optimizer_is_told_of_an_infinity_by_the_scaler() -> None:
    method = AVERAGING["qadam after it"]

    def work(rank: int, fused: bool) -> torch.Tensor:
        model = small_model()
        optimizer = optimizer_of(model, method, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        with distribute(model, optimizer, **method):
            for step in range(NUM_STEPS):
                optimizer.zero_grad()
                scaler.scale(bad_loss(model, rank, step)).backward()
                scaler.step(optimizer)
                scaler.update()
        return values(model)

    fused, plain = (together(NUM_RANKS, lambda rank, fused=fused: work(rank, fused)) for fused in (True, False))
    assert all(torch.equal(fused[0], other) for other in fused)
    assert torch.allclose(fused[0], plain[0], atol=1e-5)


def test_warnings_come_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    def loop(handle: Distributed, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in range(20):
            (loss_of(model, batch(0, step)) * torch.nan).backward()
            assert handle.nonfinite
            optimizer.zero_grad()

    def work(rank: int) -> None:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring") as handle:
            loop(handle, model, optimizer)

    with caplog.at_level(logging.WARNING, "bwbench"):
        together(1, work)
    assert [record.args[-1] for record in caplog.records] == [1, 2, 4, 8, 16]
