"""Every registered collective: right mean, bit-equal replicas, and the bytes that it claims."""

from __future__ import annotations

import threading

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.compression import build_codec
from bwbench.network.link import Link
from tests.ranks import round_of, run_ranks

AVERAGING = [name for name in COLLECTIVES.names() if COLLECTIVES.load(name).needs_peers]
EXACT = [name for name in AVERAGING if COLLECTIVES.load(name).exact]
PARTIAL = [name for name in AVERAGING if name not in EXACT]
LOSSLESS = {"none": 1e-6, "fp16": 2e-3, "bf16": 2e-2}  # codecs that keep every value, but for rounding


def goes_with(collective, codec):
    ours, its_class = COLLECTIVES.load(collective)(), COMPRESSIONS.load(codec)
    return ours.accepts(its_class) is None and ours.check(8, [its_class]) is None


PAIRS = [(collective, codec) for collective in EXACT for codec in COMPRESSIONS.names() if goes_with(collective, codec)]
# One codec of each kind: what a test asks there depends on nothing else.
SOME_PAIRS = [pair for pair in PAIRS if pair[1] in ("none", "fp16", "int8", "threshold", "random-k")]
PARTIAL_PAIRS = [(ours, codec) for ours in PARTIAL for codec in COMPRESSIONS.names() if goes_with(ours, codec)]


def make_codec(name, num_elements=0, rank=0, bucket=0):
    codec = build_codec([Component(name, COMPRESSIONS.load(name).Config())])
    side = int(num_elements**0.5)  # a matrix and a vector, for codecs that look at shapes
    codec.prepare([(side, side), (num_elements - side * side,)], rank, bucket)
    return codec


def inputs(num_ranks, num_elements, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_elements, generator=generator) for _ in range(num_ranks)]


def average(collective_name, codec_name, tensors, steps=1, tag=3, options=None):
    """Result, payload bytes and codec of each rank after averaging the same inputs ``steps`` times."""

    def work(group, rank):
        ours = COLLECTIVES.load(collective_name)
        collective = ours(ours.Config(**(options or {})))
        collective.connect(group)
        codec = make_codec(codec_name, tensors[rank].numel(), rank, tag)
        for _ in range(steps):
            bucket = tensors[rank].clone()
            collective.average(bucket, codec, round_of(group, tag))
        return bucket, collective.meter.take().payload_bytes, codec

    return run_ranks(len(tensors), work)


def averages(collective_name, codec_name, cases, tag=3):
    """Results of each rank for several sets of inputs, each with a collective and a codec of its own."""

    def work(group, rank):
        results = []
        for tensors in cases:
            collective = COLLECTIVES.load(collective_name)()
            collective.connect(group)
            results.append(tensors[rank].clone())
            collective.average(
                results[-1], make_codec(codec_name, tensors[rank].numel(), rank, tag), round_of(group, tag)
            )
        return results

    return run_ranks(len(cases[0]), work)


def sent_values(codec_name, x):
    """What the others see of ``x``: the plainest version of encoding and decoding it once."""
    codec = make_codec(codec_name, x.numel())
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
    assert first.isfinite().all()
    if codec in LOSSLESS:
        expected = torch.stack(tensors).double().mean(0)
        assert (first - expected).abs().max() < LOSSLESS[codec] * (1 if codec == "none" else num_ranks**0.5)
    assert_bytes(collective, codec, results)


def assert_bytes(collective, codec, results):
    num_ranks, made = len(results), make_codec(codec, 10_007)
    estimate = COLLECTIVES.load(collective)().traffic(num_ranks, made.payloads(10_007))
    exact = made.linear or made.sums_on_ring  # else its size may depend on where the entries lie
    # What a codec puts before each message is told for the bucket, not for the parts that some collectives cut; and
    # chunks are of whole elements.
    headers = (8 if exact else 24 * 4) * num_ranks * len(made.payloads(10_007))
    for rank, (_, payload_bytes, _) in enumerate(results):
        expected = estimate.payload_bytes_per_rank[rank]
        assert abs(payload_bytes - expected) <= (2e-3 if exact else 0.15) * expected + headers


@pytest.mark.parametrize(("collective", "codec"), [*PAIRS, *PARTIAL_PAIRS])
def test_runs_are_bit_equal(collective, codec):
    for first, second in averages(collective, codec, [inputs(4, 5_000)] * 2):
        assert torch.equal(first, second)


@pytest.mark.parametrize(("collective", "codec"), PAIRS)
def test_fewer_elements_than_ranks_zeros_and_nan(collective, codec):
    few = [inputs(5, num_elements) for num_elements in (0, 1, 2, 7)]
    poisoned = inputs(5, 1000)
    poisoned[1][500] = float("nan")
    cases = [*few, [torch.zeros(1000)] * 5, poisoned]
    ranks = averages(collective, codec, cases)
    for tensors, *results in zip(few, *ranks, strict=False):
        assert all(torch.equal(result, results[0]) for result in results)
        if codec == "none" and tensors[0].numel():
            assert torch.allclose(results[0], torch.stack(tensors).mean(0), atol=1e-6)
    for *_, zeros, result in ranks:
        assert not zeros.any()
        assert not result.isfinite().all(), "a NaN of one rank must reach all"


@pytest.mark.parametrize(("collective", "codec"), SOME_PAIRS)
def test_other_layouts_and_types_go_through_a_copy(collective, codec):
    base = [x.half().view(30, 20).t() for x in inputs(2, 600)]
    cases = [[x.float().reshape(-1) for x in base], [x.float() for x in base], base]
    reference, strided, half = averages(collective, codec, cases)[0]
    assert torch.equal(strided.reshape(-1), reference)
    assert half.dtype == torch.float16
    assert torch.equal(half.reshape(-1), reference.half())


COMPRESSING_TWICE = ["parameter-server", "scatter-gather"]  # the way back is compressed as well


@pytest.mark.parametrize("collective", ["all-gather", *COMPRESSING_TWICE])
def test_threshold_against_the_plain_definition(collective):
    tensors = inputs(4, 8_000)
    result = average(collective, "threshold", tensors)[0][0]
    parts = [slice(i, i + 2000) for i in range(0, 8000, 2000)] if collective == "scatter-gather" else [slice(0, 8000)]
    for part in parts:
        mean = torch.stack([sent_values("threshold", x[part]) for x in tensors]).mean(0)
        if collective in COMPRESSING_TWICE:
            mean = sent_values("threshold", mean)
        assert torch.allclose(result[part], mean, atol=1e-7)


def min_max_uint8(x):
    """What the others see of ``x`` in ByteGrad, as Bagua defines it, with a range relative to the values."""
    scale = 255 / (x.max() - x.min() + 1e-7 * x.abs().max())
    upper = (x.max() * scale).round()
    lower = upper - 255
    codes = torch.minimum((x * scale).round(), upper) - lower
    return (codes + lower) / scale


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_bytegrad_against_the_plain_definition(num_ranks):
    tensors = inputs(num_ranks, 4_000)
    result = average("scatter-gather", "int8", tensors)[0][0]
    for chunk in range(num_ranks):
        part = slice(4_000 * chunk // num_ranks, 4_000 * (chunk + 1) // num_ranks)
        mean = torch.stack([min_max_uint8(x[part]) for x in tensors]).mean(0)
        step = (mean.max() - mean.min()) / 255
        difference = (result[part] - min_max_uint8(mean)).abs()
        assert difference.mean() < 0.05 * step, "the same grid, but for rounding"
        assert difference.max() < 1.5 * step, "a value on an edge may fall to the next step"


@pytest.mark.parametrize("interrupted", [False, True], ids=["in one go", "from a checkpoint"])
@pytest.mark.parametrize("collective", ["all-gather", *COMPRESSING_TWICE])
def test_error_feedback_loses_nothing_over_many_steps(collective, interrupted):
    steps, size, length = 40, 3, 2_000
    tensors = inputs(size, length)

    def work(group, rank):
        ours, codec = COLLECTIVES.load(collective)(), make_codec("threshold", length)
        ours.connect(group)
        applied = torch.zeros(length)
        for step in range(steps):
            if interrupted and step == 7:  # nothing but the state dicts goes over
                memory, own = ours.state_dict(), codec.state_dict()
                ours, codec = COLLECTIVES.load(collective)(), make_codec("threshold", length)
                ours.connect(group)
                ours.load_state_dict(memory)
                codec.load_state_dict(own)
                assert ours.state_dict().keys() == memory.keys()
            bucket = tensors[rank].clone()
            ours.average(bucket, codec, round_of(group, 0))
            applied += bucket
        return applied, codec.residual, ours.state_dict()

    results = run_ranks(size, work)
    kept_back = torch.zeros(length)
    for rank, (_, residual, memory) in enumerate(results):
        if residual is not None:
            kept_back += residual / size
        begins = [length * i // size for i in range(size + 1)]
        for key, values in memory.items():
            part = key.split(".")[1]
            if part == "answer":  # the server's of its way back: of the mean itself
                kept_back += values
            elif int(part) == size:  # the same of a chunk's owner
                kept_back[begins[rank] : begins[rank + 1]] += values
            else:
                kept_back[begins[int(part)] : begins[int(part) + 1]] += values / size
    expected = steps * torch.stack(tensors).mean(0)
    assert torch.allclose(results[0][0] + kept_back, expected, atol=1e-3)


@pytest.mark.parametrize("collective", COMPRESSING_TWICE)
def test_reset_forgets_residuals_of_the_way_back(collective):
    tensors = inputs(3, 3_000)

    def work(group, rank):
        ours, codec = COLLECTIVES.load(collective)(), make_codec("threshold", 3_000)
        ours.connect(group)
        results = []
        for _ in range(2):
            results.append(tensors[rank].clone())
            ours.average(results[-1], codec, round_of(group, 0))
            ours.reset()
            codec.load_state_dict({})
            assert ours.state_dict() == {}
        return results

    for first, second in run_ranks(3, work):
        assert torch.equal(first, second)


@pytest.mark.parametrize(("collective", "codec"), [pair for pair in SOME_PAIRS if pair[0] != "torch"])
def test_concurrent_buckets_keep_apart(collective, codec):
    sizes = [3_000, 70_000, 11, 20_000]
    buckets = [inputs(3, size, seed) for seed, size in enumerate(sizes)]
    alone = [average(collective, codec, tensors, tag=tag)[0][0] for tag, tensors in enumerate(buckets)]

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        mine = [tensors[rank].clone() for tensors in buckets]
        order = list(range(len(sizes))) if rank != 1 else list(reversed(range(len(sizes))))
        threads = [
            threading.Thread(
                target=ours.average,
                args=(mine[i], make_codec(codec, sizes[i], rank, i), round_of(group, i)),
                daemon=True,
            )
            for i in order
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return mine

    for mine in run_ranks(3, work):
        for result, expected in zip(mine, alone, strict=True):
            assert torch.equal(result, expected)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
@pytest.mark.parametrize("num_elements", [1, 4, 6_144, 6_145, 200_003])
@pytest.mark.parametrize("codec", ["none", "fp16"])
@pytest.mark.parametrize("name", ["ring", "scatter-gather"])
def test_the_same_bits_on_every_link(name, codec, num_elements, num_ranks):
    tensors = inputs(num_ranks, num_elements)

    def work(group, rank):
        buckets = []
        for link in (None, Link(bandwidth="10 Mbit/s", latency="2 ms"), Link(bandwidth="1 Gbit/s", latency="1 ms")):
            collective = COLLECTIVES.load(name)()
            collective.connect(group, link)
            buckets.append(tensors[rank].clone())
            collective.average(buckets[-1], make_codec(codec), round_of(group, 0))
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
            collective.average(torch.ones(1000), make_codec("none"), round_of(group, 0))
        return None

    run_ranks(3, work, timeout_s=60, may_leave=True)


def test_refusals_say_why():
    threshold, none = COMPRESSIONS.load("threshold"), COMPRESSIONS.load("none")
    assert "all-gather" in COLLECTIVES.load("ring").accepts(threshold)
    assert "collective: ring" in COLLECTIVES.load("torch").accepts(threshold)
    assert "nothing" in COLLECTIVES.load("none").accepts(threshold)
    assert all(COLLECTIVES.load(name).accepts(none) is None for name in COLLECTIVES.names())
