"""The shared air in virtual time, against what can be reckoned by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.relay.schedule import RelayModel
from bwbench.network.relay.shared_air import SharedSchedule
from tests.unit.network.relay.virtual_relay import (
    FRAME_BYTES,
    LATENCY_S,
    Outcome,
    Submission,
    model,
    run,
    stream,
    trace_of,
)

FULL_BITS = FRAME_BYTES * 8


def air(**asked: Any) -> RelayModel:
    return model(medium="shared", **asked)


def capacity_bps(asked: RelayModel, node: int = 0) -> float:
    assert asked.air is not None
    return asked.air.capacity_bps(asked.up[node].rate_bps)


def test_a_frame_crosses_the_air_twice() -> None:
    ((due_s, dst, _),) = run(air(), [(0.0, 0, 2, 1000)]).left
    assert (due_s, dst) == (pytest.approx(2 * 1000e-6 + LATENCY_S), 2)


def test_one_pair_gets_half_of_the_air() -> None:
    left = run(air(), [(0.0, 0, 1, 1000)] * 60).left
    steady_s = left[40].due_s - left[20].due_s
    assert 20 * 1000 * 8 / steady_s == pytest.approx(4e6, rel=0.05)


def test_station_to_station_gets_half_of_what_a_wired_node_gets() -> None:
    """With overhead and aggregates, where both crossings fill their transmissions."""
    asked = air(bandwidth="100 Mbit/s", standard="802.11n", queue="2 MB", wired=[3])
    for dst, crossings in ((1, 2), (3, 1)):
        last = run(asked, [(0.0, 0, dst, FRAME_BYTES)] * 1000).left[-1]
        carried_bps = 1000 * FULL_BITS / (last.due_s - LATENCY_S)
        assert carried_bps == pytest.approx(capacity_bps(asked) / crossings, rel=0.01)


def test_all_stations_share_one_air() -> None:
    """However many pairs talk, each frame takes two crossings of the one air."""
    frames = [(0.0, src, (src + 1) % 4, 1000) for _ in range(15) for src in range(4)]
    assert run(air(), frames).left[-1].due_s == pytest.approx(2 * len(frames) * 1000e-6, rel=0.05)


@pytest.mark.parametrize("standard, aggregation", [("802.11g", 1), ("802.11n", 20), ("802.11ac", 29)])
def test_a_ring_takes_what_the_closed_form_says(standard: str, aggregation: int) -> None:
    """4 nodes send ``segment`` frames to their neighbours at once: two crossings each, in full aggregates.

    At 65 Mbit/s 29 frames are the longest that 802.11ac may transmit, in 5.484 ms.
    """
    segment = 580
    asked = air(bandwidth="65 Mbit/s", standard=standard, queue="2 MB")
    assert asked.air is not None and asked.air.most_frames(65e6) == aggregation
    frames = [(0.0, src, (src + 1) % 4, FRAME_BYTES) for _ in range(segment) for src in range(4)]
    expected_s = 2 * len(frames) / aggregation * asked.air.transmission_s(aggregation * FRAME_BYTES, 65e6)
    outcome = run(asked, frames)
    assert outcome.left[-1].due_s == pytest.approx(expected_s + LATENCY_S, rel=0.02)
    assert len(outcome.left) == len(frames)


def test_the_air_carries_the_share_of_the_phy_rate_that_was_asked() -> None:
    asked = air(bandwidth="54 Mbit/s", efficiency=0.5, wired=[3])
    frames = stream(0, 3, 60e6, 2.0)
    assert run(asked, frames).goodput_bps(frames, 0.5, 2.0) == pytest.approx(27e6, rel=1e-3)


@pytest.mark.parametrize("fairness", ["packet", "airtime"])
def test_two_stations_share_half_and_half(fairness: str) -> None:
    asked = air(bandwidth="54 Mbit/s", standard="802.11n", fairness=fairness, wired=[3])
    frames = stream(0, 3, 60e6, 2.0) + stream(1, 3, 45e6, 2.0)
    outcome = run(asked, frames)
    first_bps, second_bps = (outcome.goodput_bps(frames, 0.5, 2.0, src) for src in (0, 1))
    assert first_bps == pytest.approx(second_bps, rel=0.02)
    assert first_bps + second_bps == pytest.approx(capacity_bps(asked), rel=0.01)


SLOW = {"bandwidth": "54 Mbit/s", "wired": [3], "overrides": {1: {"bandwidth": "6 Mbit/s"}}, "queue": "128 kB"}
UP = stream(0, 3, 40e6, 3.0) + stream(1, 3, 40e6, 3.0)
DOWN = stream(3, 0, 40e6, 3.0) + stream(3, 1, 40e6, 3.0)


def carried_bps(outcome: Outcome, frames: list[Submission], station: int, begin_s: float = 0.5) -> float:
    """To and from a station, in the seconds up to the third."""
    own = [
        due_s
        for due_s, _, number in outcome.left
        if begin_s < due_s <= 3.0 and station in (frames[number].src, frames[number].dst)
    ]
    return len(own) * FULL_BITS / (3.0 - begin_s)


@pytest.mark.parametrize("frames", [UP, DOWN], ids=["up", "down"])
@pytest.mark.parametrize("aggregation", [1, 8])
def test_packet_fairness_lets_one_slow_station_slow_all_others_down(frames: list[Submission], aggregation: int) -> None:
    """The performance anomaly: everybody gets one transmission in the time that all of them together take."""
    asked = air(efficiency=0.6, aggregation=aggregation, fairness="packet", **SLOW)
    assert asked.air is not None
    round_s = sum(asked.air.full_s(rate_bps) for rate_bps in (54e6, 6e6))
    outcome = run(asked, frames)
    for station, rate_bps in ((0, 54e6), (1, 6e6)):
        # The slow one's transmissions may last 5.484 ms: 2 frames, however many a fast one aggregates.
        expected_bps = asked.air.most_frames(rate_bps) * FULL_BITS / round_s
        assert carried_bps(outcome, frames, station) == pytest.approx(expected_bps, rel=0.03)


@pytest.mark.parametrize("frames", [UP, DOWN], ids=["up", "down"])
@pytest.mark.parametrize("aggregation", [1, 8])
def test_airtime_fairness_does_not(frames: list[Submission], aggregation: int) -> None:
    """Everybody gets half of what it would get alone."""
    asked = air(efficiency=0.6, aggregation=aggregation, fairness="airtime", **SLOW)
    outcome = run(asked, frames)
    for station in (0, 1):
        expected_bps = capacity_bps(asked, station) / 2
        assert carried_bps(outcome, frames, station) == pytest.approx(expected_bps, rel=0.04)


@pytest.mark.parametrize("standard, bandwidth", [("802.11g", "6 Mbit/s"), ("802.11n", "6.5 Mbit/s")])
def test_packet_fairness_differs_from_airtimes_where_single_frames_are_sent(standard: str, bandwidth: str) -> None:
    """802.11n keeps a transmission below 5.484 ms: that gives a fast station nearly what equal airtime does."""
    slow = {**SLOW, "overrides": {1: {"bandwidth": bandwidth}}}
    fast_bps = {}
    for fairness in ("packet", "airtime"):
        asked = air(standard=standard, fairness=fairness, **slow)
        fast_bps[fairness] = carried_bps(run(asked, UP), UP, 0)
    by_airtime = fast_bps["airtime"] / fast_bps["packet"]
    assert (
        (by_airtime == pytest.approx(3.0, rel=0.05))
        if standard == "802.11g"
        else (by_airtime == pytest.approx(1.0, abs=0.1))
    )


@pytest.mark.parametrize("fairness, share", [("packet", 1 / 5 / 4), ("airtime", 1 / 8)])
def test_stations_that_send_all_they_can_leave_the_access_point_what_its_turns_are(fairness: str, share: float) -> None:
    """A ring of 4: the access point has one turn in five, for four stations, or as much time as four stations have."""
    asked = air(bandwidth="54 Mbit/s", standard="802.11n", fairness=fairness, queue="200 kB")
    frames = sorted(frame for src in range(4) for frame in stream(src, (src + 1) % 4, 30e6, 3.0))
    outcome = run(asked, frames)
    for station in range(4):
        got = [due_s for due_s, dst, _ in outcome.left if dst == station and 0.5 < due_s <= 3.0]
        assert len(got) * FULL_BITS / 2.5 == pytest.approx(share * capacity_bps(asked), rel=0.08)  # 20 at a time


def test_wired_nodes_cross_the_air_once_or_not_at_all() -> None:
    asked = air(wired=[2, 3])
    for src, dst, crossings in ((0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 3, 0)):
        ((due_s, *_),) = run(asked, [(0.0, src, dst, 1000)]).left
        assert due_s == pytest.approx(crossings * 1e-3 + LATENCY_S)


def test_what_goes_between_wired_nodes_takes_nothing_from_the_stations() -> None:
    asked = air(wired=[2, 3])
    busy = stream(2, 3, 100e6, 0.5)
    outcome = run(asked, [*stream(0, 2, 7e6, 0.5), *busy])
    assert len(outcome.left) == len(busy) + len(stream(0, 2, 7e6, 0.5))


FAST = "80 Mbit/s"  # a byte takes a tenth of a microsecond


def test_a_transmission_pays_its_overhead_once() -> None:
    """A single frame pays all of it; those that waited meanwhile share the next one's, and arrive together."""
    asked = air(bandwidth=FAST, efficiency=0.5, aggregation=4, wired=[3])
    assert asked.air is not None
    overhead_s = asked.air.overhead_s
    assert overhead_s == pytest.approx(4 * FRAME_BYTES * 1e-7)
    left = run(asked, [(0.0, 0, 3, 1000)] + [(0.0001, 0, 3, 1000)] * 6).left
    ends_s = [due_s - LATENCY_S for due_s, *_ in left]
    first_s = overhead_s + 1e-4
    second_s = first_s + overhead_s + 4e-4
    assert ends_s == pytest.approx([first_s, *[second_s] * 4, *[second_s + overhead_s + 2e-4] * 2])


def test_the_access_point_fills_a_transmission_for_each_station() -> None:
    """Frames for different stations come mixed; each station's own are sent together."""
    asked = air(bandwidth=FAST, efficiency=0.5, aggregation=10, wired=[3])
    assert asked.air is not None
    frames = [(0.0, 3, number % 2, 1000) for number in range(40)]
    assert run(asked, frames).left[-1].due_s == pytest.approx(4 * asked.air.overhead_s + 40e-4 + LATENCY_S)


def test_a_super_packet_pays_for_as_much_as_its_segments_take() -> None:
    """Those of an air that can part it: not whole transmissions filled by halves."""
    asked = air(bandwidth=FAST, efficiency=0.5, aggregation=10, wired=[3])
    assert asked.air is not None
    ((due_s, *_),) = run(asked, [(0.0, 0, 3, 25 * FRAME_BYTES)]).left
    assert due_s == pytest.approx(2.5 * asked.air.overhead_s + 25 * FRAME_BYTES * 1e-7 + LATENCY_S)


def test_stations_take_turns() -> None:
    """A station with little to send does not wait behind all that another one has."""
    frames = [(0.0, 0, 3, 1000)] * 40 + [(0.0, 1, 3, 1000)] * 4
    ends_s = run(air(), frames).ends_s
    assert max(ends_s[number] for number in range(40, 44)) < ends_s[20]


def test_the_turns_are_fair_in_the_long_run() -> None:
    frames = [(0.0, src, 3, 1000) for src in (0, 1, 2) for _ in range(20)]
    first = Counter(frames[number][1] for _, _, number in run(air(), frames).left[:30])
    assert max(first.values()) - min(first.values()) <= 1


@pytest.mark.parametrize("fairness", ["packet", "airtime"])
def test_silence_earns_no_turns(fairness: str) -> None:
    """A station that begins late shares from then on; it does not catch up."""
    asked = air(fairness=fairness, wired=[3])
    frames = stream(0, 3, 10e6, 3.0) + stream(1, 3, 10e6, 2.0, begin_s=1.0)
    outcome = run(asked, frames)
    shares = [outcome.goodput_bps(frames, 1.2, 1.8, src) for src in (0, 1)]
    assert shares[0] == pytest.approx(shares[1], rel=0.03)


def test_a_frame_on_its_way_to_the_access_point_keeps_nobody_waiting() -> None:
    """The air is free while the first frame takes its latency."""
    left = run(air(), [(0.0, 0, 1, 1000), (0.0015, 2, 3, 1000)]).left
    assert left[0].due_s == pytest.approx(0.001 + LATENCY_S + 0.001)
    assert left[1].due_s == pytest.approx(0.0015 + 0.001 + LATENCY_S + 0.001)


def test_a_full_queue_drops() -> None:
    outcome = run(air(queue="5 kB"), [(0.0, 0, 1, 1000)] * 20)
    assert (len(outcome.left), len(outcome.refused), len(outcome.lost)) == (5, 15, 0)
    assert len(run(air(queue="7 packets"), [(0.0, 0, 1, 100)] * 20).left) == 7


def test_the_access_points_queue_is_each_stations_own() -> None:
    """One station's flood from the wire leaves room for another's frame, and is lost after it has entered the link."""
    frames = [(0.0, 3, 0, 1000)] * 100 + [(1e-3, 3, 1, 1000)]
    outcome = run(air(queue="10 kB", wired=[3]), frames)
    assert 100 in outcome.ends_s
    assert len(outcome.lost) == 90 and not outcome.refused


def test_loss_strikes_once_a_path() -> None:
    frames = stream(0, 1, 2e6, 60.0, num_bytes=100)
    outcome = run(air(loss=0.1), frames)
    assert len(outcome.lost) == pytest.approx(0.1 * len(frames), rel=0.1)


def test_a_trace_is_the_rate_of_its_station() -> None:
    rates = RateTrace([0, 1, 2], [8e6, 2e6])
    asked = air(wired=[3], bandwidth="8 Mbit/s", overrides={0: {"trace": trace_of("t", rates)}}, traces={"t": rates})
    frames = stream(0, 3, 10e6, 6.0)
    outcome = run(asked, frames, commands=[(2.0, "play"), (4.0, "hold")])
    seconds = [outcome.goodput_bps(frames, second, second + 1) for second in (1, 2, 3, 4)]
    assert seconds == pytest.approx([5e6, 8e6, 2e6, 5e6], rel=0.02)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_station_whose_rate_is_zero_blocks_nobody(direction: str) -> None:
    rates = RateTrace([0, 1, 3, 4], [8e6, 0, 8e6])
    asked = air(wired=[3], overrides={0: {"trace": trace_of("t", rates)}}, traces={"t": rates})
    ends = ((0, 3), (1, 3)) if direction == "up" else ((3, 0), (3, 1))
    frames = [frame for src, dst in ends for frame in stream(src, dst, 10e6, 4.0)]
    outcome = run(asked, frames, commands=[(0.0, "play")])

    def shares_bps(begin_s: float, end_s: float) -> list[float]:
        bits = Counter[int]()
        for due_s, _, number in outcome.left:
            if begin_s < due_s <= end_s:
                bits[sum(frames[number][1:3])] += FULL_BITS
        return [bits[3] / (end_s - begin_s), bits[4] / (end_s - begin_s)]  # of 0 and 3, of 1 and 3

    assert shares_bps(0.1, 1.0) == pytest.approx([4e6, 4e6], rel=0.05)
    assert shares_bps(1.1, 3.0) == pytest.approx([0.0, 8e6], rel=0.05)
    assert shares_bps(3.1, 4.0) == pytest.approx([4e6, 4e6], rel=0.05)


def test_holding_wakes_a_station_whose_rate_was_zero() -> None:
    rates = RateTrace([0, 1, 1000], [8e6, 0])
    asked = air(wired=[3], trace=trace_of("t", rates), bandwidth=None, traces={"t": rates})
    frames = [(1.5, 0, 3, 1000)]
    ((due_s, *_),) = run(asked, frames, commands=[(0.0, "play"), (2.0, "hold")]).left
    assert due_s == pytest.approx(2.0 + 8000 / rates.mean_bps + LATENCY_S)


def test_how_often_the_relay_looks_changes_nothing() -> None:
    frames = [
        (number * 3e-4, number % 4, (number + 1 + number % 3) % 4, 200 + number * 7 % 1300) for number in range(60)
    ]
    frames = [frame for frame in frames if frame[1] != frame[2]]
    for asked in (air(loss=0.3), air(standard="802.11n", fairness="airtime"), air(jitter="1 ms", wired=[0])):
        often, seldom = run(asked, frames, step_s=1e-4), run(asked, frames, step_s=2e-3)
        assert often.ends_s == pytest.approx(seldom.ends_s)
        assert sorted(often.lost) == sorted(seldom.lost)


@pytest.mark.parametrize("wired", [[], [3], [2, 3]])
def test_nothing_is_due_before_the_look_ahead_is_over(wired: list[int]) -> None:
    asked = air(standard="802.11g", wired=wired)
    look_ahead_s = SharedSchedule[int](asked, lambda src, dst, frame, entered: None).look_ahead_s()
    delays_s = []
    for src in range(4):
        for dst in range(4):
            if src != dst:
                delays_s.append(run(asked, [(0.0, src, dst, 42)]).left[0].due_s)
    assert min(delays_s) == pytest.approx(look_ahead_s)
