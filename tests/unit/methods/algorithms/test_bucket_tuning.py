"""The bucket size that is chosen follows the link and the backward pass."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from bwbench.base.published_models import published_model
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.algorithm import assign
from bwbench.methods.algorithms.every_step import (
    CANDIDATES_BYTES,
    EveryStep,
    EveryStepConfig,
    best_bucket_bytes,
    end_of_exchange_s,
)
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.network.link import Link

ELEMENTS = [100_000] * 40  # 16 MB


def traffic(elements):
    return COLLECTIVES.load("ring")().traffic(4, [4 * elements])


def best(bandwidth, latency, backward_s):
    return best_bucket_bytes(ELEMENTS, backward_s, Link(bandwidth=bandwidth, latency=latency), traffic)


def test_high_latency_asks_for_few_buckets():
    assert best("1 Gbit/s", "50 ms", 0.05) >= 16 * 2**20
    assert best("1 Gbit/s", "0.1 ms", 0.5) < 4 * 2**20


def test_a_long_backward_on_a_fast_link_asks_for_small_buckets():
    assert best("10 Gbit/s", "0.1 ms", 2.0) <= best("10 Gbit/s", "0.1 ms", 0.02)


@pytest.mark.parametrize("dilation", [0.25, 8.0, 64.0])
def test_slow_motion_changes_no_choice(dilation):
    for bandwidth, latency, backward_s in (("1 Gbit/s", "50 ms", 0.05), ("1 Gbit/s", "0.1 ms", 0.5)):
        slow = Link(bandwidth=bandwidth, latency=latency).dilated(dilation)
        assert best_bucket_bytes(ELEMENTS, backward_s, slow, traffic) == best(bandwidth, latency, backward_s)


@pytest.mark.parametrize("shrink", [2.0, 8.0])
@pytest.mark.parametrize(("model", "backward_s"), [("bert-large", 0.4), ("vgg16", 0.2)])
def test_a_shrunk_model_on_its_link_chooses_as_the_whole_one(model, backward_s, shrink):
    whole, link = published_model(model), Link(bandwidth="1 Gbit/s", latency="1 ms")
    chosen, counts = [], []
    for factor in (1.0, shrink):
        elements = [math.prod(shape) for shape in whole.shrunk(factor).parameter_shapes]
        chosen.append(best_bucket_bytes(elements, backward_s, link.shrunk(factor), traffic, factor))
        counts.append(len(assign(elements, chosen[-1], factor)))
    assert chosen[0] == chosen[1]
    assert counts[1] == pytest.approx(counts[0], abs=1)  # tensors are divided to whole rows


@pytest.mark.parametrize("bandwidth", ["10 Mbit/s", "1 Gbit/s"])
def test_no_candidate_ends_earlier(bandwidth):
    link = Link(bandwidth=bandwidth, latency="2.5 ms")
    ends = {size: end_of_exchange_s(ELEMENTS, size, 0.1, link, traffic) for size in CANDIDATES_BYTES}
    assert ends[best(bandwidth, "2.5 ms", 0.1)] <= 1.001 * min(ends.values())


def test_nothing_ends_before_the_last_gradient_and_its_way():
    link = Link(bandwidth="100 Mbit/s", latency="1 ms")
    whole_s = 1.5 * 16e6 * 8 / 100e6
    assert end_of_exchange_s(ELEMENTS, 256e6, 0.3, link, traffic) > 0.3 + whole_s


def test_all_nodes_choose_alike_in_the_rehearsal_and_average_as_before():
    torch.manual_seed(0)
    initial = nn.Sequential(nn.Linear(6, 3000), nn.Tanh(), nn.Linear(3000, 60), nn.Tanh(), nn.Linear(60, 2))

    def work(group, rank):
        model = copy.deepcopy(initial)
        collective = COLLECTIVES.load("ring")()
        collective.connect(group, Link(bandwidth="1 Gbit/s", latency="0.1 ms"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="auto"))
        running = algorithm.attach(
            Context(
                model,
                optimizer,
                collective,
                COMPRESSIONS.load("none"),
                group,
                Control(group),
                nullcontext(),
                Members.all_of(group),
            )
        )
        running.rehearse(0.5 * (1 + rank))
        running.reset()
        running.begin_step()
        with running.micro_step(last=True):
            torch.autograd.backward(model(torch.full((4, 6), float(rank))).square().mean())
        running.finish()
        running.close()
        return running.bucket_bytes, [parameter.grad.clone() for parameter in model.parameters()]

    (sizes, gradients), *others = run_ranks(3, work)
    assert len(sizes) > 1
    for other_sizes, other_gradients in others:
        assert other_sizes == sizes
        assert all(torch.equal(*pair) for pair in zip(gradients, other_gradients, strict=True))


def test_shrunk_gradients_are_laid_out_in_the_buckets_that_were_played():
    initial = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(8)))  # 8 MiB

    def work(group, rank):
        counts = []
        for shrink in (1.0, 4.0):
            side = round(512 / math.sqrt(shrink))
            model = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in initial))
            collective = COLLECTIVES.load("ring")()
            collective.connect(group, Link(bandwidth="1 Gbit/s", latency="5 ms").shrunk(shrink))
            running = EveryStep(EveryStepConfig(bucket_bytes="auto")).attach(
                Context(
                    model,
                    torch.optim.SGD(model.parameters(), lr=0.1),
                    collective,
                    COMPRESSIONS.load("none"),
                    group,
                    Control(group),
                    nullcontext(),
                    Members.all_of(group),
                    shrink=shrink,
                )
            )
            running.rehearse(0.2)
            running.close()
            counts.append(len(running.bucket_bytes))
        return counts

    for whole, shrunk in run_ranks(2, work):
        assert 1 < whole == shrunk


def test_a_checkpoint_brings_back_the_chosen_size_with_its_residuals():
    torch.manual_seed(0)
    initial = nn.Sequential(nn.Linear(6, 3000), nn.Tanh(), nn.Linear(3000, 60), nn.Tanh(), nn.Linear(60, 2))

    def attached(group):
        model = copy.deepcopy(initial)
        collective = COLLECTIVES.load("parameter-server")()
        collective.connect(group, Link(bandwidth="100 Mbit/s", latency="0.1 ms"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        algorithm = EveryStep(EveryStepConfig(bucket_bytes="auto"))
        make_codec = lambda: ErrorFeedback(COMPRESSIONS.load("int8")())  # noqa: E731
        running = algorithm.attach(
            Context(
                model, optimizer, collective, make_codec, group, Control(group), nullcontext(), Members.all_of(group)
            )
        )
        return model, running

    def work(group, rank):
        model, running = attached(group)
        running.rehearse(1.0)
        running.begin_step()
        with running.micro_step(last=True):
            torch.autograd.backward(model(torch.full((4, 6), float(rank))).square().mean())
        running.finish()
        state = running.state_dict()
        running.close()
        _, again = attached(group)
        few = len(again.bucket_bytes)
        again.load_state_dict(state)
        again.close()
        assert len(running.bucket_bytes) > few
        assert again.bucket_bytes == running.bucket_bytes
        found = again.state_dict()
        assert found.keys() == state.keys()
        assert all(torch.equal(found[key], state[key]) for key in state)

    run_ranks(2, work)


class Control:
    """Averages through the group that the test has."""

    def __init__(self, group):
        self.group = group

    def average(self, values):
        self.group.allreduce([values]).wait()
        values /= self.group.size()

    def diverged(self, reason):
        raise AssertionError(reason)
