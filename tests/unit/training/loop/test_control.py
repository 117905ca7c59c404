from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.control import ControlPath, Stop


def test_alone_everything_is_local():
    control = ControlPath()
    control.barrier()
    assert control.mean({"accuracy": 0.5}) == {"accuracy": 0.5}
    assert control.published_stop(3) is None
    control.publish_stop(Stop("done", "time"), 3)
    control.publish_stop(Stop("diverged", "later"), 3)
    assert control.published_stop(2) is None, "a faster rank is a step ahead"
    assert control.published_stop(3) == Stop("done", "time")
    control.withdraw_stop()
    assert control.published_stop(3) is None


def test_means_are_the_same_bits_everywhere():
    def work(group, rank):
        control = ControlPath(group)
        values = torch.full((3,), float(rank))
        control.average(values)
        control.barrier()
        return control.mean({"loss": 0.1 * rank, "accuracy": float("nan") if rank == 1 else 1.0}), values.tolist()

    results = run_ranks(3, work)
    assert {repr(result) for result in results} == {repr(results[0])}
    mean, values = results[0]
    assert mean["loss"] == pytest.approx(0.1)
    assert mean["accuracy"] != mean["accuracy"], "one rank's NaN is everybody's"
    assert values == [1.0, 1.0, 1.0]


def test_the_first_request_to_stop_counts():
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    other = dist.TCPStore("127.0.0.1", store.port, 1, is_master=False)

    def work(group, rank):
        control = ControlPath(group, store if rank == 0 else other)
        assert control.published_stop(3) is None
        control.barrier()
        if rank == 1:
            control.publish_stop(Stop("diverged", "NaN"), 3)
        control.barrier()
        if rank == 0:
            control.publish_stop(Stop("done", "time"), 3)
        control.barrier()
        found = control.published_stop(3)
        control.barrier()
        control.withdraw_stop()
        control.barrier()
        assert control.published_stop(3) is None
        return found

    assert run_ranks(2, work) == [Stop("diverged", "NaN")] * 2


def test_where_it_is_the_measured_network_ranks_ask_at_evaluations_alone():
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    control = ControlPath(None, store, is_shared=True)
    control.publish_stop(Stop("diverged", "NaN"), 3)
    assert control.published_stop(3) is None, "a question takes a round trip"
    assert control.published_stop(None) == Stop("diverged", "NaN")


@pytest.mark.parametrize("is_shared", [False, True])
def test_ranks_that_meet_wait_for_the_last_one(is_shared):
    def work(group, rank):
        control, clock = ControlPath(group, is_shared=is_shared), TrainingClock()
        control.barrier()
        clock.start()
        time.sleep(0.2 * rank)
        waited_s = control.meet(clock)
        return waited_s, clock.now_s()

    first, last = run_ranks(2, work)
    assert first[0] == pytest.approx(0.2, abs=0.1) and last[0] < 0.1
    assert first[1] == pytest.approx(last[1], abs=0.05)


def test_what_asking_takes_is_not_training_where_it_crosses_the_measured_network(monkeypatch):
    def work(group, rank):
        control, clock = ControlPath(group, is_shared=True), TrainingClock()
        total = control.total
        monkeypatch.setattr(control, "total", lambda values: [time.sleep(0.3), total(values)][1])
        control.barrier()
        clock.start()
        control.meet(clock)
        return clock.now_s()

    assert all(shown_s < 0.2 for shown_s in run_ranks(2, work))
