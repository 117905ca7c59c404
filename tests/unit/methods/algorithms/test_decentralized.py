"""Averaged weights, against N models in one process and exact means."""

from __future__ import annotations

import copy
import threading

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.experiment.config import load_experiment
from bwbench.methods.algorithms.decentralized import Decentralized, DecentralizedConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached, vector
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.gossip import peer_of
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.traffic import Traffic
from tests.simulated import Simulation

STEPS = 12


def mean_of_all(x, number):
    return x.mean(0, keepdim=True).expand_as(x)


def mean_of_pairs(x, number):
    peers = [peer_of(rank, number, len(x)) for rank in range(len(x))]
    return (x + x[peers]) / 2


def mean_of_neighbours(x, number):
    if len(x) == 2:
        return mean_of_all(x, number)
    return (x.roll(1, 0) + x + x.roll(-1, 0)) / 3


MIXING = {"ring": mean_of_all, "gossip-pair": mean_of_pairs, "neighbours": mean_of_neighbours}


def simulate(num_nodes, collective, interval=1, steps=STEPS):
    """Weights of every node after every step."""
    nodes, trajectory, number = Simulation(num_nodes), [], 0
    for step in range(1, steps + 1):
        nodes.compute_gradients(step)
        if step % interval == 0:
            nodes.x = MIXING[collective](nodes.x, number)
            number += 1
        nodes.update()
        trajectory.append(nodes.x)
    return torch.stack(trajectory)


def train(num_ranks, collective, interval=1, steps=STEPS):
    def work(group, rank):
        node = attached(group, rank, Decentralized(DecentralizedConfig(interval=interval)), collective)
        node.train(steps)
        node.running.close()
        return node

    return run_ranks(num_ranks, work)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize(
    ("num_ranks", "collective"), [(n, c) for n in (2, 3, 4, 5) for c in MIXING if n % 2 == 0 or c != "gossip-pair"]
)
def test_equals_the_plain_definition(num_ranks, collective, interval):
    nodes = train(num_ranks, collective, interval)
    ours = torch.stack([torch.stack(node.trajectory) for node in nodes], 1)
    assert (ours - simulate(num_ranks, collective, interval)).abs().max() < 1e-5
    predicted = Decentralized(DecentralizedConfig(interval=interval)).traffic(
        SHAPES, num_ranks, COLLECTIVES.load(collective)(), COMPRESSIONS.load("none")
    )
    for rank, node in enumerate(nodes):
        assert node.payload_bytes == pytest.approx(STEPS * predicted.payload_bytes_per_rank[rank], rel=0.02)
    assert predicted.in_background == (interval == 1)


def test_fp16_stays_near():
    def work(group, rank):
        node = attached(group, rank, Decentralized(), "ring", ["fp16"])
        node.train(STEPS)
        node.running.close()
        return node.trajectory[-1]

    last = torch.stack(run_ranks(3, work))
    assert (last - simulate(3, "ring")[-1]).abs().max() < 5e-3


@pytest.mark.parametrize("collective", ["ring", "gossip-pair", "neighbours"])
def test_training_goes_on_bit_for_bit_from_a_checkpoint(collective):
    def work(group, rank):
        options = DecentralizedConfig(interval=2)
        node = attached(group, rank, Decentralized(options), collective)
        node.train(7)
        node.drain()
        parts = node.model, node.optimizer, node.running
        saved = [copy.deepcopy(part.state_dict()) for part in parts]
        node.train(6)
        node.running.close()
        again = attached(group, rank, Decentralized(options), collective)
        for part, state in zip((again.model, again.optimizer, again.running), saved, strict=True):
            part.load_state_dict(state)
        again.num_steps = 7
        again.train(6)
        again.running.close()
        assert torch.equal(vector(again.model), vector(node.model))

    run_ranks(4, work)


def test_the_warm_up_leaves_no_trace():
    def work(group, rank):
        node = attached(group, rank, Decentralized(DecentralizedConfig(interval=2)), "gossip-pair")
        before = {key: value.clone() for key, value in node.model.state_dict().items()}
        node.train(2)
        node.running.begin_step()  # as after a measurement: begun, never finished
        node.running.rehearse(0.0)
        node.drain()
        node.model.load_state_dict(before)
        node.optimizer.state.clear()
        node.running.reset()
        node.num_steps = 0
        node.train(5)
        node.running.close()
        return node.trajectory[-1]

    assert (torch.stack(run_ranks(4, work)) - simulate(4, "gossip-pair", 2)[4]).abs().max() < 1e-5


class Held(AbstractCollective):
    """Takes until ``over`` is set, or breaks."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.begun, self.over = error, threading.Event(), threading.Event()

    @classmethod
    def accepts(cls, codec):
        return None

    def traffic(self, num_nodes, bucket_payload_bytes):
        return Traffic.none(num_nodes)

    def _average(self, bucket, codec, round_):
        if self.error:
            raise self.error
        self.begun.set()
        assert self.over.wait(60)


def test_weights_travel_while_the_node_computes():
    def work(group, rank):
        held = Held()
        node = attached(group, rank, Decentralized(), held)
        node.running.begin_step()
        assert held.begun.wait(60)  # before and during forward and backward pass
        held.over.set()
        node.running.finish()

    run_ranks(2, work)


def test_an_error_surfaces_where_it_is_waited_for():
    def work(group, rank):
        node = attached(group, rank, Decentralized(), Held(ValueError("the cable is gone")))
        with pytest.raises(RuntimeError, match="the cable is gone"):
            node.train(1)

    run_ranks(2, work)


@pytest.mark.parametrize("codec", ["threshold", "top-k", "powersgd", "int8", "sign"])
def test_codecs_that_would_damage_weights_are_refused(codec):
    assert "low-precision-decentralized" in Decentralized.accepts_codec(COMPRESSIONS.load(codec))
    with pytest.raises(ConfigError, match="low-precision-decentralized"):
        run_ranks(2, lambda group, rank: attached(group, rank, Decentralized(), "all-gather", [codec]))


@pytest.mark.parametrize("algorithm", ["decentralized", "async"])
def test_an_experiment_with_such_a_codec_is_refused(algorithm, tmp_path):
    file = tmp_path / "weights.yaml"
    lines = ["name: x", "nodes: 2", "link: unshaped", "model: logistic", "dataset: digits", "batch_size: 8"]
    lines += ["limit: {samples: 80}", f"algorithm: {algorithm}", "compression: int8"]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"weights.yaml:9: .*8 bits of a weight"):
        load_experiment(file)


@pytest.mark.parametrize("codec", ["none", "fp16", "bf16"])
def test_codecs_that_keep_weights_are_accepted(codec):
    assert Decentralized.accepts_codec(COMPRESSIONS.load(codec)) is None


@pytest.mark.parametrize(
    ("collective", "interval", "step", "expected"),
    [("ring", 1, 5, 6), ("ring", 4, 5, 8), ("ring", 4, 8, 12), ("gossip-pair", 1, 5, 9), ("neighbours", 3, 5, 15)],
)
def test_ranks_agree_to_stop_in_a_later_exchange(collective, interval, step, expected):
    def work(group, rank):
        node = attached(group, rank, Decentralized(DecentralizedConfig(interval=interval)), collective)
        return node.running.agreement_step(step)

    assert run_ranks(4, work) == [expected] * 4


@pytest.mark.parametrize(("collective", "num_ranks"), [("gossip-pair", 8), ("gossip-pair", 6), ("neighbours", 7)])
def test_a_request_has_reached_everybody_by_then(collective, num_ranks):
    heard = torch.zeros(num_ranks, num_ranks)
    heard.fill_diagonal_(1)
    for number in range(3, 3 + num_ranks):
        heard = (MIXING[collective](heard, number) > 0).float()
    assert heard.all()
