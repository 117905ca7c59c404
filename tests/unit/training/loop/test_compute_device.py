"""Which device a rank gets, and which backend carries torch's own exchange; with a torch that says it has GPUs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.collectives.sharded import Sharded, ShardedConfig
from bwbench.training.loop.compute_device import backend_for, connect_devices, data_backend, device_for, device_name


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
    ("gpus", "backend"),
    [
        ([("a", "1"), ("a", "2")], "cpu:gloo,cuda:nccl"),
        ([("a", "1"), ("b", "1")], "cpu:gloo,cuda:nccl"),  # a host each
        ([("a", "1"), ("a", "1")], "gloo"),  # NCCL refuses ranks that share one
        ([("a", "1"), ("a", "2"), ("b", "1"), ("b", "1")], "gloo"),  # on one host alone they share it
        ([("a", "1"), None], "gloo"),
    ],
)
def test_nccl_where_every_rank_has_a_gpu(gpus: list[tuple[str, str] | None], backend: str) -> None:
    assert backend_for(gpus) == backend


def test_ranks_tell_one_another_which_gpu_they_have(
    gpus: Callable[[int], list[torch.device]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def all_gather_object(found: list[Any], own: Any) -> None:
        told.append(own)
        found[:] = [own, ("another host", "uuid 0")]

    gpus(4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=f"uuid {index}"))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)
    assert data_backend(config("cuda")) == "cpu:gloo,cuda:nccl"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert data_backend(config("cuda")) == "gloo", "told all the same: others wait for it"
    assert told == [(socket.gethostname(), "uuid 3"), None]
    assert data_backend(config("cuda", "ring")) == data_backend(config("cpu")) == "gloo" and len(told) == 2


def test_the_processor_has_no_name_of_its_own_in_events() -> None:
    assert device_name(torch.zeros(1)) is None


@pytest.mark.parametrize(("rank", "mates"), [(0, [7, 3]), (1, [7, 3]), (3, [5, 9])])
def test_ranks_of_a_host_get_a_group_of_nccl(rank: int, mates: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of the group that trains have other numbers in the default one, which torch asks for."""
    made: list[Any] = []

    def new_group(ranks: list[int], limit: timedelta, backend: str, *, use_local_synchronization: bool) -> Any:
        made.append((ranks, limit, backend, use_local_synchronization))
        return SimpleNamespace(size=lambda: 2, rank=lambda: rank % 2)

    monkeypatch.setattr(torch.distributed, "new_group", new_group)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda _: [7, 3, 5, 9])
    group: Any = SimpleNamespace(size=lambda: 4, rank=lambda: rank)
    four = [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")]
    ours = Sharded(ShardedConfig(workers_per_host=2))
    limit = timedelta(seconds=5)
    assert connect_devices(ours, group, lambda: [*four[:3], None], limit) is None and ours.devices is None
    assert connect_devices(ours, group, lambda: four, limit) is not None
    assert made == [(mates, limit, "nccl", True)]
    assert ours.devices is not None and (ours.devices.size, ours.devices.place) == (2, rank % 2)

    def not_asked() -> Any:
        raise AssertionError

    assert connect_devices(Ring(), group, not_asked, limit) is None
