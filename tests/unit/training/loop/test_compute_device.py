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
from bwbench.methods.collectives.host_devices import HostDevices
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


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Four ranks of the default group, 3, 5, 7 and 9, on two hosts; ``made`` are the groups that were asked for."""
    made: list[Any] = []
    found = SimpleNamespace(made=made, works=True, ranks=[3, 5, 7, 9], given_up=0)

    def new_group(ranks: list[int], limit: timedelta, backend: str, *, use_local_synchronization: bool) -> Any:
        assert ranks == sorted(ranks) and use_local_synchronization, "torch sorts them"
        made.append((ranks, limit, backend))
        return SimpleNamespace(size=lambda: 2, rank=lambda: 0, abort=lambda: setattr(found, "given_up", 1))

    monkeypatch.setattr(torch.distributed, "new_group", new_group)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda _: found.ranks)
    monkeypatch.setattr(HostDevices, "work_on", lambda ours, device: found.works)
    return found


FOUR = [["a", "0"], ["a", "1"], ["b", "0"], ["b", "1"]]


def devices_of(rank: int, gpus: list[Any], *, others_work: bool = True) -> tuple[Sharded, Any]:
    def tell(own: object) -> list[Any]:
        return [own, others_work] if isinstance(own, bool) else gpus

    ours, group = Sharded(ShardedConfig(workers_per_host=2)), SimpleNamespace(size=lambda: 4, rank=lambda: rank)
    limit = timedelta(seconds=5)
    return ours, connect_devices(ours, group, torch.device("cpu"), tell, limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rank", "mates"), [(0, [3, 5]), (1, [3, 5]), (3, [7, 9])])
def test_ranks_of_a_host_get_a_group_of_nccl(rank: int, mates: list[int], hosts: Any) -> None:
    """Ranks of the group that trains have other numbers in the default one, which torch asks for."""
    ours, group = devices_of(rank, FOUR)
    assert group is not None and ours.devices is not None
    assert hosts.made == [(mates, timedelta(seconds=10), "nccl")], "twice the limit: its end is the process's"


def test_it_stays_with_gloo_where_one_host_cannot(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, group = devices_of(0, [*FOUR[:3], None])
    assert group is None and ours.devices is None and not hosts.made
    hosts.ranks = [7, 3, 5, 9]
    assert devices_of(0, FOUR)[1] is None and not hosts.made, "a group in an order that torch would not keep"
    hosts.ranks = [3, 5, 7, 9]
    world = SimpleNamespace(WORLD=SimpleNamespace(bound_device_id=torch.device("cuda", 0)))
    with monkeypatch.context() as bound:
        bound.setattr(torch.distributed, "group", world)
        assert devices_of(0, FOUR)[1] is None and not hosts.made
    for here, there in ((True, False), (False, True)):
        hosts.works, hosts.given_up = here, 0
        ours, group = devices_of(0, FOUR, others_work=there)
        assert group is None and ours.devices is None and hosts.given_up == 1


def test_what_has_no_hosts_asks_nobody() -> None:
    def not_asked(_: object) -> Any:
        raise AssertionError

    group: Any = SimpleNamespace(size=lambda: 4, rank=lambda: 0)
    assert connect_devices(Ring(), group, torch.device("cpu"), not_asked, timedelta(seconds=5)) is None
