"""Disciplines in virtual time: against hand-made traces, and what their RFCs and papers say of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.network.link.discipline import KINDS, AbstractDiscipline, CoDel, FqCoDel, Pie, Red
from bwbench.network.link.node_link import Queue
from bwbench.network.relay.disciplines import AbstractQueue, DropTailQueue, Packet
from bwbench.network.relay.managed import ManagedBottleneck, queue_of
from bwbench.network.relay.schedule import Direction
from bwbench.network.relay.switched import Bottleneck, Line
from tests.unit.network.relay.virtual_relay import FRAME_BYTES, Submission, model, run, stream

RATE_BPS = 8e6  # a byte takes a microsecond
MS = 1e-3


@dataclass
class Seen:
    """What came of packets, which are known by their numbers."""

    sent: list[tuple[float, int]] = field(default_factory=list)
    dropped: list[tuple[float, int]] = field(default_factory=list)
    marked: list[int] = field(default_factory=list)
    waits_s: dict[int, float] = field(default_factory=dict)


Arrival = tuple[float, int, int]  # time, bytes, flow


def through(
    asked: AbstractDiscipline | None,
    arrivals: Iterable[Arrival],
    *,
    rate_bps: float = RATE_BPS,
    size: str | None = None,
    marks: Callable[[int], bool] = lambda number: False,
) -> Seen:
    """What a bottleneck of 8 Mbit/s makes of packets that come so."""
    queue = Queue.parse(size or (asked.default_size if asked is not None else "64 kB"))
    direction = Direction(rate_bps, queue.num_bytes(rate_bps, 0.0, FRAME_BYTES), queue.packets, discipline=asked)
    seen, now_s = Seen(), 0.0

    def dropped(packet: Packet[int]) -> None:
        seen.dropped.append((now_s, packet.item))

    def mark(packet: Packet[int]) -> bool:
        if marks(packet.item):
            seen.marked.append(packet.item)
            return True
        return False

    def sent(time_s: float, packet: Packet[int]) -> None:
        seen.sent.append((time_s, packet.item))
        seen.waits_s[packet.item] = time_s - packet.num_bytes * 8 / rate_bps - packet.came_s

    make_queue = partial(queue_of, direction, FRAME_BYTES, "1")
    bottleneck = ManagedBottleneck(Line(direction), make_queue, sent, dropped, mark)
    for number, (time_s, num_bytes, flow) in enumerate(arrivals):
        while bottleneck.next_s() <= time_s:
            now_s = bottleneck.next_s()
            bottleneck.serve(now_s)
        now_s = time_s
        bottleneck.put(time_s, Packet(number, num_bytes, flow=flow))
    while bottleneck.next_s() < math.inf:
        now_s = bottleneck.next_s()
        bottleneck.serve(now_s)
    return seen


def flood(load: float, duration_s: float, num_bytes: int = 1000, flow: int = 0, begin_s: float = 0.0) -> list[Arrival]:
    """Packets at even distances, so many times as fast as the link."""
    gap_s = num_bytes * 8 / RATE_BPS / load
    return [(begin_s + number * gap_s, num_bytes, flow) for number in range(round(duration_s / gap_s))]


def merged(*streams: list[Arrival]) -> list[Arrival]:
    return sorted(arrival for stream in streams for arrival in stream)


# --- CoDel ------------------------------------------------------------------------------------------------------------


def test_codel_drops_an_interval_after_the_target_is_exceeded_and_then_ever_more_often() -> None:
    """RFC 8289, 3.3: an interval, then an interval over the root of the number of drops."""
    seen = through(CoDel(), flood(2.0, 2.0))
    times_s = [time_s for time_s, _ in seen.dropped]
    # Twice as much comes as is sent: what leaves at t has waited t / 2, 5 ms at 10 ms; an interval later one goes.
    assert times_s[0] == pytest.approx(0.110, abs=1.5 * MS)
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    assert gaps_s[:8] == pytest.approx([0.1 / math.sqrt(count) for count in range(1, 9)], abs=1.5 * MS)


def test_codel_lets_a_burst_pass_that_is_gone_within_an_interval() -> None:
    burst = [(0.0, 1000, 0)] * 90  # 90 ms of waiting
    assert not through(CoDel(), burst).dropped
    longer = merged([(0.0, 1000, 0)] * 90, flood(1.0, 0.5))
    assert through(CoDel(), longer).dropped


def test_codel_leaves_a_queue_below_its_target_alone() -> None:
    below = merged([(0.0, 1000, 0)] * 4, flood(1.0, 5.0))
    assert not through(CoDel(), below).dropped
    above = merged([(0.0, 1000, 0)] * 8, flood(1.0, 5.0))
    assert through(CoDel(), above).dropped


def test_codel_never_drops_the_last_frame() -> None:
    """On a slow link one frame takes longer than the target; the queue must not be starved for that (RFC 8289, 4.4)."""
    slow = [(number * 0.2, 1000, 0) for number in range(100)]
    assert not through(CoDel(), slow, rate_bps=40e3).dropped


def test_codel_stops_as_soon_as_one_packet_has_waited_less_and_remembers_how_often_it_had_to() -> None:
    arrivals = [*flood(2.0, 1.0), *flood(2.0, 1.0, begin_s=2.3)]  # the first are gone by 2 s
    seen = through(CoDel(), arrivals)
    again = [time_s for time_s, _ in seen.dropped if time_s > 2.0]
    assert again[0] == pytest.approx(2.41, abs=2 * MS)
    # It goes on with as many drops as it had come to: the second comes sooner than an interval after the first.
    assert again[1] - again[0] < 0.05
    forgotten = through(CoDel(), [*flood(2.0, 1.0), *flood(2.0, 1.0, begin_s=5.0)])
    late = [time_s for time_s, _ in forgotten.dropped if time_s > 5.0]
    assert late[1] - late[0] == pytest.approx(0.1, abs=2 * MS)


def test_codel_marks_what_can_be_marked() -> None:
    asked = CoDel(ecn=True)
    seen = through(asked, flood(1.2, 3.0), marks=lambda number: True)
    assert seen.marked and not seen.dropped
    unable = through(asked, flood(1.2, 3.0))
    assert unable.dropped and not unable.marked
    assert not through(CoDel(), flood(1.2, 3.0), marks=lambda number: True).marked


# --- fq_codel ---------------------------------------------------------------------------------------------------------


def test_fq_codel_divides_bytes_equally_however_large_packets_are() -> None:
    arrivals = merged(flood(1.0, 4.0, 1500, flow=1), flood(1.0, 4.0, 300, flow=2), flood(2.0, 4.0, 700, flow=3))
    seen = through(FqCoDel(), arrivals)
    sizes = dict.fromkeys((1, 2, 3), 0)
    for time_s, number in seen.sent:
        if 1.0 < time_s < 4.0:
            _, num_bytes, flow = arrivals[number]
            sizes[flow] += num_bytes
    assert [num_bytes * 8 / 3.0 for num_bytes in sizes.values()] == pytest.approx([RATE_BPS / 3] * 3, rel=0.01)


def test_fq_codel_lets_a_sparse_flow_pass_by_those_that_fill_the_link() -> None:
    """RFC 8290, 6.1: a flow that leaves no queue is new each time, and waits for the packet on its way out alone."""
    pings = [(0.3 + number * 0.1, 100, 9) for number in range(30)]
    arrivals = merged(flood(2.0, 4.0, 1500, flow=1), flood(2.0, 4.0, 1500, flow=2), pings)
    seen = through(FqCoDel(), arrivals)
    waits_s = [wait_s for number, wait_s in seen.waits_s.items() if arrivals[number][2] == 9]
    assert len(waits_s) == 30
    assert max(waits_s) <= 1500 * 8 / RATE_BPS + 1e-9


def test_fq_codel_drops_of_the_flow_that_waits_too_long_and_of_no_other() -> None:
    arrivals = merged(flood(2.0, 4.0, 1000, flow=1), flood(0.2, 4.0, 1000, flow=2))
    seen = through(FqCoDel(), arrivals)
    assert {arrivals[number][2] for _, number in seen.dropped} == {1}


def test_fq_codel_that_is_full_takes_from_the_longest() -> None:
    arrivals = [(0.0, 1000, 1)] * 90 + [(0.0, 1000, 2)] * 12
    seen = through(FqCoDel(), arrivals, size="100 packets")
    assert {arrivals[number][2] for _, number in seen.dropped} == {1}
    assert len(seen.dropped) == 45  # half of it, from its head
    assert min(number for _, number in seen.dropped) == 1  # the first one is on its way out


def test_fq_codel_serves_an_old_flow_after_each_round_of_new_ones() -> None:
    """A flow that becomes new again and again starves nobody (RFC 8290, 4.2)."""
    sparse = [arrival for flow in range(2, 40) for arrival in flood(0.04, 3.0, 1000, flow=flow)]
    arrivals = merged(flood(1.0, 3.0, 1500, flow=1), sparse)
    seen = through(FqCoDel(), arrivals)
    mine = [time_s for time_s, number in seen.sent if arrivals[number][2] == 1 and 0.5 < time_s < 3.0]
    assert max(later - earlier for earlier, later in pairwise(mine)) < 0.12


# --- PIE --------------------------------------------------------------------------------------------------------------


def test_pie_takes_a_burst_after_a_pause() -> None:
    assert not through(Pie(), flood(1.5, 0.15)).dropped


@pytest.mark.parametrize("load", [1.1, 1.5, 2.0])
def test_pie_comes_to_its_target_and_drops_what_is_too_much(load: float) -> None:
    """RFC 8033, 4.2: the probability settles where the delay is the reference."""
    arrivals = flood(load, 30.0)
    seen = through(Pie(), arrivals)
    late = [wait_s for number, wait_s in seen.waits_s.items() if arrivals[number][0] > 15.0]
    assert sum(late) / len(late) == pytest.approx(15 * MS, rel=0.15)
    lost = sum(arrivals[number][0] > 15.0 for _, number in seen.dropped)
    assert lost / (len(arrivals) / 2) == pytest.approx(1 - 1 / load, abs=0.01)


def test_pie_spreads_its_drops() -> None:
    """What the probabilities have added up to since the last drop lies between 0.85 and 8.5."""
    seen = through(Pie(), flood(1.1, 30.0))
    numbers = [number for time_s, number in seen.dropped if time_s > 20.0]
    gaps = [later - earlier for earlier, later in pairwise(numbers)]
    assert min(gaps) >= 4 and max(gaps) <= 95  # of a probability around 9 %


def test_pie_marks_where_it_would_drop_seldom() -> None:
    seen = through(Pie(ecn=True), flood(1.05, 20.0), marks=lambda number: True)
    assert seen.marked
    often = through(Pie(ecn=True), flood(2.0, 20.0), marks=lambda number: True)
    assert often.dropped  # beyond a tenth marking is not enough (RFC 8033, 5.1)


# --- RED --------------------------------------------------------------------------------------------------------------


def fill(asked: Red, held: int, arrivals: int) -> list[int]:
    """Gaps between the drops of a queue in which so many packets of 1000 B always wait."""
    dropped: list[int] = []
    count = 0

    def drop(packet: Packet[int]) -> None:
        dropped.append(count)

    direction = Direction(RATE_BPS, 120_000, discipline=asked)
    queue: AbstractQueue[int] = queue_of(direction, FRAME_BYTES, "1", drop, lambda packet: False)
    for count in range(arrivals):
        queue.put(count * MS, Packet(count, 1000))
        while queue.num_packets > held:
            queue.take(count * MS)
    return [later - earlier for earlier, later in pairwise(dropped[200:])]


def test_red_drops_nothing_below_and_everything_above_its_thresholds() -> None:
    asked = Red(low=10 / 120, high=30 / 120)  # 10 kB and 30 kB
    assert fill(asked, 9, 5000) == []
    assert set(fill(asked, 40, 5000)) == {1}


def test_red_drops_between_them_at_even_distances() -> None:
    """Floyd and Jacobson 1993, figure 2: up to 1/p apart, each distance as likely, so half of that on average."""
    asked = Red(low=10 / 120, high=30 / 120)
    gaps = fill(asked, 20, 60_000)  # half way up: p = 0.05
    assert max(gaps) <= 20
    assert sum(gaps) / len(gaps) == pytest.approx(10.0, rel=0.03)
    counts = [sum(low <= gap < low + 5 for gap in gaps) for low in (1, 6, 11, 16)]
    assert max(counts) < 1.25 * min(counts)


def test_red_forgets_its_average_while_nothing_waits() -> None:
    asked = Red(low=10 / 120, high=30 / 120)
    arrivals = [*flood(1.5, 3.0), *flood(3.0, 0.03, begin_s=20.0)]
    seen = through(asked, arrivals, size="120 kB")
    assert any(time_s < 4.0 for time_s, _ in seen.dropped)
    assert not any(time_s > 4.0 for time_s, _ in seen.dropped)


# --- all of them ------------------------------------------------------------------------------------------------------

ALL: list[AbstractDiscipline] = [CoDel(), FqCoDel(), Pie(), Red()]


@pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.discipline)
def test_a_link_that_is_not_full_is_as_without(asked: AbstractDiscipline) -> None:
    arrivals = flood(0.9, 3.0)
    seen = through(asked, arrivals)
    assert not seen.dropped
    assert [time_s for time_s, _ in seen.sent] == pytest.approx([time_s + MS for time_s, *_ in arrivals])


@pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.discipline)
@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_in_slow_motion_the_same_packets_are_dropped_at_times_of_the_factor(
    asked: AbstractDiscipline, factor: float
) -> None:
    arrivals = merged(flood(1.3, 3.0, flow=1), flood(0.4, 3.0, 400, flow=2))
    size = Queue.parse(asked.default_size).num_bytes(RATE_BPS, 0.0, FRAME_BYTES)
    usual = through(asked, arrivals, size=f"{size} B")
    slowly = [(time_s * factor, num_bytes, flow) for time_s, num_bytes, flow in arrivals]
    made = through(asked.dilated(factor), slowly, rate_bps=RATE_BPS / factor, size=f"{size} B")
    assert [number for _, number in usual.dropped] == [number for _, number in made.dropped]
    assert usual.dropped
    assert [time_s for time_s, _ in made.sent] == pytest.approx([factor * time_s for time_s, _ in usual.sent])


coming = st.lists(st.tuples(st.floats(0, 2e-3), st.integers(42, 9000), st.integers(0, 3)), min_size=1, max_size=80)


@settings(deadline=None)
@given(st.sampled_from([*KINDS]), coming)
def test_nothing_vanishes_and_flows_keep_their_order(name: str, gaps: list[tuple[float, int, int]]) -> None:
    now_s, arrivals = 0.0, []
    for gap_s, num_bytes, flow in gaps:
        now_s += gap_s
        arrivals.append((now_s, num_bytes, flow))
    seen = through(KINDS[name](), arrivals, size="20 packets")
    numbers = [number for _, number in seen.sent]
    assert sorted([*numbers, *(number for _, number in seen.dropped)]) == list(range(len(arrivals)))
    for flow in range(4):
        mine = [number for number in numbers if arrivals[number][2] == flow]
        assert mine == sorted(mine)
    assert all(wait_s >= -1e-12 for wait_s in seen.waits_s.values())


@settings(deadline=None)
@given(coming)
def test_drop_tail_is_what_the_cheap_way_makes_of_it(gaps: list[tuple[float, int, int]]) -> None:
    now_s, arrivals, cheap = 0.0, [], Bottleneck(Direction(RATE_BPS, 20_000))
    expected: list[float | None] = []
    for gap_s, num_bytes, flow in gaps:
        now_s += gap_s
        arrivals.append((now_s, num_bytes, flow))
        expected.append(cheap.take(now_s, num_bytes))
    seen = through(None, arrivals, size="20 kB")
    assert isinstance(queue_of(Direction(RATE_BPS, 20_000), 1514, "1", id, bool), DropTailQueue)
    assert [time_s for time_s, _ in seen.sent] == pytest.approx([time_s for time_s in expected if time_s is not None])
    assert sorted(number for _, number in seen.dropped) == [i for i, time_s in enumerate(expected) if time_s is None]


# --- on a link --------------------------------------------------------------------------------------------------------


def test_a_managed_link_carries_its_rate_and_lets_a_ping_pass() -> None:
    bulk = [*stream(0, 1, 6e6, 4.0), *stream(3, 1, 6e6, 4.0)]
    pings = [Submission(0.5 + number * 0.1, 2, 1, 100) for number in range(30)]
    for queue, most_s in (("fq_codel", 5e-3), ("50 ms", 70e-3)):
        outcome = run(model(queue=queue), [*bulk, *pings])
        assert outcome.goodput_bps([*bulk, *pings], 1.0, 4.0) > 7.9e6
        ends_s = [outcome.ends_s[len(bulk) + number] for number in range(30) if len(bulk) + number in outcome.ends_s]
        delays_s = [end_s - time_s for end_s, (time_s, *_) in zip(ends_s, pings, strict=False)]
        assert (max(delays_s) < most_s) and (queue != "50 ms" or max(delays_s) > 50e-3)


def test_a_node_may_have_a_managed_queue_beside_others_that_have_none() -> None:
    asked = model(queue="64 kB", overrides={1: {"queue": {"discipline": "codel", "target": "5 ms"}}})
    outcome = run(asked, [*stream(1, 0, 12e6, 3.0), *stream(2, 3, 12e6, 3.0)])
    number = len(stream(1, 0, 12e6, 3.0))
    assert any(frame < number for frame in outcome.refused) and any(frame >= number for frame in outcome.refused)


def test_how_often_the_relay_looks_changes_nothing() -> None:
    frames = [*stream(0, 1, 10e6, 1.0), *stream(2, 1, 5e6, 1.0, 300), *stream(1, 0, 9e6, 1.0)]
    frames.sort()
    for queue in ("fq_codel", "codel", "pie", "red"):
        asked = model(queue=queue)
        often, seldom = (run(asked, frames, step_s) for step_s in (2e-4, 3e-3))
        exact = run(asked, frames)
        assert often.ends_s == pytest.approx(seldom.ends_s)
        assert often.ends_s == pytest.approx(exact.ends_s)
        assert sorted(often.refused) == sorted(seldom.refused) == sorted(exact.refused)


def as_asked(queue: Any) -> Queue:
    return Queue.parse(queue)


def test_a_managed_queue_is_written_with_all_that_holds() -> None:
    assert as_asked("fq_codel") == as_asked({"discipline": "fq_codel"})
    written = as_asked({"discipline": "codel", "target": "10 ms"}).written()
    assert written == {
        "discipline": "codel",
        "ecn": False,
        "target": "10 ms",
        "interval": "100 ms",
        "size": "1000 packets",
    }
    assert as_asked(written) == as_asked({"discipline": "codel", "target": "10 ms"})
    assert str(as_asked(written)) == "codel of 1000 packets, target 10 ms"
    assert as_asked({"discipline": "drop-tail", "size": "64 kB"}).written() == "64 kB"
    assert as_asked("drop-tail").written() == "50 ms"
