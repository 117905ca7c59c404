"""Eager DiLoCo beside its formula, and what the others' share arriving late does to the replicas."""

from __future__ import annotations

import threading

import pytest
import torch

from bwbench.methods.algorithms.eager_diloco import EagerDiloco, EagerDilocoConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.codec import NoCompression
from tests.references.replicas import Replicas
from tests.references.side_by_side import ADAMW, MOMENTUM, Method, differences, train

PERIOD, STEPS, RANKS = 4, 20, 4


class Formula(Replicas):
    """d_m = 1/N Delta_m of this round + 1/N of the others' of the last; v <- mu v + d; phi <- phi - eta (d + mu v)."""

    def __init__(self, parameters, lr, *, period, outer_lr=0.7, outer_momentum=0.9, **options):
        super().__init__(parameters, lr, **options)
        self.period, self.outer_lr, self.momentum = period, outer_lr, outer_momentum
        self.outer = [self.flat(tensors) for tensors in self.parameters]
        self.velocity = [self.zeros() for _ in range(self.ranks)]
        self.before = [self.zeros() for _ in range(self.ranks)]

    def step(self, gradients):
        for rank, tensors in enumerate(gradients):
            self.use(rank, tensors)
        self.steps_done += 1
        if self.steps_done % self.period:
            return
        fresh = [outer - self.flat(tensors) for outer, tensors in zip(self.outer, self.parameters, strict=True)]
        for rank in range(self.ranks):
            others = [self.before[other] for other in range(self.ranks) if other != rank]
            gradient = (fresh[rank] + sum(others)) / self.ranks
            self.velocity[rank] = self.momentum * self.velocity[rank] + gradient
            self.outer[rank] = self.outer[rank] - self.outer_lr * (gradient + self.momentum * self.velocity[rank])
            self.parameters[rank] = self.unflat(self.outer[rank])
        self.before = fresh


@pytest.mark.filterwarnings("ignore:.*beside it replaces:UserWarning")  # the preset of the same name
@pytest.mark.parametrize("optimizer", [ADAMW, MOMENTUM], ids=["AdamW", "SGD"])
@pytest.mark.parametrize("collective", ["ring", "all-gather"])
def test_every_step_is_that_of_the_formula(collective, optimizer, record_property):
    method = Method({"eager-diloco": {"period": PERIOD}}, collective, "none", optimizer)
    trained = train(method, RANKS, STEPS)
    apart = differences(trained, lambda s: s.ruled(Formula, period=PERIOD), method.rate)
    record_property("largest_difference", float(apart.max()))
    assert apart.max() < 5e-6


def trained_small(num_ranks, work, collective="all-gather", codec="none", **options):
    """What ``work(node)`` gives, on each rank."""

    def on_rank(group, rank):
        node = attached(group, rank, EagerDiloco(EagerDilocoConfig(**options)), collective, [codec])
        found = work(node)
        node.running.close()
        return found

    return run_ranks(num_ranks, on_rank)


@pytest.mark.parametrize(
    ("collective", "codec"), [("ring", "none"), ("ring", "fp16"), ("all-gather", "int8"), ("all-gather", "threshold")]
)
def test_replicas_stay_together_whatever_the_codec_loses(collective, codec):
    """They differ by the last fresh shares alone: once nobody learns anything, and all has arrived, by nothing."""

    def work(node):
        node.train(20)
        apart = vector(node.model)
        for group in node.optimizer.param_groups:
            group.update(lr=0.0)
        node.train(2)  # one round more, in which nothing is fresh: what was arrives everywhere
        node.drain()
        return apart, vector(node.model)

    results = trained_small(3, work, collective, codec, period=2, outer_momentum=0.0)
    before, after = (torch.stack([result[which] for result in results]) for which in range(2))
    assert (before - before[0]).abs().max() > 1e-4
    assert (after - after[0]).abs().max() < 1e-5


def test_a_drained_mean_waits_for_the_next_round():
    """An evaluation in the middle of a period changes nothing."""

    def disturbed(node):
        for steps in (6, 5, 3):
            node.train(steps)
            before = vector(node.model)
            node.drain()
            assert torch.equal(vector(node.model), before)
        return node.trajectory

    def undisturbed(node):
        node.train(14)
        node.drain()
        return node.trajectory

    found = [trained_small(2, work, period=PERIOD) for work in (disturbed, undisturbed)]
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


class GatedRing(Ring):
    """Lets each exchange pass when its gate is released once more."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Semaphore(0)

    def _average(self, bucket, codec, round_):
        assert self.gate.acquire(timeout=60)
        super()._average(bucket, codec, round_)


def test_a_mean_has_a_whole_period_to_arrive():
    def on_rank(group, rank):
        node = attached(group, rank, EagerDiloco(EagerDilocoConfig(period=PERIOD)), GatedRing())
        node.train(PERIOD)
        for _ in range(3):
            node.train(PERIOD - 1)  # goes on, though nothing arrives
            node.collective.gate.release()
            node.train(1)
        node.collective.gate.release()
        node.drain()
        node.running.close()
        return [node.running.agreement_step(step) for step in (1, PERIOD, PERIOD + 1)]

    assert run_ranks(2, on_rank) == [[2 * PERIOD, 2 * PERIOD, 3 * PERIOD]] * 2


def test_a_plan_knows_that_it_hides_behind_a_whole_period():
    ours = EagerDiloco(EagerDilocoConfig(period=12))
    traffic = ours.traffic(SHAPES, 4, Ring(), NoCompression)
    (phase,) = ours.phases(SHAPES)
    assert traffic.in_background and (phase.period, phase.overlap) == (12, 12)
    assert EagerDiloco(ours.for_timing()).phases(SHAPES) == (phase,)
    assert ours.depends_on_link() is None


def test_there_is_no_overlap_to_choose():
    with pytest.raises(ValueError, match="overlap"):
        EagerDilocoConfig(overlap=2)
