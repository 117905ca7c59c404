"""Every registered algorithm: trains, ends cleanly, sends what it claims, keeps its promises about replicas."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from bwbench.base.registry import ALGORITHMS, COLLECTIVES, OPTIMIZERS
from bwbench.methods.compression.codec import NoCompression
from tests.ranks import run_ranks
from tests.replicas import SHAPES, attached, loss_of, replica, vector

STEPS = 12
# Options under which something happens in so few steps; those that an algorithm has not are left out.
SHORT = {"period": 4, "overlap": 0, "fragments": 2, "warmup": 0}
OPTIONS = {"streaming-diloco": {"period": 4, "overlap": 2, "fragments": 2}}
TIMED = {"async"}  # how often they exchange depends on the clock, and so do their results


def options_of(name):
    config = ALGORITHMS.load(name).Config
    known = {field.alias or key for key, field in config.model_fields.items()} | set(config.model_fields)
    return config(**{key: value for key, value in (SHORT | OPTIONS.get(name, {})).items() if key in known})


@cache
def collective_of(name):
    """The collective that the algorithm prefers, else the first one that it accepts; None where only torch's is left.

    DistributedDataParallel counts its groups by process, so that ranks in threads cannot use it.
    """
    algorithm = ALGORITHMS.load(name)
    names = [algorithm.preferred_collective] if algorithm.preferred_collective else []
    names += ["ring", *COLLECTIVES.names()]
    loaded = {other: COLLECTIVES.load(other) for other in names}
    return next((n for n, c in loaded.items() if algorithm.accepts(c) is None and not c.wraps_model), None)


def fits(name, num_nodes):
    if (num_nodes == 1) == ALGORITHMS.load(name).needs_peers:
        return False
    return COLLECTIVES.load(collective_of(name))().check(num_nodes) is None


# hivemind runs processes of its own, which find each other through a network: tests/e2e/test_hivemind.py.
NAMES = [name for name in ALGORITHMS.names() if collective_of(name) is not None and name != "hivemind"]
SIZES = [(name, num_nodes) for name in NAMES for num_nodes in (1, 2, 3, 4, 5) if fits(name, num_nodes)]
REPEATABLE = [(name, num_nodes) for name, num_nodes in SIZES if name not in TIMED and num_nodes in (1, 2)]


def node_of(name, group, rank):
    algorithm = ALGORITHMS.load(name)
    optimizer = OPTIMIZERS.load((algorithm.optimizers or ("sgd",))[0])

    def make_optimizer(model):
        return optimizer(optimizer.Config(lr=0.01)).build(model.parameters())

    return attached(group, rank, algorithm(options_of(name)), collective_of(name), ["none"], make_optimizer)


def put_back(node, optimizer):
    """Parameters and optimizer as they were, and a reset."""
    node.model.load_state_dict(replica().state_dict())
    node.optimizer.load_state_dict(copy.deepcopy(optimizer))
    node.running.reset()
    node.trajectory, node.num_steps, node.payload_bytes = [], 0, 0
    node.running.resume()


def test_only_torchs_own_are_left_out():
    left_out = set(ALGORITHMS.names()) - set(NAMES) - {"hivemind"}
    assert all(ALGORITHMS.load(name).accepts(COLLECTIVES.load("torch")) is None for name in left_out)


@pytest.mark.parametrize(("name", "num_nodes"), SIZES)
def test_trains_keeps_its_promises_and_ends(name, num_nodes):
    def work(group, rank):
        node = node_of(name, group, rank)
        optimizer = copy.deepcopy(node.optimizer.state_dict())
        node.train(2)  # as the loop does before the clock starts
        node.running.rehearse(0.0)
        node.drain()
        put_back(node, optimizer)
        before = loss_on_all(node.model, num_nodes)
        for _ in range(STEPS):
            node.train(1)
        node.drain()
        drained = vector(node.model)
        assert node.running.drain() == 0
        assert torch.equal(vector(node.model), drained), "draining again changes something"
        assert loss_on_all(node.model, num_nodes) < before, "nothing was learnt"
        node.running.close()
        node.running.close()
        return node

    nodes = run_ranks(num_nodes, work)
    traffic = nodes[0].algorithm.traffic(SHAPES, num_nodes, nodes[0].collective, NoCompression)
    for node in nodes:
        claimed = STEPS * traffic.payload_bytes_per_rank[node.rank]
        if name not in TIMED:
            assert node.payload_bytes == pytest.approx(claimed, rel=0.01)
    promise = nodes[0].algorithm.replicas_equal
    for step in range(1, STEPS + 1):
        if promise == "after every step" or (
            promise == "after a round" and nodes[0].running.agreement_step(step) == step
        ):
            for node in nodes:
                assert torch.equal(node.trajectory[step - 1], nodes[0].trajectory[step - 1]), f"step {step}"


@pytest.mark.parametrize(("name", "num_nodes"), REPEATABLE)
def test_reset_and_what_it_was_begun_with_give_the_same_again(name, num_nodes):
    def work(group, rank):
        node = node_of(name, group, rank)
        optimizer = copy.deepcopy(node.optimizer.state_dict())
        node.train(7)
        node.drain()
        first = node.trajectory
        put_back(node, optimizer)
        node.train(7)
        node.drain()
        node.running.close()
        return first, node.trajectory

    for first, again in run_ranks(num_nodes, work):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("name", "num_nodes"), REPEATABLE)
def test_resumes_bit_exactly(name, num_nodes):
    def work(group, rank):
        whole, resumed = node_of(name, group, rank), node_of(name, group, rank)
        whole.train(5)
        whole.drain()
        state = {key: value.clone() for key, value in whole.running.state_dict().items()}
        resumed.drain()
        resumed.model.load_state_dict(whole.model.state_dict())
        resumed.optimizer.load_state_dict(copy.deepcopy(whole.optimizer.state_dict()))
        resumed.running.load_state_dict(state)
        resumed.num_steps = 5
        for node in (whole, resumed):  # one after the other: what is in flight has the tags of both
            node.running.resume()
            node.train(7)
            node.drain()
            node.running.close()
        return whole.trajectory[5:], resumed.trajectory

    for whole, resumed in run_ranks(num_nodes, work):
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_agreement_is_never_before_the_step(name):
    def work(group, rank):
        node = node_of(name, group, rank)
        steps = [node.running.agreement_step(step) for step in range(1, 30)]
        node.drain()
        node.running.close()
        return steps

    num_nodes = 2 if ALGORITHMS.load(name).needs_peers else 1
    steps = run_ranks(num_nodes, work)
    assert all(others == steps[0] for others in steps)
    assert all(agreed is None or agreed >= step for step, agreed in enumerate(steps[0], start=1))


def loss_on_all(model, num_nodes):
    """Mean over the batches of all ranks that were trained on."""
    with torch.no_grad():
        losses = [loss_of(model, rank, step) for rank in range(num_nodes) for step in range(1, STEPS + 1)]
    return float(torch.stack(losses).mean())
