from __future__ import annotations

import pytest
import torch

from bwbench.methods.compression import ErrorFeedback
from bwbench.methods.compression.sparse import Threshold, ThresholdConfig


def normal(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def test_identity_is_exact_where_values_are_sent_unchanged():
    codec = ErrorFeedback(Threshold())
    before = torch.zeros(3000)
    for step in range(5):
        x = normal(3000, step)
        decoded = codec.decode(codec.encode(x), 3000)
        assert torch.equal(decoded + codec.residual, before + x)
        assert not (decoded * codec.residual).any(), "an entry is either sent or kept"
        before = codec.residual.clone()


def test_small_entries_add_up_until_they_are_sent():
    codec = ErrorFeedback(Threshold(ThresholdConfig(value=1.0)))
    x = torch.tensor([0.3, 0.0])
    sent = [codec.decode(codec.encode(x), 2)[0].item() for _ in range(4)]
    assert sent[:3] == [0.0, 0.0, 0.0]
    assert sent[3] == pytest.approx(1.2)


def test_state_comes_back_and_is_a_copy():
    codec = ErrorFeedback(Threshold())
    codec.encode(normal(100, 0))
    state = codec.state_dict()
    expected = codec.encode(normal(100, 1)).clone()
    codec.load_state_dict(state)
    assert torch.equal(codec.encode(normal(100, 1)), expected)
    codec.load_state_dict({})
    assert codec.state_dict() == {}
    assert codec.fresh().residual is None


def test_one_residual_serves_one_length():
    codec = ErrorFeedback(Threshold())
    codec.encode(normal(100, 0))
    with pytest.raises(ValueError, match="100 elements does not fit 50"):
        codec.encode(normal(50, 0))
