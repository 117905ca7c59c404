"""QAdam and 1-bit Adam against one process that holds all gradients."""

from __future__ import annotations

import copy

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms.qadam import QAdam, QAdamConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from tests.simulated import Simulation

STEPS = 14
WARMUP = 5
OPTIMIZERS = {
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.8, 0.99), weight_decay=0.01),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.8, 0.99), weight_decay=0.1),
}


def simulate(num_nodes, optimizer, warmup=WARMUP, steps=STEPS):
    """Weights after every step: torch's own Adam on the mean gradient, then the same with v left as it is."""
    nodes, trajectory = Simulation(num_nodes, OPTIMIZERS[optimizer]), []
    group = nodes.optimizers[0].param_groups[0]
    (beta1, beta2), lr, eps, decay = group["betas"], group["lr"], group["eps"], group["weight_decay"]
    parameters = list(nodes.models[0].parameters())
    for step in range(1, steps + 1):
        nodes.compute_gradients(step)
        nodes.average_gradients()
        if step <= warmup:
            nodes.update()
        else:
            with torch.no_grad():
                for p in parameters:
                    state = nodes.optimizers[0].state[p]
                    gradient = p.grad + decay * p if optimizer == "adam" else p.grad
                    if optimizer == "adamw":
                        p -= lr * decay * p
                    state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * gradient
                    m = state["exp_avg"] / (1 - beta1**step)
                    v = state["exp_avg_sq"] / (1 - beta2**warmup)
                    p -= lr * m / (v.sqrt() + eps)
        nodes.x = nodes.x[:1].expand(num_nodes, -1)
        trajectory.append(nodes.x[0])
    return torch.stack(trajectory)


def train(num_ranks, codec="none", collective="ring", optimizer="adam", steps=STEPS, warmup=WARMUP, send="momentum"):
    def work(group, rank):
        options = QAdamConfig(warmup_steps=warmup, send=send)
        node = attached(group, rank, QAdam(options), collective, [codec], OPTIMIZERS[optimizer])
        node.train(steps)
        node.running.close()
        return node

    return run_ranks(num_ranks, work)


@pytest.mark.parametrize("send", ["momentum", "scaled-momentum"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_equals_the_plain_definition(num_ranks, optimizer, send):
    expected = simulate(num_ranks, optimizer)
    for node in train(num_ranks, optimizer=optimizer, send=send):
        ours = torch.stack(node.trajectory)
        assert (ours - expected).abs().max() < 1e-4
        assert (ours[WARMUP:] - expected[WARMUP - 1]).abs().max() > 1e-2  # it goes on


def test_is_torchs_adam_until_the_variance_is_frozen():
    def work(group, rank):
        node = attached(group, rank, QAdam(QAdamConfig(warmup_steps=STEPS)), "ring", ["none"], OPTIMIZERS["adam"])
        node.train(STEPS)
        node.running.close()
        return node.trajectory[-1]

    nodes = Simulation(3, OPTIMIZERS["adam"])
    for step in range(1, STEPS + 1):
        nodes.compute_gradients(step)
        nodes.average_gradients()
        nodes.update()
    for weights in run_ranks(3, work):
        assert (weights - nodes.x[0]).abs().max() < 1e-4


CASES = [
    ("fp16", "ring"),
    ("threshold", "all-gather"),
    ("int8", "scatter-gather"),
    ("sign", "scatter-gather"),
    ("sign", "parameter-server"),
    ("sign", "all-gather"),
]


@pytest.mark.parametrize(("codec", "collective"), CASES)
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_replicas_stay_bit_equal_and_bytes_are_those_of_the_estimate(num_ranks, codec, collective):
    nodes = train(num_ranks, codec, collective)
    for node in nodes:
        assert torch.equal(node.trajectory[-1], nodes[0].trajectory[-1])
        assert torch.isfinite(node.trajectory[-1]).all()
    ours = COLLECTIVES.load(collective)()
    plain, compressed = (QAdam().traffic(SHAPES, num_ranks, ours, COMPRESSIONS.load(name)) for name in ("none", codec))
    for rank, node in enumerate(nodes):
        if codec == "threshold":  # its size depends on the values
            continue
        expected = WARMUP * plain.payload_bytes_per_rank[rank]
        expected += (STEPS - WARMUP) * compressed.payload_bytes_per_rank[rank]
        assert node.payload_bytes == pytest.approx(expected, rel=0.02, abs=64 * STEPS)


@pytest.mark.parametrize(("codec", "collective"), [case for case in CASES if case[0] != "threshold"])
@pytest.mark.parametrize("send", ["momentum", "scaled-momentum"])
def test_dense_compression_stays_near_the_plain_definition(codec, collective, send):
    expected = simulate(3, "adam")
    moved = (expected[-1] - expected[WARMUP - 1]).norm()
    near = 0.8 if codec == "sign" else 0.1
    for node in train(3, codec, collective, send=send):
        assert (node.trajectory[-1] - expected[-1]).norm() < near * moved


@pytest.mark.parametrize(("codec", "collective"), [("none", "ring"), *CASES])
@pytest.mark.parametrize("saved_after", [3, WARMUP, 8])
def test_training_goes_on_bit_for_bit_from_a_checkpoint(codec, collective, saved_after):
    def work(group, rank):
        options = QAdamConfig(warmup_steps=WARMUP, send="scaled-momentum" if codec == "sign" else "momentum")
        node = attached(group, rank, QAdam(options), collective, [codec], OPTIMIZERS["adamw"])
        node.train(saved_after)
        node.drain()
        saved = [copy.deepcopy(part.state_dict()) for part in (node.model, node.optimizer, node.running)]
        node.train(8)
        node.running.close()
        again = attached(group, rank, QAdam(options), collective, [codec], OPTIMIZERS["adamw"])
        for part, state in zip((again.model, again.optimizer, again.running), saved, strict=True):
            part.load_state_dict(state)
        again.num_steps = saved_after
        again.train(8)
        again.running.close()
        assert torch.equal(vector(again.model), vector(node.model))
        assert again.optimizer.state_dict()["state"].keys() == node.optimizer.state_dict()["state"].keys()

    run_ranks(3, work)


@pytest.mark.parametrize(("codec", "collective"), [("none", "ring"), *CASES])
def test_the_loops_own_warm_up_leaves_no_trace(codec, collective):
    def work(group, rank):
        options = QAdamConfig(warmup_steps=1)
        node = attached(group, rank, QAdam(options), collective, [codec], OPTIMIZERS["adam"])
        before = copy.deepcopy((node.model.state_dict(), node.optimizer.state_dict()))
        node.train(2)
        node.running.rehearse(0.0)
        node.drain()
        node.model.load_state_dict(before[0])
        node.optimizer.load_state_dict(before[1])
        node.running.reset()
        node.num_steps, node.trajectory = 0, []
        node.train(4)
        node.running.close()
        return node.trajectory[-1]

    again = run_ranks(3, work)
    for weights, node in zip(again, train(3, codec, collective, steps=4, warmup=1), strict=True):
        assert torch.equal(weights, node.trajectory[-1])


def test_entries_without_a_gradient_in_the_warm_up_stay_where_they_are():
    def work(group, rank):
        node = attached(group, rank, QAdam(QAdamConfig(warmup_steps=2)), "ring", ["none"], plain_adam)
        first = node.model[0].weight
        first.register_hook(lambda gradient: gradient * (torch.arange(6) > 0))
        before = first.detach().clone()
        node.train(6)
        node.optimizer.state[first]["exp_avg"][:, 0] = 1.0  # what a codec such as sign would make of a zero
        node.train(2)
        node.running.close()
        assert torch.equal(first.detach()[:, 0], before[:, 0])
        assert not torch.equal(first.detach()[:, 1], before[:, 1])
        assert torch.isfinite(vector(node.model)).all()

    run_ranks(2, work)


def plain_adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def test_micro_steps_are_sent_once():
    def work(group, rank):
        node = attached(group, rank, QAdam(QAdamConfig(warmup_steps=1)), "ring", ["none"], plain_adam)
        node.train(2)
        before = node.payload_bytes
        node.train(2, accumulate=3)
        node.running.close()
        assert node.payload_bytes == 2 * before
        return vector(node.model)

    first, second = run_ranks(2, work)
    assert torch.equal(first, second)


@pytest.mark.parametrize("variant", ["amsgrad", "maximize"])
def test_variants_without_a_frozen_form_are_refused(variant):
    def make(model):
        return torch.optim.Adam(model.parameters(), **{variant: True})

    with pytest.raises(ConfigError, match=variant):
        run_ranks(2, lambda group, rank: attached(group, rank, QAdam(), "ring", ["none"], make))


def test_other_optimizers_are_refused():
    with pytest.raises(ConfigError, match="SGD"):
        run_ranks(2, lambda group, rank: attached(group, rank, QAdam(), "ring", ["none"]))
