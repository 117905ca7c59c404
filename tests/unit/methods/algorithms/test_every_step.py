"""Gradients of several ranks, averaged while backward runs, against the plain mean."""

from __future__ import annotations

import copy
import math
import threading
import time
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.every_step import EveryStep, EveryStepConfig
from bwbench.methods.algorithms.single import NoCommunication
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression import build_codec
from bwbench.methods.traffic import Traffic


class Model(nn.Module):
    """A few layers, one of which the forward pass does not use."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 2))
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
INITIAL = Model()


def replica():
    return copy.deepcopy(INITIAL)  # threads share torch's random state, so that seeding in each would race


class LocalControl:
    """Averages through the group that the test has."""

    def __init__(self, group):
        self.group = group

    def barrier(self):
        self.group.barrier().wait()

    def meet(self, clock):
        self.barrier()
        return 0.0

    def average(self, values):
        self.group.allreduce([values]).wait()
        values /= self.group.size()

    def diverged(self, what):
        self.found = what


class Clock:
    times_held = 0

    def held(self):
        self.times_held += 1
        return nullcontext()


def batch(rank, micro_step=0):
    generator = torch.Generator().manual_seed(100 * rank + micro_step)
    return torch.randn(8, 6, generator=generator)


def loss_of(model, x):
    return model(x).square().mean()


def expected_gradients(num_ranks, accumulate=1):
    model = replica()
    total = sum(loss_of(model, batch(r, k)) for r in range(num_ranks) for k in range(accumulate))
    (total / num_ranks / accumulate).backward()
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]


def context(group, model, collective, codec="none"):
    collective.connect(group)
    chain = [Component(codec, COMPRESSIONS.load(codec).Config())]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    control, members = LocalControl(group), Members.all_of(group)
    return Context(model, optimizer, collective, lambda: build_codec(chain), group, control, Clock(), members)


def take_step(running, model, rank, accumulate=1):
    running.begin_step()
    for k in range(accumulate):
        with running.micro_step(last=k == accumulate - 1):
            torch.autograd.backward(loss_of(running.module, batch(rank, k)) / accumulate)
    report = running.finish()
    return [p.grad.clone() for p in model.parameters()], report


@pytest.mark.parametrize("bucket_bytes", [None, 400, 4])
@pytest.mark.parametrize("collective", ["ring", "all-gather", "parameter-server"])
def test_gradients_are_the_mean_of_all(collective, bucket_bytes):
    def work(group, rank):
        model = replica()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes=f"{bucket_bytes} B" if bucket_bytes else None))
        ours = COLLECTIVES.load(collective)()
        running = algorithm.attach(context(group, model, ours))
        take_step(running, model, rank)
        gradients, report = take_step(running, model, rank)  # the second step meets used buffers
        running.close()
        elements = [p.numel() for p in model.parameters()]
        shapes = [tuple(p.shape) for p in model.parameters()]
        predicted = algorithm.traffic(shapes, group.size(), ours, COMPRESSIONS.load("none"))
        assert report.payload_bytes == pytest.approx(predicted.payload_bytes_per_rank[rank], rel=0.02)
        assert sum(running.bucket_bytes) == 4 * sum(elements)
        return gradients

    results = run_ranks(3, work)
    for gradients in results:
        for ours, first, theirs in zip(gradients, results[0], expected_gradients(3), strict=True):
            assert torch.equal(ours, first)
            assert torch.allclose(ours, theirs, atol=1e-6)


def test_micro_steps_are_exchanged_once():
    def work(group, rank):
        model = replica()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="400 B"))
        running = algorithm.attach(context(group, model, COLLECTIVES.load("ring")()))
        once, report_once = take_step(running, model, rank)
        gradients, report = take_step(running, model, rank, accumulate=3)
        assert report.payload_bytes == report_once.payload_bytes
        running.close()
        return gradients

    for gradients in run_ranks(2, work):
        for ours, theirs in zip(gradients, expected_gradients(2, accumulate=3), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def test_residuals_are_forgotten_after_the_warm_up():
    def work(group, rank):
        model = replica()
        algorithm = EveryStep()
        running = algorithm.attach(context(group, model, COLLECTIVES.load("parameter-server")(), "threshold"))
        first, _ = take_step(running, model, rank)
        second, _ = take_step(running, model, rank)
        running.reset()
        again, _ = take_step(running, model, rank)
        running.close()
        assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))

    run_ranks(2, work)


def test_no_communication_averages_off_the_clock():
    def work(group, rank):
        model = replica()
        algorithm = NoCommunication()
        collective = COLLECTIVES.load("none")()
        given = context(group, model, collective)
        running = algorithm.attach(given)
        gradients, report = take_step(running, model, rank)
        assert report.payload_bytes == 0
        assert given.clock.times_held == 1
        return gradients

    for gradients in run_ranks(3, work):
        for ours, theirs in zip(gradients, expected_gradients(3), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


class Breaking(AbstractCollective):
    """Breaks at the second bucket; the first one takes until ``over`` is set."""

    def __init__(self):
        super().__init__()
        self.over, self.ended = threading.Event(), False

    @classmethod
    def accepts(cls, codec):
        return None

    def traffic(self, num_nodes, bucket_payload_bytes):
        return Traffic.none(num_nodes)

    def _average(self, bucket, codec, round_):
        if round_.tag == 1:
            raise ValueError("the cable is gone")
        self.over.wait(60)
        self.ended = True


def test_an_error_in_a_communication_thread_surfaces_at_once():
    def work(group, rank):
        model = replica()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="4 B"))
        collective = Breaking()
        running = algorithm.attach(context(group, model, collective))
        with pytest.raises(RuntimeError, match="the cable is gone"):
            take_step(running, model, rank)
        assert not collective.ended
        collective.over.set()

    run_ranks(2, work)


@pytest.mark.parametrize("codec", ["none", "threshold"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_named_where_it_arises_and_spoils_nobody(codec, value):
    def work(group, rank):
        model = replica()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="400 B"))
        given = context(group, model, COLLECTIVES.load("all-gather")(), codec)
        running = algorithm.attach(given)
        if rank == 1:
            model.layers[2].bias.register_hook(lambda gradient: gradient.masked_fill(gradient == gradient, value))
        gradients, _ = take_step(running, model, rank)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)
        assert all(torch.isfinite(kept).all() for kept in running.state_dict().values())
        running.close()
        return getattr(given.control, "found", None)

    found = "nan" if math.isnan(value) else "inf"
    assert run_ranks(3, work) == [None, f"the gradient of layers.2.bias holds {found}", None]


class Recording(AbstractCollective):
    """Notes the order in which buckets arrive, and the time at which each began."""

    def __init__(self):
        super().__init__()
        self.order = []

    accepts = Breaking.accepts
    traffic = Breaking.traffic

    def _average(self, bucket, codec, round_):
        self.order.append(round_.tag)


def test_buckets_leave_in_order_and_during_backward():
    def work(group, rank):
        model = replica()
        collective = Recording()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="4 B"))
        running = algorithm.attach(context(group, model, collective))
        running.begin_step()
        seen_before_finish = 0
        with running.micro_step(last=True):
            torch.autograd.backward(loss_of(model, batch(rank)))
            time.sleep(0.2)
            seen_before_finish = len(collective.order)
        running.finish()
        return sorted(collective.order), seen_before_finish

    for order, seen_before_finish in run_ranks(2, work):
        assert order == list(range(8))
        # The unused layer comes first and holds back what follows, as its gradient never comes.
        assert seen_before_finish == 0


def test_used_buckets_leave_during_backward():
    def work(group, rank):
        model = replica().layers
        collective = Recording()
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="4 B"))
        running = algorithm.attach(context(group, model, collective))
        running.begin_step()
        with running.micro_step(last=True):
            torch.autograd.backward(loss_of(model, batch(rank)))
        deadline = time.monotonic() + 60
        while len(collective.order) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(collective.order)

    assert run_ranks(2, work) == [6, 6]
