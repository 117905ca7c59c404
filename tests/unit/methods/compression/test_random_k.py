from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.random_k import RandomK, RandomKConfig, places


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 97, 1000, 65_536])
def test_places_are_different_ones(n):
    for step in range(20):
        for count in {1, min(n, 3), n}:
            found = places(0, step, n, count)
            assert len(set(found.tolist())) == count
            assert found.min() >= 0
            assert found.max() < n


def test_every_place_has_the_same_chance():
    hits = np.zeros(60)
    for step in range(4_000):
        hits[places(1, step, 60, 6)] += 1
    assert abs(hits / 4_000 - 0.1).max() < 5 * (0.09 / 4_000) ** 0.5


def test_buckets_and_steps_draw_apart():
    draws = {tuple(places(bucket, step, 1000, 10)) for bucket in range(3) for step in range(3)}
    assert len(draws) == 9


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_along_a_ring_against_a_plain_loop(num_ranks):
    """With error feedback, over several steps: the mean of all memories at the shared places."""
    n, steps, ratio = 3_001, 6, 0.05
    inputs = [[normal(n, 10 * step + rank) for rank in range(num_ranks)] for step in range(steps)]

    def work(group, rank):
        ring = COLLECTIVES.load("ring")()
        ring.connect(group)
        codec = build_codec([Component("random-k", RandomKConfig(ratio=ratio))])
        codec.prepare([(n,)], rank, bucket=4)
        means = []
        for step in range(steps):
            bucket = inputs[step][rank].clone()
            ring.average(bucket, codec, round_of(group, 0))
            means.append(bucket)
        return means, codec.residual, ring.meter.take().payload_bytes

    results = run_ranks(num_ranks, work)
    memories = torch.zeros(num_ranks, n)
    for step in range(steps):
        where = torch.from_numpy(places(4, step, n, round(ratio * n)))
        memories += torch.stack(inputs[step])
        expected = torch.zeros(n)
        expected[where] = memories[:, where].mean(0)
        memories[:, where] = 0.0
        for means, _, _ in results:
            assert torch.allclose(means[step], expected, atol=1e-6)
            assert torch.equal(means[step], results[0][0][step])
    for rank, (_, residual, payload_bytes) in enumerate(results):
        assert torch.allclose(residual, memories[rank], atol=1e-6)
        assert payload_bytes == pytest.approx(steps * 2 * (num_ranks - 1) / num_ranks * 4 * 150, rel=0.02)


def test_unbiased_is_right_on_average():
    codec = build_codec([Component("random-k", RandomKConfig(ratio=0.25, unbiased=True))])
    assert isinstance(codec, RandomK)
    x = normal(40)
    mean = torch.stack([codec.decode(codec.encode(x), 40) for _ in range(4_000)]).mean(0)
    assert (mean - x).abs().max() < 5 * (3 * x.abs().max() ** 2 / 4_000) ** 0.5


def test_memory_is_the_step():
    codec = RandomK(RandomKConfig(ratio=0.1))
    x = normal(1000)
    first, state = codec.encode(x), codec.state_dict()
    second = codec.encode(x)
    assert not torch.equal(first, second)
    codec.load_state_dict(state)
    assert torch.equal(codec.encode(x), second)
    codec.load_state_dict({})
    assert torch.equal(codec.encode(x), first)
    assert torch.equal(codec.fresh().encode(x), first)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_has_diverged_is_seen_wherever_it_is(value):
    x = normal(1000)
    for place in range(0, 1000, 100):
        y = x.clone()
        y[place] = value
        codec = RandomK()
        assert codec.decode(codec.encode(y), 1000).isnan().all()


def test_options():
    assert RandomKConfig().error_feedback
    assert not RandomKConfig.model_validate({"unbiased": True}).error_feedback
    again = RandomKConfig.model_validate(RandomKConfig(unbiased=True).model_dump(mode="json"))
    assert again == RandomKConfig(unbiased=True)
    with pytest.raises(ValidationError, match="once more"):
        RandomKConfig.model_validate({"unbiased": True, "error_feedback": True})
    assert isinstance(build_codec([Component("random-k", RandomKConfig())]), ErrorFeedback)
