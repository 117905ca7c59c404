"""Residuals in units of the update, and residuals that decay."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import AbstractCodec, ErrorFeedback, build_codec
from bwbench.methods.compression.error_feedback import ResidualConfig
from bwbench.methods.compression.sparse import TopK, TopKConfig

N, STEPS, FALL = 2000, 60, 30
IN_UPDATES = ResidualConfig(unit="update")


def gradient(step: int) -> torch.Tensor:
    """The same direction in every step, with noise."""
    generator = torch.Generator().manual_seed(step)
    return torch.linspace(0.1, 1.0, N) + 0.3 * torch.randn(N, generator=generator)


def rate(step: int) -> float:
    return 1.0 if step < FALL else 0.01


def top_k(ratio: float = 0.01) -> TopK:
    return TopK(TopKConfig(ratio=ratio, exact=True))


def published(ratio: float = 0.01) -> torch.Tensor:
    """Karimireddy et al. 2019, algorithm 2: p = lr g + e, x -= C(p), e = p - C(p); the sum of all C(p)."""
    error, moved = torch.zeros(N), torch.zeros(N)
    for step in range(STEPS):
        p = rate(step) * gradient(step) + error
        sent = torch.zeros(N)
        largest = p.abs().topk(round(ratio * N)).indices
        sent[largest] = p[largest]
        moved += sent
        error = p - sent
    return moved


def moved_by(codec: AbstractCodec) -> torch.Tensor:
    """The sum of all updates of plain SGD with what the codec sends."""
    moved = torch.zeros(N)
    for step in range(STEPS):
        codec.rate = rate(step)
        moved += rate(step) * codec.decode(codec.encode(gradient(step)), N)
    return moved


def test_with_a_falling_rate_the_sum_of_what_was_sent_is_that_of_the_paper():
    expected = published()
    assert torch.allclose(moved_by(ErrorFeedback(top_k(), IN_UPDATES)), expected, rtol=1e-4, atol=1e-5)
    share = float(moved_by(ErrorFeedback(top_k())).sum() / expected.sum())
    assert share < 0.8, "in units of the gradient what waited when the rate fell arrives at the rate of later"


def test_with_one_rate_both_units_are_the_same_bits():
    plain, in_updates = ErrorFeedback(top_k()), ErrorFeedback(top_k(), IN_UPDATES)
    in_updates.rate = 0.05
    for step in range(5):
        assert torch.equal(plain.encode(gradient(step)), in_updates.encode(gradient(step)))


def test_rates_of_their_own_for_parts_of_a_bucket():
    codec = ErrorFeedback(top_k(), IN_UPDATES)
    codec.encode(gradient(0))
    before = codec.residual
    codec.rate = torch.cat([torch.full((N // 2,), 1.0), torch.full((N // 2,), 0.1)])
    decoded = codec.decode(codec.encode(gradient(1)), N)
    expected = gradient(1) + torch.cat([before[: N // 2], 10 * before[N // 2 :]])
    assert torch.allclose(decoded + codec.residual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("idle", [0.0, torch.cat([torch.zeros(N // 2), torch.ones(N // 2)])])
def test_at_a_rate_of_zero_the_residual_waits(idle):
    codec = ErrorFeedback(top_k(), IN_UPDATES)
    codec.encode(gradient(0))
    before = codec.residual
    codec.rate = idle
    codec.encode(gradient(1))
    assert torch.equal(codec.residual[: N // 2], before[: N // 2])
    codec.rate = 0.5
    waited = codec.residual
    decoded = codec.decode(codec.encode(gradient(2)), N)
    expected = (gradient(2) + 2 * waited)[: N // 2]
    assert torch.allclose((decoded + codec.residual)[: N // 2], expected, rtol=1e-5, atol=1e-6)


def test_a_warm_up_that_begins_at_zero_keeps_nothing_of_it():
    codec = ErrorFeedback(top_k(), IN_UPDATES)
    codec.rate = 0.0
    codec.encode(gradient(0))
    codec.rate = 0.1
    decoded = codec.decode(codec.encode(gradient(1)), N)
    assert torch.equal(decoded + codec.residual, gradient(1))


def test_the_rate_that_a_residual_is_in_units_of_is_remembered():
    codec, again = ErrorFeedback(top_k(), IN_UPDATES), ErrorFeedback(top_k(), IN_UPDATES)
    codec.rate = 0.4
    codec.encode(gradient(0))
    again.load_state_dict(codec.state_dict())
    codec.rate = again.rate = 0.1
    assert torch.equal(codec.encode(gradient(1)), again.encode(gradient(1)))
    assert float(again.state_dict()["rate"]) == 0.1
    again.load_state_dict({})
    assert again.state_dict() == {}


def test_a_residual_decays():
    codec, before = ErrorFeedback(top_k(), ResidualConfig(decay=0.95)), torch.zeros(N)
    for step in range(4):
        decoded = codec.decode(codec.encode(gradient(step)), N)
        assert torch.allclose(decoded + codec.residual, gradient(step) + 0.95 * before, rtol=1e-6, atol=1e-6)
        before = codec.residual
    assert codec.fresh().how == codec.answering().how == codec.how


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [
        (True, True),
        (False, False),
        ("update", "update"),
        ({"in": "gradient"}, True),
        ({"in": "update", "decay": 1}, "update"),
        ({"decay": 0.95}, {"in": "gradient", "decay": 0.95}),
        ({"in": "update", "decay": 0.5}, {"in": "update", "decay": 0.5}),
    ],
)
@pytest.mark.parametrize("name", ["top-k", "threshold", "random-k", "powersgd", "sign", "int8", "int4", "int2"])
def test_every_way_of_keeping_a_residual_has_one_spelling(name, spelling, meaning):
    config = COMPRESSIONS.load(name).Config.model_validate({"error_feedback": spelling})
    recorded = config.model_dump(mode="json", by_alias=True)
    assert recorded["error_feedback"] == meaning
    assert type(config).model_validate_json(config.model_dump_json(by_alias=True), strict=True) == config
    assert isinstance(build_codec([Component(name, config)]), ErrorFeedback) == (spelling is not False)
