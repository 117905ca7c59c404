"""Queues in virtual time: exactly as long as was asked, whatever they count and whatever the rate does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.network.link.node_link import DEFAULT_QUEUE, Queue
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.relay.schedule import Direction
from bwbench.network.relay.switched import Bottleneck, VariedBottleneck, bottleneck, packets_of
from tests.unit.network.relay.virtual_relay import FRAME_BYTES, model, run

STEADY = RateTrace([0, 1], [8e6])


def burst(frames: int, num_bytes: int, **asked: Any) -> int:
    """How many of ``frames`` that come at once find room."""
    return len(run(model(**asked), [(0.0, 0, 1, num_bytes)] * frames).left)


@pytest.mark.parametrize(
    "queue, num_bytes, expected",
    [
        ("10 kB", 1000, 10),
        ("10 kB", 999, 10),
        ("10 kB", 1001, 9),
        ("10 packets", 1000, 10),
        ("10 packets", 100, 10),
        ("1 packets", 1000, 1),
        ("2 kB", 60_000, 1),  # an empty queue takes any frame
    ],
)
def test_a_queue_holds_what_was_asked(queue: str, num_bytes: int, expected: int) -> None:
    assert burst(30, num_bytes, queue=queue) == expected


@pytest.mark.parametrize("queue", [None, "50 ms", "1 bdp", "2 bdp"])
def test_what_grows_with_the_rate_has_the_floor_of_the_default(queue: str | None) -> None:
    """8 Mbit/s x 5 ms are 5 kB: rings would lose frames in queues that short."""
    assert burst(100, 1000, queue=queue) == 64
    assert burst(100, 1000, queue=queue, bandwidth="160 kbit/s") == 20  # a second's worth
    assert burst(200, 1000, queue="2 bdp", latency="50 ms") == 200  # 8 Mbit/s x 100 ms = 100 kB
    assert burst(200, 1000, queue="100 ms") == 100
    assert burst(200, 1000, bandwidth="16 Mbit/s", queue=None) == 100  # 50 ms, whatever the round trip


@pytest.mark.parametrize("queue", ["0 ms", "2 min", "-5 ms", "50 msec", "50"])
def test_times_that_no_queue_has(queue: str) -> None:
    with pytest.raises(ValidationError, match=r"queue|range|write it like"):
        model(queue=queue)


def test_a_queue_is_written_as_it_is_read() -> None:
    texts = ["50 ms", "64 kB", "100 packets", "2 bdp"]
    assert [str(Queue.parse(text)) for text in texts] == texts
    assert Queue.parse("0.05 s") == DEFAULT_QUEUE


def test_what_has_been_sent_makes_room() -> None:
    """A frame of 1000 B is gone after a millisecond, and half of one after half of that."""
    for queue in ("10 kB", "10 packets"):
        outcome = run(model(queue=queue), [(0.0, 0, 1, 1000)] * 10 + [(0.0005, 0, 1, 500), (0.00101, 0, 1, 1000)])
        by_bytes = queue == "10 kB"
        assert (10 in outcome.ends_s) is by_bytes  # half of the first frame is still a packet
        assert (11 in outcome.ends_s) is not by_bytes  # … and the 500 B above take the room of half a frame


def test_the_receivers_queue_drops_too() -> None:
    """Two senders, each within its own uplink, are too many for one downlink."""
    submissions = [(number * 1e-3, src, 0, 1000) for number in range(40) for src in (1, 2)]
    for queue in ("10 kB", "10 packets"):
        outcome = run(model(queue=queue), submissions)
        assert len(outcome.left) == 49  # 39 are sent until the last ones come, and 10 wait
        assert not outcome.refused


def test_a_nodes_queue_is_its_own() -> None:
    asked = model(queue="10 kB", overrides={2: {"queue": "3 packets"}})
    frames = [(0.0, 0, 1, 1000)] * 20 + [(0.0, 2, 3, 1000)] * 20
    assert len(run(asked, frames).left) == 13


def test_a_queue_that_saturates_delays_by_its_length() -> None:
    """A ping behind a flood waits as long as the queue takes to be sent."""
    flood = [(number * 5e-4, 0, 1, 1000) for number in range(400)]
    pings = [(0.1 + number * 7.7e-3, 0, 1, 60) for number in range(10)]
    outcome = run(model(queue="40 kB"), flood + pings)
    waits_s = [
        outcome.ends_s[400 + number] - time_s - 2 * 60e-6 - 2.5e-3
        for number, (time_s, *_) in enumerate(pings)
        if 400 + number in outcome.ends_s
    ]
    assert len(waits_s) >= 5
    assert all(38.9e-3 < wait_s <= 41e-3 for wait_s in waits_s)  # and behind the last frame on the downlink


def test_super_packets_count_as_their_segments() -> None:
    assert [
        packets_of(num_bytes, FRAME_BYTES) for num_bytes in (60, FRAME_BYTES, FRAME_BYTES + 66, 40 * FRAME_BYTES)
    ] == [1, 1, 2, 40]
    varied = VariedBottleneck(Direction(8e6, 10**9, queue_packets=100), FRAME_BYTES)
    assert [varied.take(0.0, 40 * FRAME_BYTES) is not None for _ in range(3)] == [True, True, False]


coming = st.lists(st.tuples(st.floats(0, 2e-3), st.integers(42, 9000)), min_size=1, max_size=80)


@settings(deadline=None)
@given(coming)
def test_the_cheap_case_and_the_general_one_agree(frames: list[tuple[float, int]]) -> None:
    direction = Direction(8e6, 20_000)
    cheap, general = Bottleneck(direction), VariedBottleneck(direction, FRAME_BYTES)
    assert isinstance(bottleneck(direction, FRAME_BYTES), Bottleneck)
    playing = VariedBottleneck(Direction(8e6, 20_000, trace=STEADY), FRAME_BYTES)
    playing.switch(0.0, 0.0)
    now_s = 0.0
    for gap_s, num_bytes in frames:
        now_s += gap_s
        one, *others = (each.take(now_s, num_bytes) for each in (cheap, general, playing))
        assert others == [pytest.approx(one)] * 2 if one is not None else [None, None]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.001, 0.05), st.sampled_from([0.0, 1e5, 1e6, 1e7, 1e8])), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0, 0.01), st.integers(42, FRAME_BYTES)), min_size=1, max_size=120),
)
def test_a_queue_holds_bytes_at_any_rate(steps: list[tuple[float, float]], frames: list[tuple[float, int]]) -> None:
    """Reckoned anew from what has been sent by then: what waits never exceeds the queue, and room is never wasted."""
    edges_s = [0.0]
    for step_s, _ in steps:
        edges_s.append(edges_s[-1] + step_s)
    rates_bps = [rate_bps for _, rate_bps in steps]
    if not any(rates_bps):
        rates_bps[0] = 1e6
    trace = RateTrace(edges_s, rates_bps)
    queue_bytes = 10_000
    varied = VariedBottleneck(Direction(trace.mean_bps, queue_bytes, trace=trace), FRAME_BYTES)
    varied.switch(0.0, 0.0)
    now_s = 0.0
    taken: list[tuple[float, float, int]] = []  # begin, end, bytes
    for gap_s, num_bytes in frames:
        now_s += gap_s
        waiting_bytes = sum(
            size if begin_s >= now_s else trace.bits_between(now_s, end_s) / 8
            for begin_s, end_s, size in taken
            if end_s > now_s
        )
        done_s = varied.take(now_s, num_bytes)
        if done_s is None:
            assert waiting_bytes + num_bytes > queue_bytes
        else:
            assert waiting_bytes <= 0.01 or waiting_bytes + num_bytes <= queue_bytes + 1
            begin_s = max(now_s, taken[-1][1]) if taken else now_s
            assert trace.bits_between(begin_s, done_s) / 8 == pytest.approx(num_bytes, abs=0.01)
            taken.append((begin_s, done_s, num_bytes))
