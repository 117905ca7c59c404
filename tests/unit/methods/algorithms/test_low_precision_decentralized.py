"""Compressed differences to both neighbours, against N models in one process that keep one replica each."""

from __future__ import annotations

import copy

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms.decentralized import LowPrecisionDecentralized
from bwbench.methods.algorithms.small_replica import SHAPES, attached, codec_chain, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression import ErrorFeedback, build_codec
from tests.simulated import Simulation

STEPS = 16
CODECS = ["none", "fp16", "int8", "qsgd"]
DETERMINISTIC = CODECS[:3]
# A value between two steps of the grid may be rounded either way, so that ours may be a step of it off here and there.
TOLERANCE = {"none": 1e-5, "fp16": 2e-4, "int8": 2e-3}


def simulate(num_nodes, codec_name, steps=STEPS):
    """Weights of every node after every step, by the definition with one x-hat a node."""
    nodes, trajectory = Simulation(num_nodes), []
    known = nodes.x.clone()
    for step in range(1, steps + 1):
        nodes.compute_gradients(step)
        nodes.update()
        if num_nodes == 2:
            z = nodes.x + known.flip(0) / 2 - 3 / 2 * known
        else:
            z = nodes.x + (known.roll(1, 0) + known.roll(-1, 0)) / 3 - 5 / 3 * known
        known = known + torch.stack([through(codec_name, row) for row in z])
        nodes.x = known
        trajectory.append(known)
    return torch.stack(trajectory)


def through(codec_name, row):
    """A row in one bucket, in the order of the bucket: the last parameter first."""
    codec = COMPRESSIONS.load(codec_name)()
    codec.prepare(SHAPES[::-1])
    bucket = torch.cat(row.split([torch.Size(shape).numel() for shape in SHAPES])[::-1])
    decoded = codec.decode(codec.encode(bucket), bucket.numel())
    parts = decoded.split([torch.Size(shape).numel() for shape in SHAPES[::-1]])
    return torch.cat(parts[::-1])


def train(num_ranks, codec, steps=STEPS):
    def work(group, rank):
        node = attached(group, rank, LowPrecisionDecentralized(), "neighbours", [codec])
        node.train(steps)
        node.running.close()
        return node

    return run_ranks(num_ranks, work)


@pytest.mark.parametrize("codec", DETERMINISTIC)
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_equals_the_plain_definition(num_ranks, codec):
    nodes = train(num_ranks, codec)
    ours = torch.stack([torch.stack(node.trajectory) for node in nodes], 1)
    away = (ours - simulate(num_ranks, codec)).abs()
    assert away.max() < TOLERANCE[codec]
    assert away.mean() < TOLERANCE[codec] / 20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_replicas_are_bit_equal_to_what_they_stand_for(num_ranks, codec):
    nodes = train(num_ranks, codec, steps=10)
    for rank, node in enumerate(nodes):
        state = node.running.state_dict()
        left, right = (nodes[(rank + shift) % num_ranks].running._weights.flat[0] for shift in (-1, 1))
        assert torch.equal(state["left.0"], left)
        assert num_ranks == 2 or torch.equal(state["right.0"], right)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_bytes_are_those_of_the_estimate(num_ranks, codec):
    nodes = train(num_ranks, codec, steps=3)
    estimate = LowPrecisionDecentralized().traffic(
        SHAPES, num_ranks, COLLECTIVES.load("neighbours")(), COMPRESSIONS.load(codec)
    )
    for rank, node in enumerate(nodes):
        assert node.payload_bytes == pytest.approx(3 * estimate.payload_bytes_per_rank[rank], rel=0.02)


@pytest.mark.parametrize("num_ranks", [2, 4, 5])
def test_without_gradients_all_meet_at_the_mean(num_ranks):
    def work(group, rank):
        node = attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["int8"])
        with torch.no_grad():  # the replicas are told of this as of any other update
            for parameter in node.model.parameters():
                parameter.add_(rank)
        for _ in range(40):
            node.running.after_update()
        node.running.close()
        return vector(node.model)

    ends = torch.stack(run_ranks(num_ranks, work))
    start = Simulation(1).x[0] + (num_ranks - 1) / 2
    assert (ends - start).abs().max() < 0.02


def test_training_goes_on_bit_for_bit_from_a_checkpoint():
    def work(group, rank):
        node = attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["int8"])
        node.train(7)
        node.drain()
        saved = [copy.deepcopy(part.state_dict()) for part in (node.model, node.optimizer, node.running)]
        node.train(6)
        node.running.close()
        again = attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["int8"])
        for part, state in zip((again.model, again.optimizer, again.running), saved, strict=True):
            part.load_state_dict(state)
        again.num_steps = 7
        again.train(6)
        again.running.close()
        assert torch.equal(vector(again.model), vector(node.model))

    run_ranks(3, work)


def test_the_warm_up_leaves_no_trace():
    def work(group, rank):
        node = attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["fp16"])
        before = copy.deepcopy(node.model.state_dict())
        node.train(2)
        node.drain()
        node.model.load_state_dict(before)
        node.optimizer.state.clear()
        node.running.reset()
        node.num_steps = 0
        node.train(5)
        node.running.close()
        return node.trajectory[-1]

    assert (torch.stack(run_ranks(3, work)) - simulate(3, "fp16")[4]).abs().max() < 2e-4


def test_only_neighbours_exchange_differences():
    assert LowPrecisionDecentralized.accepts(COLLECTIVES.load("neighbours")) is None
    assert "neighbours" in LowPrecisionDecentralized.accepts(COLLECTIVES.load("ring"))


@pytest.mark.parametrize("codec", ["threshold", "top-k", "powersgd", "sign", "terngrad"])
def test_codecs_whose_losses_would_be_final_are_refused(codec):
    assert LowPrecisionDecentralized.accepts_codec(COMPRESSIONS.load(codec)) is not None


def test_error_feedback_is_refused():
    assert isinstance(build_codec(codec_chain("threshold")), ErrorFeedback)

    def work(group, rank):
        with pytest.raises(ConfigError, match="lost"):
            attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["threshold"])

    run_ranks(2, work)


@pytest.mark.parametrize("codec", CODECS)
def test_dense_codecs_are_accepted(codec):
    assert LowPrecisionDecentralized.accepts_codec(COMPRESSIONS.load(codec)) is None


@pytest.mark.parametrize(("num_ranks", "expected"), [(2, 5), (3, 5), (4, 6), (5, 6), (8, 8)])
def test_a_request_to_stop_travels_by_one_rank_a_step(num_ranks, expected):
    def work(group, rank):
        node = attached(group, rank, LowPrecisionDecentralized(), "neighbours", ["none"])
        return node.running.agreement_step(5)

    assert run_ranks(num_ranks, work) == [expected] * num_ranks
