"""Which device a rank gets, and which backend carries torch's own exchange; with a torch that says it has GPUs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.training.loop.compute_device import data_backend, device_for, device_name


def config(device: str, collective: str = "torch") -> Any:
    return SimpleNamespace(compute=SimpleNamespace(device=device), collective=SimpleNamespace(name=collective))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[torch.device]]:
    chosen: list[torch.device] = []

    def there_are(count: int) -> list[torch.device]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
        return chosen

    return there_are


def test_ranks_take_gpus_in_turn(gpus: Callable[[int], list[torch.device]]) -> None:
    chosen = gpus(2)
    assert [str(device_for(config("cuda"), rank)) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert len(chosen) == 4, "each is the current one of its thread"
    assert device_for(config("cpu"), 1) == torch.device("cpu")


def test_a_worker_without_a_gpu_says_so(gpus: Callable[[int], list[torch.device]]) -> None:
    gpus(0)
    with pytest.raises(ConfigError, match=r"compute.device: cuda, and torch .* here; write 'device: cpu'"):
        device_for(config("cuda"), 0)


@pytest.mark.parametrize(
    ("num_gpus", "device", "collective", "local", "backend"),
    [
        (4, "cuda", "torch", {}, "cpu:gloo,cuda:nccl"),
        (1, "cuda", "torch", {}, "gloo"),  # NCCL refuses ranks that share one
        (1, "cuda", "torch", {"LOCAL_WORLD_SIZE": "1"}, "cpu:gloo,cuda:nccl"),  # a host each
        (4, "cuda", "ring", {}, "gloo"),
        (4, "cpu", "torch", {}, "gloo"),
        (0, "cuda", "torch", {}, "gloo"),
    ],
)
def test_nccl_where_every_rank_has_a_gpu(
    gpus: Callable[[int], list[torch.device]],
    num_gpus: int,
    device: str,
    collective: str,
    local: dict[str, str],
    backend: str,
) -> None:
    gpus(num_gpus)
    assert data_backend(config(device, collective), 4, local) == backend


def test_the_processor_has_no_name_of_its_own_in_events() -> None:
    assert device_name(torch.zeros(1)) is None
