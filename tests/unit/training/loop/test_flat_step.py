"""A flat optimizer step: the same bits as an ordinary one, with algorithms that leave the update to the optimizer."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS, OPTIMIZERS
from bwbench.experiment.config.resolve import resolve
from bwbench.methods.algorithms.algorithm import assign
from bwbench.methods.algorithms.buckets import GradientBuffers, ParameterBuffers
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.process_groups import Groups
from bwbench.training.loop.step import Pacer, Stepper
from bwbench.training.loop.trial_parts import flatten, prepare

OPTIONS = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"weight_decay": 0.01},
    "adamw": {"betas": [0.8, 0.99]},
}
OWN_UPDATE = {name for name in ALGORITHMS.names() if ALGORITHMS.load(name).optimizers}
PERIODIC = {"period": 3}
one_at_a_time = threading.Lock()


def cell(algorithm: object, optimizer: dict, tmp_path, **more: object):
    raw = {"nodes": 2, "link": "unshaped", "model": {"cnn": {"width": 4, "hidden": 9}}, "batch_size": 8}
    return resolve({**raw, "algorithm": algorithm, "optimizer": optimizer, **more}, (), tmp_path)


def trained(config, num_steps: int) -> list[list[torch.Tensor]]:
    def work(group, rank):
        with one_at_a_time:  # the random generators belong to the process
            trial = prepare(config, Groups(ControlPath(group), group))
        num_updated = len(trial.optimizer.param_groups[0]["params"])
        assert (num_updated < len(list(trial.model.parameters()))) == config.optimizer.options.flat
        stepper = Stepper(trial, trial.make_feed(), Pacer(None))
        trial.method.resume()
        for number in range(1, num_steps + 1):
            stepper.step(number, samples=0)
        trial.method.drain()
        trial.method.close()
        return [parameter.detach().clone() for parameter in trial.model.parameters()]

    return run_ranks(config.nodes, work)


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS.names() if name != "muon"])  # steps matrices
@pytest.mark.parametrize(
    "algorithm",
    ["ring-fp16", "threshold", {"local-sgd": PERIODIC}, {"diloco": PERIODIC}, "decentralized", "no-communication"],
)
def test_the_same_bits_as_an_ordinary_step(algorithm, optimizer, tmp_path):
    found = []
    for flat in (False, True):
        resolved = cell(algorithm, {optimizer: {**OPTIONS[optimizer], "flat": flat}}, tmp_path)
        assert resolved.config is not None, resolved.findings
        found.append(trained(resolved.config, 5))
    for ordinary, flat in zip(*found, strict=True):
        assert all(torch.equal(*pair) for pair in zip(ordinary, flat, strict=True))


@pytest.mark.parametrize("algorithm", ["ddp", *sorted(OWN_UPDATE)])
def test_what_has_no_use_for_it_is_refused(algorithm, tmp_path):
    known = ALGORITHMS.load(algorithm).optimizers if algorithm in OWN_UPDATE else ("sgd",)
    resolved = cell(algorithm, {known[0]: {"flat": True}}, tmp_path)
    assert any("leave 'flat' out" in finding.message for finding in resolved.findings)


@pytest.mark.parametrize("link", ["unshaped", {"bandwidth": "10 Mbit/s"}])
def test_buckets_that_are_made_anew_after_the_warm_up_are_refused(link, tmp_path):
    resolved = cell({"ring": {"bucket": "auto"}}, {"sgd": {"flat": True}}, tmp_path, link=link)
    assert any("'bucket: auto' changes them after the warm-up" in finding.message for finding in resolved.findings)


def test_it_is_off_unless_asked_for(tmp_path):
    assert cell("ring", {"sgd": {}}, tmp_path).config.optimizer.options.flat is False


def model() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in ((7, 3), (5,), (2, 2, 3), (1,), (6,))]


def test_memory_that_an_algorithm_has_laid_out_is_shared():
    parameters = model()
    buckets = assign([p.numel() for p in parameters], 100)
    gradients = GradientBuffers(parameters, buckets)
    values = ParameterBuffers(parameters, buckets)
    flat = flatten(torch.optim.SGD(parameters, lr=0.1), parameters)
    assert {p.data_ptr() for p in flat} == {buffer.data_ptr() for buffer in values.flat}
    assert {p.grad.data_ptr() for p in flat} == {buffer.data_ptr() for buffer in gradients.flat}


def test_different_orders_leave_every_parameter_by_itself():
    parameters = model()
    gradients = GradientBuffers(parameters, [[4, 3, 2, 1, 0]])
    values = ParameterBuffers(parameters, [[0, 1, 2, 3, 4]])
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    before = values.flat[0].clone()
    assert len(flatten(optimizer, parameters)) == 5
    gradients.flat[0].fill_(1.0)
    optimizer.step()
    assert torch.equal(values.flat[0], before - 1)


def test_gradients_outside_of_buckets_are_refused():
    parameters = model()
    with pytest.raises(ConfigError, match="torch's own exchange"):
        flatten(torch.optim.SGD(parameters, lr=0.1), parameters)
