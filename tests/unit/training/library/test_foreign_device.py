"""Every method with its model on a device: a stand-in that refuses what a GPU would; the bits are the host's."""

from __future__ import annotations

import pytest
import torch

from bwbench import distribute
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.method_names import PRESETS
from bwbench.methods.buffers import FiniteSoon, array_of, bytes_of, give_back, moved_like, moved_to_host, on_host
from bwbench.training.loop.muon import Muon
from tests.foreign_device import foreign, is_foreign, move, moved, stand_in
from tests.unit.training.library.test_resume import OVERLAPPED, WITHOUT_MOMENTUM, spelling
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS, STEPS = 4, 8
# Torch's own code copies by itself and knows no stand-in: it is shown on a GPU (tests/gpu).
OWN = [
    name
    for name, preset in PRESETS.items()
    if not COLLECTIVES.load(preset.collective).wraps_model and ALGORITHMS.load(preset.algorithm).needs_peers
]
BY_TIME = ("async",)  # when a thread gets its turn decides the bits


def optimizer_for(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    known = ALGORITHMS.load(PRESETS[name].algorithm).optimizers
    if known and "sgd" not in known:
        return (Muon if "muon" in known else torch.optim.Adam)(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0 if name in WITHOUT_MOMENTUM else 0.9)


def train(name: str, rank: int, *, elsewhere: bool) -> torch.Tensor:
    """The parameters in the end, on the host; a checkpoint is taken and loaded on the way."""
    model = move(small_model()) if elsewhere else small_model()
    optimizer = optimizer_for(name, model)
    with distribute(model, optimizer, spelling(name)) as handle:
        for step in range(STEPS):
            inputs = batch(rank, step)
            loss_of(model, moved(inputs) if elsewhere else inputs).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == STEPS // 2 and name not in OVERLAPPED:
                state = handle.state_dict()
                handle.load_state_dict(state)
        handle.drain()
        if elsewhere:
            assert all(is_foreign(parameter) for parameter in model.parameters())
            with foreign():
                return moved_to_host(values(model))
        return values(model)


def train_elsewhere(name: str, rank: int) -> torch.Tensor:
    with foreign():
        return train(name, rank, elsewhere=True)


@pytest.mark.parametrize("name", OWN)
def test_every_method_trains_to_the_bits_of_the_host(name: str) -> None:
    there = together(NUM_RANKS, lambda rank: train(name, rank, elsewhere=False))
    with stand_in() as device:
        before = device.num_lent
        here = together(NUM_RANKS, lambda rank: train_elsewhere(name, rank))
        assert device.num_lent > before, "nothing was copied from the device"
    for own, other in zip(here, there, strict=True):
        if name in BY_TIME:
            torch.testing.assert_close(own, other, rtol=0.2, atol=0.05)
        else:
            assert torch.equal(own, other)


def test_gradients_that_are_not_finite_are_told_as_on_the_host() -> None:
    def run(rank: int, *, elsewhere: bool) -> tuple[str | None, torch.Tensor]:
        model = move(small_model()) if elsewhere else small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "bytegrad") as handle:
            inputs = batch(rank, 0)
            loss = loss_of(model, moved(inputs) if elsewhere else inputs)
            (loss * float("inf") if rank == 1 else loss).backward()
            found = [parameter.grad for parameter in model.parameters()]
            assert all(gradient is not None for gradient in found)
            return handle.nonfinite, moved_to_host(torch.cat([g.reshape(-1) for g in found if g is not None]))

    def run_elsewhere(rank: int) -> tuple[str | None, torch.Tensor]:
        with foreign():
            return run(rank, elsewhere=True)

    there = together(2, lambda rank: run(rank, elsewhere=False))
    with stand_in():
        here = together(2, run_elsewhere)
    for (said, gradient), (other_said, other) in zip(here, there, strict=True):
        assert said == other_said and said is not None and "on rank 1" in said
        torch.testing.assert_close(gradient, other, equal_nan=True, rtol=0, atol=0)


def test_the_stand_in_refuses_what_a_device_refuses() -> None:
    with stand_in(), foreign():
        there = moved(torch.ones(3))
        assert is_foreign(there * 2) and is_foreign(torch.zeros_like(there)) and not is_foreign(torch.zeros(3))
        with pytest.raises(RuntimeError, match="of the host and of the device"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="read as an array of the host"):
            array_of(there)
        assert bytes_of(there) == bytes_of(torch.ones(3))


def test_there_and_back() -> None:
    with stand_in(), foreign():
        there = moved(torch.arange(6, dtype=torch.float64).view(2, 3))
        host = on_host(there)
        assert host.dtype == torch.float32 and not is_foreign(host) and host.tolist() == [0, 1, 2, 3, 4, 5]
        give_back(host.mul_(2), there)
        assert moved_to_host(there).tolist() == [[0, 2, 4], [6, 8, 10]]
        assert is_foreign(moved_like(torch.ones(2), there)) and not is_foreign(moved_like(torch.ones(2), host))
        assert FiniteSoon(there).get() and not FiniteSoon(there / 0).get()
