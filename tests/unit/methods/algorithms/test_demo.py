"""``demo``: steps of one size, decoupled weight decay, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.algorithms.demo import Demo
from bwbench.methods.algorithms.small_replica import attached, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.dct_top_k import DctTopK
from bwbench.methods.compression.error_feedback import ResidualConfig

LR, DECAY = 0.01, 0.1
BASE = "name: demo\nnodes: 4\nlink: unshaped\nmodel: mlp\ndataset: digits\n"


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=LR, weight_decay=DECAY)


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_every_parameter_moves_by_the_rate_and_replicas_stay_equal(num_ranks):
    def work(group, rank):
        node = attached(group, rank, Demo(), "all-gather", ["dct-top-k"], sgd)
        before = vector(node.model)
        node.train(5)
        node.running.close()
        return [before, *node.trajectory]

    found = run_ranks(num_ranks, work)
    for before, after in zip(found[0], found[0][1:], strict=False):
        moved = (after - (1 - LR * DECAY) * before).abs()
        assert bool(((moved - LR).abs() < 1e-6).logical_or(moved < 1e-6).all())
        assert float((moved > 1e-6).double().mean()) > 0.9
    assert all(torch.equal(one, other) for states in found for one, other in zip(states, found[0], strict=True))


def test_the_preset_keeps_its_momentum_in_units_of_the_update():
    config = resolve_method({"algorithm": "demo"}, 4).config
    codec = build_codec(config.compression)
    assert config.collective.name == "all-gather"
    assert isinstance(codec, ErrorFeedback) and isinstance(codec.codec, DctTopK)
    assert codec.how == ResidualConfig(unit="update", decay=0.999)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("{sgd: {lr: 0.001, momentum: 0.9}}", "a momentum|and one in the optimizer would add up signs"),
        ("{adam: {lr: 0.001}}", "its own update rule, which belongs to sgd"),
        ("{sgd: {lr: 0.001, flat: true}}", "has its own update rule"),
    ],
)
def test_other_update_rules_are_refused_at_their_line(tmp_path: Path, optimizer: str, words: str) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(f"{BASE}algorithm: demo\noptimizer: {optimizer}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(file)
    assert f"{file.name}:7" in str(caught.value)


@pytest.mark.parametrize(
    ("compression", "words"),
    [
        ("{dct-top-k: {k: 0}}", "k"),
        ("{dct-top-k: {block: 1}}", "block"),
        ("{dct-top-k: {topk: 32}}", "topk"),
        ("[{random-subset: {ratio: 1.5}}, top-k]", "ratio"),
        ("[random-subset, random-k]", "whole gradients"),
    ],
)
def test_options_of_its_codecs_are_checked_at_their_line(tmp_path: Path, compression: str, words: str) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(f"{BASE}algorithm: every-step\ncompression: {compression}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(file)
    assert f"{file.name}:7" in str(caught.value)
