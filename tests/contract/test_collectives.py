"""Every registered collective: right mean, bit-equal replicas, and the bytes that it claims."""

from __future__ import annotations

import threading

import pytest
import torch

from bwbench.compression import build_codec
from bwbench.config.component import Component
from bwbench.network.link import Link
from bwbench.registry import COLLECTIVES, COMPRESSIONS
from tests.ranks import run_ranks

pytestmark = pytest.mark.timeout(60)
AVERAGING = [name for name in COLLECTIVES.names() if COLLECTIVES.load(name).needs_peers]
PAIRS = [
    (collective, codec)
    for collective in AVERAGING
    for codec in COMPRESSIONS.names()
    if COLLECTIVES.load(collective).accepts(COMPRESSIONS.load(codec)) is None
]


def make_codec(name):
    return build_codec([Component(name, COMPRESSIONS.load(name).Config())])


def inputs(num_ranks, num_elements, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_elements, generator=generator) for _ in range(num_ranks)]


def average(collective_name, codec_name, tensors, steps=1):
    """Result, payload bytes and codec of each rank after averaging the same inputs ``steps`` times."""

    def work(group, rank):
        collective = COLLECTIVES.load(collective_name)()
        collective.connect(group)
        codec = make_codec(codec_name)
        for _ in range(steps):
            bucket = tensors[rank].clone()
            collective.average(bucket, codec, tag=3)
        return bucket, collective.meter.take().payload_bytes, codec

    return run_ranks(len(tensors), work)


def sent_values(codec_name, x):
    """What the others see of ``x``: the plainest version of encoding and decoding it once."""
    codec = make_codec(codec_name)
    return codec.decode(codec.encode(x), x.numel()).clone()


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_mean_agreement_and_bytes(collective, codec, num_ranks):
    tensors = inputs(num_ranks, 10_007)
    results = average(collective, codec, tensors)
    first = results[0][0]
    for result, _, _ in results:
        assert torch.equal(result, first), "replicas differ"
    if num_ranks == 1:
        assert torch.equal(first, tensors[0])
        assert results[0][1] == 0
        return
    if codec in ("none", "fp16"):
        expected = torch.stack(tensors).double().mean(0)
        tolerance = 1e-6 if codec == "none" else 2e-3 * num_ranks**0.5
        assert (first - expected).abs().max() < tolerance
    estimate = COLLECTIVES.load(collective)().traffic(num_ranks, [make_codec(codec).payload_bytes(10_007)])
    for rank, (_, payload_bytes, _) in enumerate(results):
        exact = codec != "threshold"  # its size depends on where the entries lie
        assert payload_bytes == pytest.approx(estimate.payload_bytes_per_rank[rank], rel=2e-3 if exact else 0.1)


@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_runs_are_bit_equal(collective, codec):
    tensors = inputs(3, 5_000)
    first = average(collective, codec, tensors, steps=2)
    second = average(collective, codec, tensors, steps=2)
    assert torch.equal(first[0][0], second[0][0])


@pytest.mark.parametrize("num_elements", [0, 1, 2, 7])
@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_fewer_elements_than_ranks(collective, codec, num_elements):
    tensors = inputs(5, num_elements)
    results = average(collective, codec, tensors)
    assert all(torch.equal(result, results[0][0]) for result, _, _ in results)
    if codec == "none" and num_elements:
        assert torch.allclose(results[0][0], torch.stack(tensors).mean(0), atol=1e-6)


@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_special_values(collective, codec):
    zeros = average(collective, codec, [torch.zeros(1000)] * 3)
    assert not zeros[0][0].any()
    poisoned = inputs(3, 1000)
    poisoned[1][500] = float("nan")
    for result, _, _ in average(collective, codec, poisoned):
        assert result[500].isnan(), "a NaN of one rank must reach all"


@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_other_layouts_and_types_go_through_a_copy(collective, codec):
    base = inputs(2, 600)
    reference = average(collective, codec, [x.view(30, 20).t().reshape(-1).half().float() for x in base])
    strided = average(collective, codec, [x.view(30, 20).t() for x in [b.half().float() for b in base]])
    half = average(collective, codec, [x.view(30, 20).t().half() for x in base])
    assert torch.equal(strided[0][0].reshape(-1), reference[0][0])
    assert half[0][0].dtype == torch.float16
    assert torch.equal(half[0][0].reshape(-1), reference[0][0].half())


@pytest.mark.parametrize("collective", ["all-gather", "parameter-server"])
def test_threshold_against_the_plain_definition(collective):
    tensors = inputs(4, 8_000)
    result = average(collective, "threshold", tensors)[0][0]
    mean = torch.stack([sent_values("threshold", x) for x in tensors]).mean(0)
    if collective == "parameter-server":  # the way back is compressed as well
        mean = sent_values("threshold", mean)
    assert torch.allclose(result, mean, atol=1e-7)


@pytest.mark.parametrize("collective", ["all-gather", "parameter-server"])
def test_error_feedback_loses_nothing_over_many_steps(collective):
    steps = 40
    tensors = inputs(3, 2_000)

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        codec = make_codec("threshold")
        applied = torch.zeros(2_000)
        for _ in range(steps):
            bucket = tensors[rank].clone()
            ours.average(bucket, codec, tag=0)
            applied += bucket
        return applied, codec.residual, (ours._answers[0].residual if rank == 0 and hasattr(ours, "_answers") else None)

    results = run_ranks(3, work)
    kept_back = torch.stack([residual for _, residual, _ in results]).mean(0)
    if results[0][2] is not None:
        kept_back += results[0][2]
    expected = steps * torch.stack(tensors).mean(0)
    assert torch.allclose(results[0][0] + kept_back, expected, atol=1e-3)


@pytest.mark.parametrize(("collective", "codec"), [pair for pair in PAIRS if pair[0] != "torch"])
def test_concurrent_buckets_keep_apart(collective, codec):
    sizes = [3_000, 70_000, 11, 20_000]
    buckets = [inputs(3, size, seed) for seed, size in enumerate(sizes)]
    alone = [average(collective, codec, tensors)[0][0] for tensors in buckets]

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        mine = [tensors[rank].clone() for tensors in buckets]
        order = list(range(len(sizes))) if rank != 1 else list(reversed(range(len(sizes))))
        threads = [
            threading.Thread(target=ours.average, args=(mine[i], make_codec(codec), i), daemon=True) for i in order
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return mine

    for mine in run_ranks(3, work):
        for result, expected in zip(mine, alone, strict=True):
            assert torch.equal(result, expected)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
@pytest.mark.parametrize("num_elements", [1, 4, 50_001, 200_003])
@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_a_ring_gives_the_same_bits_on_every_link(codec, num_elements, num_ranks):
    tensors = inputs(num_ranks, num_elements)

    def work(group, rank):
        buckets = []
        for link in (None, Link(bandwidth="10 Mbit/s", latency="2 ms"), Link(bandwidth="1 Gbit/s", latency="1 ms")):
            collective = COLLECTIVES.load("ring")()
            collective.connect(group, link)
            buckets.append(tensors[rank].clone())
            collective.average(buckets[-1], make_codec(codec), tag=0)
        return buckets

    results = run_ranks(num_ranks, work)
    for buckets in results:
        assert all(torch.equal(bucket, results[0][0]) for bucket in buckets)


def test_a_lost_peer_is_an_error_and_not_a_hang():
    def work(group, rank):
        if rank == 2:
            return None  # its group goes away
        collective = COLLECTIVES.load("ring")()
        collective.connect(group)
        with pytest.raises(RuntimeError):
            collective.average(torch.ones(1000), make_codec("none"), tag=0)
        return None

    run_ranks(3, work, timeout_s=5)


def test_refusals_say_why():
    threshold, none = COMPRESSIONS.load("threshold"), COMPRESSIONS.load("none")
    assert "use all-gather" in COLLECTIVES.load("ring").accepts(threshold)
    assert "fp32" in COLLECTIVES.load("torch").accepts(threshold)
    assert "nothing" in COLLECTIVES.load("none").accepts(threshold)
    assert all(COLLECTIVES.load(name).accepts(none) is None for name in COLLECTIVES.names())
