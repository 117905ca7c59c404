from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from bwbench.methods.collectives.rank_threads import run_ranks
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
