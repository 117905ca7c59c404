from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives.collective_contract import inputs, make_codec
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.collectives.transport import (
    LARGEST_SEGMENT_BYTES,
    USUAL,
    Cutting,
    cut,
    cutting_for,
    in_flight_bytes,
    ring_groups,
    split,
)
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.fp16 import Fp16
from bwbench.network.link import UNSHAPED, Link


@given(st.integers(0, 10**7), st.integers(1, 50))
def test_split_covers_everything_once(length, count):
    spans = split(0, length, count)
    assert len(spans) == count
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))


@given(st.integers(0, 10**8))
def test_segments_are_neither_many_nor_large(num_bytes):
    count = USUAL.count(num_bytes)
    assert count == 1 or num_bytes / count >= 4096
    assert num_bytes / count <= LARGEST_SEGMENT_BYTES


@given(
    st.integers(0, 300_000),
    st.integers(2, 9),
    st.sampled_from([16_384.0, 66_000.0, float("inf")]),
    st.sampled_from([NoCompression(), Fp16()]),
)
def test_groups_cover_everything_once_and_keep_the_chunk(num_elements, num_ranks, most_bytes, codec):
    groups = ring_groups(num_elements, num_ranks, codec, most_bytes)
    chunks = split(0, num_elements, num_ranks)
    covered = []
    for group in groups:
        assert len(group) == num_ranks
        for (begin, end), segments in zip(chunks, group, strict=True):
            assert all(begin <= a < b <= end for a, b in segments)
            assert sum(codec.payload_bytes(b - a) for a, b in segments) <= most_bytes + 4
            covered += segments
    assert sum(b - a for a, b in covered) == num_elements
    assert len(set(covered)) == len(covered)


@pytest.mark.parametrize(
    "link, largest_bytes",
    [
        (None, 4 << 20),
        (UNSHAPED, 4 << 20),
        (Link(bandwidth="10 Mbit/s"), 256 << 10),
        (Link(bandwidth="100 Mbit/s"), 256 << 10),
        (Link(bandwidth="1 Gbit/s"), 2_500_000),
        (Link(bandwidth="10 Gbit/s"), 4 << 20),
        (Link(bandwidth="1 Gbit/s", overrides={1: {"bandwidth": "10 Mbit/s"}}), 256 << 10),
        (Link(bandwidth="1 Gbit/s").dilated(8), 2_500_000),
    ],
)
def test_segments_are_larger_where_the_link_is_fast(link, largest_bytes):
    assert cutting_for(link, num_ranks=4).largest_bytes == largest_bytes


@pytest.mark.parametrize("num_bytes, largest_bytes, count", [(8 << 20, 4 << 20, 4), (20 << 20, 4 << 20, 5), (9, 1, 1)])
def test_there_are_four_of_a_chunk_or_as_many_as_the_largest_size_takes(num_bytes, largest_bytes, count):
    assert Cutting(largest_bytes).count(num_bytes) == count


def test_there_are_two_of_a_chunk_where_nothing_is_shaped():
    assert [cutting_for(link).count(8 << 20) for link in (None, UNSHAPED, Link(bandwidth="1 Gbit/s"))] == [4, 2, 4]
    assert [cutting_for(UNSHAPED).count(num_bytes) for num_bytes in (8191, 8192, 10 << 20)] == [1, 2, 3]


def test_nothing_to_cut():
    assert cut(5, 5, NoCompression()) == []
    assert cut(5, 6, NoCompression()) == [(5, 6)]


def test_in_flight_is_the_pipe_and_its_queue():
    assert in_flight_bytes(None) == in_flight_bytes(UNSHAPED) == float("inf")
    slow = Link(bandwidth="10 Mbit/s", latency="2.5 ms")
    assert in_flight_bytes(slow) == slow.base.up_queue_bytes + 3125
    air = Link(bandwidth="10 Mbit/s", latency="2.5 ms", medium="shared")
    assert in_flight_bytes(air, num_ranks=4) == (slow.base.up_queue_bytes + 3125) / 4
    assert in_flight_bytes(Link(bandwidth="100 Mbit/s", latency="2.5 ms")) == 625_000 + 31_250
    assert in_flight_bytes(Link(bandwidth="100 Mbit/s", latency="2.5 ms", queue="1 bdp")) == float("inf")
    assert in_flight_bytes(Link(bandwidth="1 Mbit/s", queue="1.6 kB")) >= 16_384


@given(st.sampled_from([0.25, 0.5, 2.0, 8.0]), st.sampled_from(["10 Mbit/s", "100 Mbit/s"]), st.booleans())
def test_slow_motion_has_as_much_in_flight(dilation, bandwidth, shared):
    link = Link(bandwidth=bandwidth, latency="2.5 ms", queue="1 bdp", medium="shared" if shared else "switched")
    assert in_flight_bytes(link.dilated(dilation), num_ranks=4) == in_flight_bytes(link, num_ranks=4)


@pytest.mark.parametrize(
    "collective, codec", [("ring", "none"), ("ring", "fp16"), ("scatter-gather", "none"), ("scatter-gather", "int8")]
)
def test_no_bit_depends_on_the_cut(collective, codec):
    tensors = inputs(3, 4_000_003)
    links = (None, UNSHAPED, Link(bandwidth="10 Mbit/s"), Link(bandwidth="1 Gbit/s"))

    def work(group, rank):
        means = []
        for link in links:
            averaging = COLLECTIVES.load(collective)()
            averaging.connect(group, link)
            means.append(tensors[rank].clone())
            averaging.average(means[-1], make_codec(codec, len(means[-1]), rank, 3), round_of(group, 3))
        return means

    first, *others = [mean for means in run_ranks(3, work) for mean in means]
    assert all(torch.equal(first, other) for other in others)


def test_nodes_at_sites_of_their_own_have_as_much_in_flight_as_far_apart_at_one_place():
    place = Link(bandwidth="20 Mbit/s", latency="130 ms")
    path = "300 Mbit/s 130 ms"  # wider than the nodes' own links
    apart = {"sites": ["a", "b", "c"], "paths": {"a": {"b": path, "c": path}, "b": {"c": path}}}
    sites = Link.model_validate({"bandwidth": "20 Mbit/s", **apart})
    assert in_flight_bytes(place, 3) == pytest.approx(125_000 + 325_000)
    assert in_flight_bytes(sites, 3) == pytest.approx(in_flight_bytes(place, 3))


def test_a_ring_through_sites_has_the_mean_of_its_hops_in_flight():
    lan, queue_s = {"bandwidth": "2 Gbit/s", "latency": "0.1 ms"}, 0.05
    link = Link.model_validate({**lan, "regions": {"oregon": 3, "tokyo": 1}})
    slowest = 523e6 / 8
    mean_s = (2 * 0.0001 + 2 * 0.0481) / 4  # two hops inside oregon, one there and one back
    assert in_flight_bytes(link, 4) == pytest.approx(slowest * (queue_s + mean_s), rel=1e-6)
    assert in_flight_bytes(link.dilated(4), 4) == in_flight_bytes(link, 4)
    # Leaders, one a site: both hops are long.
    assert in_flight_bytes(link, 2) == pytest.approx(slowest * (queue_s + 0.0481), rel=1e-6)
    dealt = Link.model_validate({**lan, "regions": ["oregon", "virginia", "tokyo"]})
    mean_s = 0.0001 + (0.0335 + 0.0715 + 0.048) / 6
    assert in_flight_bytes(dealt, 6) == pytest.approx(slowest * (queue_s + mean_s), rel=1e-6)


def test_a_slow_line_of_a_site_holds_its_own_queue():
    sites = {"a": {"bandwidth": "2 Mbit/s"}, "b": {"bandwidth": "9 Mbit/s"}}
    slow = Link.model_validate({"bandwidth": "2 Gbit/s", "latency": "0.1 ms", "sites": sites})
    assert in_flight_bytes(slow, 4) == pytest.approx(64_000, rel=0.01)


def test_between_sites_the_slowest_line_says_how_large_a_segment_is():
    lan = {"bandwidth": "2 Gbit/s", "latency": "0.1 ms"}
    sites = {"a": {"bandwidth": "400 Mbit/s"}, "b": {"bandwidth": "900 Mbit/s"}}
    assert cutting_for(Link.model_validate({**lan, "sites": sites}), 4).largest_bytes == 1_000_000
    assert cutting_for(Link.model_validate(lan), 4).largest_bytes > 1_000_000
