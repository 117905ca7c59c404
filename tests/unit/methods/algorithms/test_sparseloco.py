"""The preset ``sparseloco`` beside the algorithm of its paper, written down from there."""

from __future__ import annotations

import torch

from bwbench.base.component import Component
from bwbench.base.registry import ALGORITHMS, COMPRESSIONS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.sign import Int2

N, CHUNK, K, BETA, RANKS, ROUNDS = 10_000, 4096, 64, 0.95, 3, 6


def delta(rank: int, step: int) -> torch.Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(100 * rank + step))


def largest_of_each_chunk(x: torch.Tensor) -> torch.Tensor:
    """Where the K largest of each chunk are; of the last one, which is shorter, as large a share."""
    found = torch.zeros(N, dtype=torch.bool)
    for begin in range(0, N, CHUNK):
        part = x[begin : begin + CHUNK]
        count = max(1, round(len(part) * K / CHUNK))
        found[begin + part.abs().topk(count).indices] = True
    return found


def test_what_a_replica_sends_and_keeps_is_that_of_the_paper():
    """e <- beta e + delta; q = quantised top-k of e; e <- e - q."""
    chain = resolve_method({"algorithm": "sparseloco"}, RANKS).config.compression
    codecs = [build_codec(chain) for _ in range(RANKS)]
    errors = [torch.zeros(N) for _ in range(RANKS)]
    quantiser = Int2()
    for step in range(ROUNDS):
        for rank, codec in enumerate(codecs):
            error = BETA * errors[rank] + delta(rank, step)
            where = largest_of_each_chunk(error)
            payload = quantiser.encode(error[where])
            sent = torch.zeros(N)
            sent[where] = quantiser.decode(payload, int(where.sum()))
            errors[rank] = error - sent
            assert torch.allclose(codec.decode(codec.encode(delta(rank, step)), N), sent, atol=1e-5)
            assert isinstance(codec, ErrorFeedback)
            assert torch.allclose(codec.residual, errors[rank], atol=1e-5)


def test_the_outer_step_takes_the_mean_every_thirty_steps():
    config = resolve_method({"algorithm": "sparseloco"}, RANKS).config
    outer = config.algorithm.build(ALGORITHMS).outer_step
    assert (config.algorithm.options.period, outer.lr, outer.momentum) == (30, 1.0, 0.0)
    assert config.collective.name == "all-gather"


def test_what_the_preset_was_before_has_a_name_of_its_own():
    config = resolve_method({"algorithm": "sparse-diloco"}, RANKS).config
    top_k = COMPRESSIONS.load("top-k").Config(ratio=0.03)
    assert config.compression[0] == Component("top-k", top_k)
    assert PRESETS["sparse-diloco"].options == PRESETS["sparseloco"].options
