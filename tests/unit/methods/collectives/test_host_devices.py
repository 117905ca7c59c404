"""Ranks of a host that speak from device to device: a stand-in for GPUs, and gloo for NCCL."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bwbench import distribute
from bwbench.methods.algorithms.communicator import threads_for
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives import host_devices
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.host_devices import HostDevices, each_has_its_own
from bwbench.methods.collectives.rank_threads import loopback, round_of, run_ranks
from bwbench.methods.collectives.sharded import Sharded, ShardedConfig
from bwbench.methods.collectives.transport import Members, Round, split
from bwbench.network.link import Link
from bwbench.training.library import distribution
from tests.contract.test_collectives import inputs, make_codec
from tests.foreign_device import foreign, is_foreign, moved, stand_in
from tests.unit.training.library.test_foreign_device import train
from tests.unit.training.library.together import together


def host_groups(workers: int) -> Callable[[int], dist.ProcessGroup]:
    """By rank, its group of the ranks of one host: all of them ask for it."""

    gloo: Any = dist  # its stubs leave out what is needed here
    stores = [gloo.HashStore() for _ in range(4)]
    groups: list[dist.ProcessGroup] = []  # kept: one that a rank frees closes on those that still connect to it

    def group(rank: int) -> dist.ProcessGroup:
        options = gloo.ProcessGroupGloo._Options()
        options._devices = [loopback()]
        made: dist.ProcessGroup = gloo.ProcessGroupGloo(stores[rank // workers], rank % workers, workers, options)
        groups.append(made)
        return made

    return group


@pytest.mark.parametrize("num_elements", [1, 2, 3, 4, 10_007, 10_008])
@pytest.mark.parametrize("workers", [2, 4])
def test_shards_are_summed_where_they_lie_and_spread(workers, num_elements):
    tensors, of_host = inputs(workers, num_elements), host_groups(workers)
    spans = split(0, num_elements, workers)

    def work(group, rank):
        with foreign():
            devices, values = HostDevices(of_host(rank), 20.0), moved(tensors[rank])
            shard = devices.summed(values, spans)
            begin, end = spans[rank]
            assert is_foreign(shard) and shard.shape == (end - begin,)
            devices.spread(shard, values, spans)
            return moved_to_host(values)

    with stand_in():
        results = run_ranks(workers, work)
    assert all(torch.equal(result, results[0]) for result in results)
    torch.testing.assert_close(results[0], torch.stack(tensors).sum(0))


@pytest.mark.parametrize("codec", ["none", "fp16", "int8", "top-k", "powersgd"])
@pytest.mark.parametrize(("num_ranks", "workers"), [(2, 2), (4, 2), (8, 4)])
def test_the_mean_is_that_of_the_way_over_the_host(num_ranks, workers, codec):
    num_elements = 20_001
    tensors, of_host = inputs(num_ranks, num_elements), host_groups(workers)
    options = ShardedConfig(workers_per_host=workers, across="ring" if codec in ("none", "fp16") else "all-gather")

    def work(group, rank, *, by_devices):
        ours = Sharded(options)
        ours.connect(group)
        if by_devices:
            ours.devices = HostDevices(of_host(rank), 20.0)
        with foreign():
            own, results = make_codec(codec, num_elements), []
            for step in range(3):
                bucket = moved(tensors[rank] * (step + 1))
                ours.average(bucket, own, round_of(group, 5))
                results.append(moved_to_host(bucket))
        return torch.stack(results), ours.meter.take().payload_bytes, ours.state_dict(), own.state_dict()

    with stand_in():
        there = run_ranks(num_ranks, lambda group, rank: work(group, rank, by_devices=False))
        here = run_ranks(num_ranks, lambda group, rank: work(group, rank, by_devices=True))
    for own, other in zip(here, there, strict=True):
        assert torch.equal(own[0], here[0][0]), "replicas are bit-equal"
        if workers == 2:  # the sum of two has one order
            assert torch.equal(own[0], other[0])
        else:
            # Sums that differ in their last bits may be rounded to neighbours.
            within = {"fp16": 1e-3, "int8": 1 / 127}.get(codec, 1e-6) * float(other[0].abs().max())
            torch.testing.assert_close(own[0], other[0], rtol=0, atol=within)
        assert own[1] == other[1], "as many bytes between hosts"
        assert own[2].keys() == other[2].keys() and own[3].keys() == other[3].keys(), "checkpoints fit both ways"


def test_one_bucket_at_a_time_in_the_order_of_all_ranks_and_nobody_copies_it_to_the_host_first():
    ours = Sharded(ShardedConfig(workers_per_host=2))
    assert threads_for(ours, 8) == 2 and not ours.takes_from_device(make_codec("none"))
    ours.devices = HostDevices(dist.ProcessGroup(dist.HashStore(), 0, 2), 20.0)
    assert threads_for(ours, 8) == 1
    assert ours.takes_from_device(make_codec("int8")) and not ours.takes_from_device(make_codec("powersgd"))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_some_of_the_ranks_and_values_of_the_host_go_over_the_host(elsewhere):
    """Three of four ranks, as when one has run out of data; and all of them, with a bucket that is on no device."""
    tensors, of_host = inputs(4, 1_001), host_groups(2)
    ranks = (0, 1, 2) if elsewhere else (0, 1, 2, 3)

    def work(group, rank):
        ours = Sharded(ShardedConfig(workers_per_host=2))
        ours.connect(group)
        ours.devices = HostDevices(of_host(rank), 20.0)
        ours.devices.summed = None  # not asked
        if rank not in ranks:
            return None
        with foreign():
            bucket = moved(tensors[rank]) if elsewhere else tensors[rank].clone()
            ours.average(bucket, make_codec("none"), Round(0, Members(ranks, rank)))
            return moved_to_host(bucket)

    with stand_in():
        results = [result for result in run_ranks(4, work) if result is not None]
    assert len(results) == len(ranks) and all(torch.equal(result, results[0]) for result in results)
    torch.testing.assert_close(results[0], torch.stack(tensors[: len(ranks)]).mean(0))


def test_a_device_that_does_not_get_there_is_an_error_in_time(monkeypatch):
    """NCCL's work is told to the device, which waits for the mates; here one that never comes to the mark."""
    of_host = host_groups(2)
    never = SimpleNamespace(mark=lambda: SimpleNamespace(reached=lambda: False))

    def work(_, rank):
        devices = HostDevices(of_host(rank), 0.3)
        began = time.monotonic()
        with pytest.raises(RuntimeError, match="has not taken part in an exchange for 0.3 s"):
            devices.summed(torch.ones(10), split(0, 10, 2))
        assert not devices.work_on(torch.device("cpu"))
        return time.monotonic() - began

    assert run_ranks(2, lambda _, rank: HostDevices(of_host(rank), 0.3).work_on(torch.device("cpu"))) == [True, True]
    of_host = host_groups(2)
    monkeypatch.setattr(host_devices, "device_of", lambda _: never)
    assert max(run_ranks(2, work)) < 5.0


@pytest.mark.filterwarnings("ignore:algorithm.*stands for")
@pytest.mark.parametrize("method", ["ring", "bytegrad", "diloco", "qadam"])
def test_a_script_trains_as_over_the_host(method, monkeypatch):
    """Through ``distribute``, several buckets of gradients, a checkpoint on the way; ``diloco`` sends changes."""
    sharded = {"sharded": {"workers_per_host": 2, "across": "scatter-gather" if method == "bytegrad" else "ring"}}
    codec = {"bytegrad": "int8"}.get(method, "none")

    def told(model, optimizer, name, **options):
        return distribute(model, optimizer, name, collective=sharded, compression=codec, **options)

    monkeypatch.setattr("tests.unit.training.library.test_foreign_device.distribute", told)
    found: list[AbstractCollective] = []

    def run(connected):
        monkeypatch.setattr(distribution, "devices_of_host", connected)

        def on_device(rank):
            with foreign():
                return train(method, rank, elsewhere=True)

        with stand_in():
            return together(4, on_device)

    there = run(lambda *_: None)
    of_host = host_groups(2)

    def connect(model, parts, groups, tell, timeout_s):
        collective = parts.collective
        assert collective.hosts_of_devices(4) == [range(2), range(2, 4)]
        collective.devices = HostDevices(of_host(groups.data.rank()), 20.0)
        found.append(collective)

    here = run(connect)
    assert len(found) == 4
    for own, other in zip(here, there, strict=True):
        assert torch.equal(own, other), "a host of two has one order of summation"


def test_when_ranks_of_a_host_speak_from_device_to_device():
    a, b, c, d = ("one", "u0"), ("one", "u1"), ("two", "u0"), ("two", "u1")
    hosts = [range(2), range(2, 4)]
    assert each_has_its_own([a, b, c, d], hosts)
    assert each_has_its_own([a, b, a, b], hosts), "ranks of two hosts may share a machine, in a test"
    assert not each_has_its_own([a, b, c, c], hosts), "NCCL refuses two ranks on one GPU"
    assert not each_has_its_own([a, b, c, None], hosts)
    assert not each_has_its_own([a, c, b, d], hosts), "not numbered host by host"
    assert not each_has_its_own([a, b, c], [range(2), range(2, 3)]), "a host is not full"
    assert not each_has_its_own([a, b], [])


def test_gloo_can_be_asked_for_and_carries_what_counts_as_sent():
    assert Sharded(ShardedConfig(workers_per_host=2)).hosts_of_devices(4) == [range(2), range(2, 4)]
    assert Sharded(ShardedConfig(workers_per_host=2, inside="gloo")).hosts_of_devices(4) == ()
    assert Sharded(ShardedConfig(workers_per_host=1)).hosts_of_devices(4) == ()
    on_lan = Sharded(ShardedConfig(workers_per_host=2))
    on_lan.link = Link.model_validate({"bandwidth": "1 Gbit/s", "regions": ["oregon", "virginia"]})
    assert on_lan.hosts_of_devices(4) == ()
