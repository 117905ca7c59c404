"""Every registered collective keeps the contract: right mean, bit-equal replicas, and the bytes that it claims."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.collectives.collective_contract import CODECS, accepts, inputs, make_codec, violations
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.collectives.scatter_gather import AllGather
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link

AVERAGING = [name for name in COLLECTIVES.names() if COLLECTIVES.load(name).needs_peers]
EXACT = [name for name in AVERAGING if COLLECTIVES.load(name).exact]
PARTIAL = [name for name in AVERAGING if name not in EXACT]


def goes_with(collective, codec):
    return accepts(COLLECTIVES.load(collective), codec)


PAIRS = [(collective, codec) for collective in EXACT for codec in COMPRESSIONS.names() if goes_with(collective, codec)]
# One codec of each kind: what a test asks there depends on nothing else.
SOME_PAIRS = [pair for pair in PAIRS if pair[1] in CODECS]
PARTIAL_PAIRS = [(ours, codec) for ours in PARTIAL for codec in COMPRESSIONS.names() if goes_with(ours, codec)]


def average(collective_name, codec_name, tensors, steps=1, tag=3, options=None, link=None):
    """Result, payload bytes and codec of each rank after averaging the same inputs ``steps`` times."""

    def work(group, rank):
        ours = COLLECTIVES.load(collective_name)
        collective = ours(ours.Config(**(options or {})))
        collective.connect(group, link)
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


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("collective", "codec"), [*PAIRS, *PARTIAL_PAIRS])
def test_collective_keeps_the_contract(collective, codec, num_ranks):
    assert violations(COLLECTIVES.load(collective), codec, [num_ranks]) == []


class FirstComes(AllGather):
    """Wrong: nobody waits for the others, and half of the bytes are not told."""

    def traffic(self, num_nodes, bucket_payload_bytes):
        half = sum(bucket_payload_bytes) * (num_nodes - 1) / 2
        return Traffic((half,) * num_nodes, (half,) * num_nodes, 1)

    def _average(self, bucket, codec, round_):
        own = bucket.clone()
        super()._average(bucket, codec, round_)
        bucket.lerp_(own, 0.5)


def test_the_contract_finds_what_is_wrong():
    text = "\n".join(violations(FirstComes, sizes=[2]))
    assert "ranks end with different bits" in text
    assert "is not the mean" in text
    assert "traffic claims" in text
    assert "accepts" in violations(COLLECTIVES.load("ring"), "threshold")[0]


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
