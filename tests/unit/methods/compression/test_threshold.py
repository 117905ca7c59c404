from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression.chain import nest
from bwbench.methods.compression.sparse import Threshold, ThresholdConfig


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def roundtrip(codec, x):
    return codec.decode(codec.encode(x), x.numel())


def test_absolute_threshold_against_the_definition():
    x = normal(10_000)
    sent = roundtrip(Threshold(ThresholdConfig(value=1.5)), x)
    assert torch.equal(sent, torch.where(x.abs() >= 1.5, x, torch.zeros(())))


def test_quantile_sends_its_share_of_the_largest():
    x = normal(10_000)
    sent = roundtrip(Threshold(), x)
    assert int((sent != 0).sum()) == 100
    assert sent[sent != 0].abs().min() >= x[sent == 0].abs().max()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_quantile_does_not_depend_on_the_scale(scale):
    assert Threshold().encode(normal(5_000) * scale).numel() == Threshold().encode(normal(5_000)).numel()


@pytest.mark.parametrize(("names", "share"), [(["threshold"], 1 / 78), (["threshold", "fp16"], 1 / 130)])
def test_one_percent_is_a_sixtieth_of_dense(names, share):
    n = 200_000
    assert share < 1 / 60
    chain = [Component(name, COMPRESSIONS.load(name).Config()) for name in names]
    assert nest(chain).encode(normal(n)).numel() <= share * 4 * n


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9, 0.99, 0.999, 0.9999])
def test_density_and_estimate_at_every_quantile(quantile):
    codec = Threshold(ThresholdConfig(quantile=quantile))
    for n in (1_000, 40_000, 400_000):
        x = normal(n, seed=n)
        payload = codec.encode(x)
        assert payload.numel() == pytest.approx(codec.payload_bytes(n), rel=0.1, abs=30)
        sent = int((codec.decode(payload, n) != 0).sum())
        assert round((1 - quantile) * n) * 0.9 <= sent <= max(1, round((1 - quantile) * n))


@pytest.mark.parametrize("names", [["threshold"], ["threshold", "fp16"]])
def test_dense_where_that_is_smaller(names):
    codec = nest([Component(names[0], ThresholdConfig(value=1e-6)), *(Component(name) for name in names[1:])])
    x = normal(1000)
    payload = codec.encode(x)
    assert payload.numel() == codec.max_payload_bytes(1000) == 16 + (2 if names[1:] else 4) * 1000
    assert torch.allclose(codec.decode(payload, 1000), x, rtol=1e-3)


def test_mostly_zero_gradients_send_only_what_is_not_zero():
    x = torch.zeros(10_000)
    x[5] = 1.0
    assert torch.equal(roundtrip(Threshold(), x), x)
    assert Threshold().encode(x).numel() < 40


def test_nan_is_sent_whatever_the_threshold():
    x = normal(1000)
    x[3] = float("nan")
    assert roundtrip(Threshold(ThresholdConfig(value=100.0)), x)[3].isnan()
    assert roundtrip(Threshold(), torch.full((100,), float("nan"))).isnan().all()


def test_options():
    assert ThresholdConfig().quantile == 0.99
    assert ThresholdConfig(value=0.1).quantile is None
    again = ThresholdConfig.model_validate(ThresholdConfig(value=0.1).model_dump(mode="json"))
    assert again == ThresholdConfig(value=0.1)
    for wrong in ({"value": 0.1, "quantile": 0.9}, {"value": 0}, {"value": -1}, {"quantile": 1.0}, {"values": "fp16"}):
        with pytest.raises(ValidationError):
            ThresholdConfig.model_validate(wrong)


def test_entries_as_large_as_the_quantile_are_all_sent():
    x = torch.ones(1000)
    assert torch.equal(roundtrip(Threshold(), x), x)
