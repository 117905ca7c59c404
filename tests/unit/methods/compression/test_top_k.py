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


@pytest.mark.parametrize(("n", "chunk"), [(10_000, 4096), (8192, 4096), (4095, 4096), (300_000, 100), (10, 1), (0, 7)])
def test_within_chunks_the_ratio_holds_in_each(n, chunk):
    x, codec = normal(n), TopK(TopKConfig(ratio=1 / 64, chunk=chunk))
    parts = x.split(chunk) if n else ()
    expected = [plain_top_k(part, max(1, round(len(part) / 64))) for part in parts]
    payload = codec.encode(x)
    assert torch.equal(codec.decode(payload, n), torch.cat([torch.empty(0), *expected]))
    assert payload.numel() == pytest.approx(codec.payload_bytes(n), rel=0.07)
    assert payload.numel() <= codec.max_payload_bytes(n)


def test_within_chunks_equal_entries_are_cut_and_zeros_never_sent():
    codec = TopK(TopKConfig(ratio=0.1, chunk=100))
    x = torch.cat([torch.ones(100), torch.zeros(100), torch.tensor([3.0, -3.0]).repeat(50), torch.full((7,), 0.5)])
    sent = codec.decode(codec.encode(x), len(x)).nonzero().flatten().tolist()
    assert sent == [*range(10), *range(200, 210), 300]
    x[150] = float("nan")
    assert codec.decode(codec.encode(x), len(x))[150].isnan()


def test_within_chunks_everything_may_be_sent():
    x = normal(1000)
    codec = TopK(TopKConfig(ratio=1.0, chunk=64))
    assert torch.equal(codec.decode(codec.encode(x), 1000), x)


def test_options():
    for wrong in ({"ratio": 0}, {"ratio": 1.1}, {"ratio": -0.1}, {"chunk": 0}):
        with pytest.raises(ValidationError):
            TopKConfig.model_validate(wrong)
