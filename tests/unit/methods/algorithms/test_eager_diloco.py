"""What the others' share arriving late does to the replicas of eager DiLoCo, and how long it has."""

from __future__ import annotations

import threading

import pytest
import torch

from bwbench.methods.algorithms.eager_diloco import EagerDiloco, EagerDilocoConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.codec import NoCompression

PERIOD = 4


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
