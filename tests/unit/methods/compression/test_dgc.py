from __future__ import annotations

import math

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES
from bwbench.experiment.config import load_experiment
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import build_codec
from bwbench.methods.compression.dgc import Dgc, DgcConfig
from bwbench.training.loop.optimizers import AdamConfig, SgdConfig


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def scalar_dgc(gradients, ratio, momentum, clip_norm=None):
    """Algorithm 1 of the paper with lists of floats: what is sent in each step."""
    n = len(gradients[0])
    u, v, all_sent = [0.0] * n, [0.0] * n, []
    for gradient in gradients:
        g = gradient.tolist()
        norm = math.sqrt(sum(value * value for value in g))
        if clip_norm is not None and norm > clip_norm:
            g = [value * clip_norm / norm for value in g]
        for i in range(n):
            u[i] = momentum * u[i] + g[i]
            v[i] = v[i] + u[i]
        chosen = sorted(range(n), key=lambda i: -abs(v[i]))[: round(ratio * n)]
        all_sent.append([v[i] if i in chosen else 0.0 for i in range(n)])
        for i in chosen:
            u[i] = v[i] = 0.0
    return all_sent


@pytest.mark.parametrize("clip_norm", [None, 10.0])
def test_against_a_scalar_loop(clip_norm):
    codec = Dgc(DgcConfig(ratio=0.1, momentum=0.8, clip_norm=clip_norm))
    gradients = [normal(300, seed) for seed in range(12)]
    for gradient, expected in zip(gradients, scalar_dgc(gradients, 0.1, 0.8, clip_norm), strict=True):
        sent = codec.decode(codec.encode(gradient), 300)
        assert torch.allclose(sent, torch.tensor(expected), atol=1e-4)


def test_everything_sent_is_sgd_with_momentum_of_the_steps_alone():
    codec = Dgc(DgcConfig(ratio=1.0))
    for step in range(3):
        x = normal(50, step)
        assert torch.allclose(codec.decode(codec.encode(x), 50), x), "masking leaves no momentum behind what was sent"


def test_what_is_left_out_is_sent_later_with_the_momentum_that_it_missed():
    codec = Dgc(DgcConfig(ratio=0.5, momentum=0.5))
    codec.encode(torch.tensor([1.0, 4.0]))
    sent = codec.decode(codec.encode(torch.tensor([1.0, 0.0])), 2)
    assert sent.tolist() == [1.0 + 1.5, 0.0]


def test_warm_up_begins_dense():
    codec = Dgc(DgcConfig(ratio=0.001, warmup_steps=4))
    ratios = [codec.ratio_at(step) for step in range(6)]
    assert ratios[0] == 0.25
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[4] == ratios[5] == 0.001
    sizes = [codec.encode(normal(20_000, step)).numel() for step in range(6)]
    assert sizes[:5] == sorted(sizes[:5], reverse=True)
    assert sizes[5] == pytest.approx(codec.payload_bytes(20_000), rel=0.1)


def test_what_an_inner_codec_rounds_away_is_kept():
    codec = build_codec([Component("dgc", DgcConfig(ratio=0.1, momentum=0.0)), Component("fp16")])
    assert isinstance(codec, Dgc)
    total, sent = torch.zeros(1000), torch.zeros(1000)
    for step in range(5):
        total += normal(1000, step)
        codec.decode_add(codec.encode(normal(1000, step)), sent)
    assert torch.allclose(sent + codec.state_dict()["unsent"], total, atol=1e-5)


def test_memory():
    codec = Dgc(DgcConfig(warmup_steps=10))
    first = codec.encode(normal(1000))
    state = codec.state_dict()
    second = codec.encode(normal(1000, 1))
    codec.load_state_dict(state)
    assert torch.equal(codec.encode(normal(1000, 1)), second)
    codec.load_state_dict({})
    assert codec.state_dict() == {}
    assert torch.equal(codec.encode(normal(1000)), first)
    assert torch.equal(codec.fresh().encode(normal(1000)), first)
    with pytest.raises(ValueError, match="1000 accumulated elements do not fit 5"):
        codec.encode(normal(5))


def test_a_mean_on_its_way_back_gets_no_second_momentum():
    answer = Dgc().answering()
    assert answer.options.momentum == 0.0
    assert answer.keeps_residual


def test_refuses_an_optimizer_with_momentum():
    assert Dgc.accepts_optimizer(SgdConfig()) is None
    assert "momentum: 0" in Dgc.accepts_optimizer(SgdConfig(momentum=0.9))
    assert "momentum" in Dgc.accepts_optimizer(AdamConfig())


@pytest.mark.parametrize("collective", ["parameter-server", "scatter-gather"])
def test_what_comes_back_has_one_momentum(collective):
    """A constant gradient, sent whole: with a second momentum on the way back the mean would be more than that."""

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        codec = build_codec([Component("dgc", DgcConfig(ratio=0.5))])
        total = torch.zeros(300)
        for _ in range(40):
            bucket = torch.ones(300)
            ours.average(bucket, codec, round_of(group, 0))
            total += bucket
        return total

    results = run_ranks(2, work)
    assert torch.equal(results[0], results[1])
    alone, total = Dgc(DgcConfig(ratio=0.5)), torch.zeros(300)
    for _ in range(40):
        alone.decode_add(alone.encode(torch.ones(300)), total)
    assert float(results[0].sum()) == pytest.approx(float(total.sum()), rel=0.05)


@pytest.mark.parametrize("optimizer", ["{sgd: {momentum: 0.9}}", "adam"])
def test_an_experiment_with_two_momenta_is_refused_where_the_optimizer_stands(tmp_path, optimizer):
    path = tmp_path / "exp.yaml"
    path.write_text(f"name: x\nnodes: 2\nlink: unshaped\nmodel: mlp\nalgorithm: dgc\noptimizer: {optimizer}\n")
    with pytest.raises(ConfigError, match=r"exp\.yaml:6: .*does not go with compression 'dgc'"):
        load_experiment(path)
