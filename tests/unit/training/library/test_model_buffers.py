"""Running means and other buffers under ``distribute(..., buffers=...)``, and what torch's DDP makes of them."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.library.model_buffers import ModelBuffers, messages_of_broadcast
from tests.unit.training.library.together import batch, together

STEPS = 6


def model_with_norm() -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def train(rank: int, way: str, algorithm: object = "ring", *, drain: bool = True) -> nn.Module:
    model = model_with_norm()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with distribute(model, optimizer, algorithm, buffers=way) as handle:
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(rank, step) + rank).pow(2).mean().backward()
            optimizer.step()
        if drain:
            handle.drain()
    return model


def train_with_ddp(rank: int, group: dist.ProcessGroup) -> nn.Module:
    model = model_with_norm()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bare = dist.ProcessGroup(dist.HashStore(), rank, group.size())
    bare._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, group)
    ddp = nn.parallel.DistributedDataParallel(model, process_group=bare)
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(batch(rank, step) + rank).pow(2).mean().backward()
        optimizer.step()
    return model


def apart(models: list[nn.Module]) -> float:
    """Largest difference of a running mean or variance between two ranks."""
    flat = [torch.cat([model[1].running_mean, model[1].running_var]) for model in models]
    return max(float((one - other).abs().max()) for one in flat for other in flat)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_broadcast_is_what_torch_does(num_ranks: int) -> None:
    theirs = run_ranks(num_ranks, lambda group, rank: train_with_ddp(rank, group))
    ours = together(num_ranks, lambda rank: train(rank, "broadcast"))
    assert apart(ours) == 0
    assert apart([ours[0], theirs[0]]) < 1e-5
    assert int(ours[1][1].num_batches_tracked) == STEPS
    assert apart(together(num_ranks, lambda rank: train(rank, "local"))) > 0.05


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_the_average_is_the_mean_of_what_ranks_have_seen(num_ranks: int) -> None:
    """The recurrence of running means is linear: averaged in every step is as good as averaged at the end."""
    local = together(num_ranks, lambda rank: train(rank, "local"))
    ours = together(num_ranks, lambda rank: train(rank, "average"))
    assert apart(ours) == 0
    mean = torch.stack([model[1].running_mean for model in local]).mean(0)
    assert torch.allclose(ours[0][1].running_mean, mean, atol=1e-6)


@pytest.mark.parametrize("way", ["broadcast", "average"])
@pytest.mark.parametrize(
    ("algorithm", "agree_between"),
    [({"local-sgd": {"period": 3}}, True), ("ddp", True), ({"local-sgd": {"period": 4}}, False), ("async", False)],
)
def test_buffers_agree_whenever_replicas_do(way: str, algorithm: object, agree_between: bool) -> None:
    models = together(2, lambda rank: train(rank, way, algorithm))
    assert apart(models) == 0

    def seen_before_drain(rank: int) -> torch.Tensor:
        model = model_with_norm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, algorithm, buffers=way):
            for step in range(STEPS):
                optimizer.zero_grad()
                model(batch(rank, step) + rank).pow(2).mean().backward()
                optimizer.step()
            return model[1].running_mean.clone()

    one, other = together(2, seen_before_drain)
    assert torch.equal(one, other) == agree_between


def test_a_round_that_comes_late_brings_buffers_with_the_drain() -> None:
    models = together(2, lambda rank: train(rank, "average", {"local-sgd": {"period": 3, "overlap": 1}}))
    assert apart(models) == 0


class Mixed(nn.Module):
    """Buffers of every kind."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([rank > 0, True, False]))
        self.register_buffer("in_single", torch.full((3,), float(rank)))
        self.register_buffer("in_double", torch.full((2, 2), float(rank), dtype=torch.float64))
        self.register_buffer("in_half", torch.full((5,), float(rank), dtype=torch.bfloat16), persistent=False)
        self.register_buffer("count", torch.tensor(rank))
        self.register_buffer("empty", torch.zeros(0))


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5])
def test_every_type_and_what_it_costs(num_ranks: int) -> None:
    def work(group: dist.ProcessGroup, rank: int) -> tuple[list[Mixed], list[int]]:
        models = [Mixed(rank), Mixed(rank), Mixed(rank)]
        sent = [
            ModelBuffers(models[0], "broadcast", group).agree(range(1, num_ranks)),
            ModelBuffers(models[1], "average", group).agree(range(num_ranks)),
            ModelBuffers(models[2], "average", group).agree(range(1, num_ranks)),
        ]
        return models, sent

    found = run_ranks(num_ranks, work)
    size = 3 + 3 * 4 + 4 * 8 + 5 * 2 + 8
    assert sum(sent[0] for _, sent in found) == (num_ranks - 1) * size
    assert found[0][1][1] == pytest.approx(2 * (num_ranks - 1) / num_ranks * (8 * 4 + 4 * 8), abs=1)
    mean, mean_of_some = (num_ranks - 1) / 2, num_ranks / 2
    for rank, ((taken, averaged, some), _) in enumerate(found):
        assert taken.mask.tolist() == [True, True, False]
        assert taken.in_single.tolist() == [1.0] * 3
        assert taken.in_double.tolist() == [[1.0] * 2] * 2
        assert taken.in_half.tolist() == [1.0] * 5
        assert taken.count.item() == 1
        assert averaged.in_single.tolist() == [mean] * 3
        assert averaged.in_half.tolist() == [mean] * 5
        assert averaged.in_double.tolist() == [[mean] * 2] * 2
        assert averaged.count.item() == rank
        assert averaged.mask.tolist() == [rank > 0, True, False]
        assert some.in_single.tolist() == [mean_of_some] * 3


@pytest.mark.parametrize("size", range(1, 9))
def test_a_broadcast_reaches_everyone_once(size: int) -> None:
    for source in range(size):
        assert sum(messages_of_broadcast(rank, source, size) for rank in range(size)) == size - 1


def test_bytes_are_counted_and_nothing_is_sent_unasked() -> None:
    def work(rank: int, way: str) -> int:
        model = model_with_norm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring", buffers=way) as handle:
            model(batch(rank, 0)).sum().backward()
            optimizer.step()
            return handle.payload_bytes

    sent = {way: together(2, lambda rank, way=way: work(rank, way)) for way in ("local", "broadcast", "average")}
    assert sent["broadcast"][0] - sent["local"][0] == 32 * 4 + 8
    assert sent["broadcast"][1] == sent["local"][1]
    assert sent["average"][0] - sent["local"][0] == 32 * 4


def test_another_word_is_refused() -> None:
    model = model_with_norm()
    with pytest.raises(
        ConfigError, match=r"'brodcast' is not known. Did you mean 'broadcast'\? Known: local, broadcas"
    ):
        distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), buffers="brodcast")
