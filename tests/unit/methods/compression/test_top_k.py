from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.methods.compression import build_codec
from bwbench.methods.compression.sparse import TopK, TopKConfig


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def plain_top_k(x, count):
    """The definition: everything but the ``count`` largest set to zero."""
    kept = torch.zeros_like(x)
    places = x.abs().topk(count).indices
    kept[places] = x[places]
    return kept


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("n", "ratio", "count"), [(10_000, 0.01, 100), (50_000, 0.002, 100), (7, 0.01, 1), (5, 1.0, 5)]
)
def test_against_the_definition(n, ratio, count, exact):
    x, codec = normal(n), TopK(TopKConfig(ratio=ratio, exact=exact))
    assert torch.equal(codec.decode(codec.encode(x), n), plain_top_k(x, count))


def test_error_feedback_against_a_plain_loop():
    codec = build_codec([Component("top-k", TopKConfig(ratio=0.05, exact=True))])
    memory = torch.zeros(4_000)
    for step in range(8):
        x = normal(4_000, step)
        memory += x
        expected = plain_top_k(memory, 200)
        memory -= expected
        assert torch.equal(codec.decode(codec.encode(x), 4_000), expected)


def test_equal_entries_at_the_edge_are_cut():
    codec = TopK(TopKConfig(ratio=0.1))
    x = torch.ones(1000)
    x[500] = -2.0
    sent = codec.decode(codec.encode(x), 1000)
    assert int((sent != 0).sum()) == 100
    assert sent[500] == -2.0


def test_estimate_and_size():
    for ratio in (0.0005, 0.01, 0.1, 0.7, 1.0):
        codec = TopK(TopKConfig(ratio=ratio))
        size = codec.encode(normal(300_000)).numel()
        assert size == pytest.approx(codec.payload_bytes(300_000), rel=0.02)
        assert size <= codec.max_payload_bytes(300_000)
    assert TopK().encode(normal(300_000)).numel() < 4 * 300_000 / 78


def test_options():
    for wrong in ({"ratio": 0}, {"ratio": 1.1}, {"ratio": -0.1}):
        with pytest.raises(ValidationError):
            TopKConfig.model_validate(wrong)
