"""QSGD, TernGrad and natural compression: right on average, one of the two allowed values each time, repeatable."""

from __future__ import annotations

import math

import pytest
import torch

from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.stochastic import Natural, Qsgd, QsgdConfig, TernGrad, TernGradConfig
from tests.unit.methods.compression.plain import SIZES, bf16_upwards, blocks_of, normal, roundtrip

REPEATS = 400
VARIANTS = {
    "qsgd": lambda: Qsgd(),
    "qsgd 1": lambda: Qsgd(QsgdConfig(levels=1)),
    "qsgd 3, l2": lambda: Qsgd(QsgdConfig(levels=3, norm="l2")),
    "qsgd 127": lambda: Qsgd(QsgdConfig(levels=127, block=100)),
    "terngrad": lambda: TernGrad(),
    "natural": lambda: Natural(),
}


def qsgd_neighbours(values, levels, norm):
    """The two values that QSGD chooses between, and the probability of the one further from zero."""
    size = bf16_upwards(max(map(abs, values)) if norm == "max" else math.hypot(*values))
    for value in values:
        level = min(levels, abs(value) / size * levels) if size else 0.0
        below = math.floor(level)
        signs = -1.0 if value < 0 else 1.0
        yield signs * below * size / levels, signs * (below + 1) * size / levels, level - below


def natural_neighbours(values):
    for value in values:
        if value == 0:
            yield 0.0, 0.0, 0.0
            continue
        mantissa, exponent = math.frexp(abs(value))
        below = math.copysign(math.ldexp(0.5, exponent), value)
        yield below, 2 * below, 2 * mantissa - 1


def neighbours(codec, x):
    if isinstance(codec, Natural):
        found = list(natural_neighbours(x.tolist()))
    else:
        options = codec.options
        levels, norm = getattr(options, "levels", 1), getattr(options, "norm", "max")
        found = [entry for values in blocks_of(x, options.block) for entry in qsgd_neighbours(values, levels, norm)]
    return torch.tensor(found, dtype=torch.float64).t()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("n", SIZES)
def test_one_of_the_two_values_of_the_definition(name, n):
    x = normal(n)
    x[n // 2] = 0.0
    codec = VARIANTS[name]()
    below, above, _ = neighbours(codec, x)
    out = roundtrip(codec, x).double()
    tolerance = 1e-5 * (above.abs() + 1e-30)
    assert bool((((out - below).abs() <= tolerance) | ((out - above).abs() <= tolerance)).all())
    assert out[n // 2] == 0.0


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_with_the_probability_of_the_definition(name, scale):
    x = normal(2000) * scale
    codec = VARIANTS[name]()
    below, above, probability = neighbours(codec, x)
    out = torch.stack([roundtrip(codec, x).double() for _ in range(REPEATS)])
    share_above = ((out - above).abs() < (out - below).abs()).double().mean(dim=0)
    deviation = (probability * (1 - probability) / REPEATS).sqrt()
    assert (share_above - probability).abs().mean() < 1.1 * deviation.mean()
    assert (share_above - probability).abs().max() < 6 * deviation.max() + 1e-3
    # The error of the mean over all elements as well: they do not err together.
    error = out.mean(dim=0) - x.double()
    assert error.mean().abs() < 5 * error.std() / math.sqrt(len(x))


@pytest.mark.parametrize("name", VARIANTS)
def test_errors_of_elements_calls_and_ranks_are_independent(name):
    x = torch.full((150_000,), 0.3)
    x[::97] = 1.0
    codec, other = VARIANTS[name](), VARIANTS[name]()
    other.prepare([(150_000,)], rank=1)
    errors = [roundtrip(codec, x) - x, roundtrip(codec, x) - x, roundtrip(other, x) - x]
    errors += [torch.roll(errors[0], shift) for shift in (1, 2, 5, 65_536)]
    normalized = torch.stack([(error - error.mean()) / error.std() for error in errors])
    correlation = normalized @ normalized.t() / len(x) - torch.eye(len(errors))
    assert correlation.abs().max() < 0.03


@pytest.mark.parametrize("name", VARIANTS)
def test_state_goes_on_and_other_streams_differ(name):
    x, codec = normal(1000), VARIANTS[name]()
    codec.prepare([(1000,)], rank=2, bucket=3)
    first = codec.encode(x)
    state = codec.state_dict()
    second = codec.encode(x)
    assert not torch.equal(first, second)
    resumed = VARIANTS[name]()
    resumed.prepare([(1000,)], rank=2, bucket=3)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.encode(x), second)
    assert torch.equal(codec.fresh().encode(x), first)
    assert not torch.equal(codec.answering().encode(x), first)
    for rank, bucket in ((1, 3), (2, 2)):
        another = VARIANTS[name]()
        another.prepare([(1000,)], rank=rank, bucket=bucket)
        assert not torch.equal(another.encode(x), first)


@pytest.mark.parametrize("name", VARIANTS)
def test_contract_of_variants(name):
    assert violations(VARIANTS[name]) == []


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_seen(name, value):
    x = normal(10_000)
    x[5000] = value
    out = roundtrip(VARIANTS[name](), x)
    assert not out[5000].isfinite()
    assert out[:4000].isfinite().all()


def test_largest_finite_values_stay_finite():
    x = torch.tensor([3.4e38, -3.4e38, 2e38, 0.0])
    assert roundtrip(Natural(), x).tolist() == [2.0**127, -(2.0**127), 2.0**127, 0.0]


def test_natural_error_is_at_most_an_eighth():
    x = normal(100_000)
    codec = Natural()
    second_moment = sum((roundtrip(codec, x) - x).double().square() for _ in range(20)) / 20
    assert second_moment.sum() < 0.125 * x.double().square().sum()


def test_clipping_takes_off_what_lies_beyond():
    x = normal(512)
    codec = TernGrad(TernGradConfig(clip=2.5))
    limit = bf16_upwards(2.5 * float(x.double().std(correction=0)))
    mean = sum(roundtrip(codec, x) for _ in range(REPEATS)) / REPEATS
    assert x.abs().max() > limit
    assert roundtrip(codec, x).abs().max() == pytest.approx(limit, rel=0.01)
    assert (mean - x.clamp(-limit, limit)).abs().max() < 0.5
    constant = torch.full((512,), 0.25)
    assert torch.equal(roundtrip(codec, constant), constant)


def test_sizes():
    assert Qsgd().payload_bytes(512) == 2 + 256
    assert TernGrad().payload_bytes(5120) == 20 + 1024
    assert Natural().payload_bytes(4096) == 2 + 4096
    assert Qsgd(QsgdConfig(levels=127)).payload_bytes(512) == 2 + 512
