from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.compression.threshold import Threshold, ThresholdConfig, _decode_gaps, _encode_gaps


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def roundtrip(codec, x):
    return codec.decode(codec.encode(x), x.numel())


@given(st.lists(st.integers(0, 200_000), unique=True))
@settings(max_examples=200, deadline=None)
def test_gaps_come_back(indices):
    indices = np.array(sorted(indices), np.int64)
    stream, _ = _encode_gaps(indices)
    assert np.array_equal(_decode_gaps(stream), indices)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 65534, 65535, 65536])
def test_gaps_around_the_escapes(gap):
    indices = np.cumsum(np.full(5, gap + 1, np.int64)) - 1
    assert np.array_equal(_decode_gaps(_encode_gaps(indices)[0]), indices)


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


@pytest.mark.parametrize(("values", "share"), [("fp32", 1 / 75), ("fp16", 1 / 120)])
def test_one_percent_is_a_sixtieth_of_dense(values, share):
    n = 200_000
    assert share < 1 / 60
    assert Threshold(ThresholdConfig(values=values)).encode(normal(n)).numel() <= share * 4 * n


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99, 0.999, 0.9999])
def test_estimate_at_every_density(quantile):
    codec = Threshold(ThresholdConfig(quantile=quantile))
    assert codec.encode(normal(400_000)).numel() == pytest.approx(codec.payload_bytes(400_000), rel=0.05)


@pytest.mark.parametrize("values", ["fp32", "fp16"])
def test_dense_where_that_is_smaller(values):
    codec = Threshold(ThresholdConfig(value=1e-6, values=values))
    x = normal(1000)
    payload = codec.encode(x)
    assert payload.numel() == codec.max_payload_bytes(1000) == 8 + (4 if values == "fp32" else 2) * 1000
    assert torch.allclose(codec.decode(payload, 1000), x, rtol=1e-3)


def test_mostly_zero_gradients_send_only_what_is_not_zero():
    x = torch.zeros(10_000)
    x[5] = 1.0
    assert torch.equal(roundtrip(Threshold(), x), x)
    assert Threshold().encode(x).numel() < 20


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
    for wrong in ({"value": 0.1, "quantile": 0.9}, {"value": 0}, {"value": -1}, {"quantile": 1.0}, {"values": "int8"}):
        with pytest.raises(ValidationError):
            ThresholdConfig.model_validate(wrong)
