"""The switched link in virtual time: what a frame takes, what saturation carries, who shares what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.network.relay.schedule import RelayModel
from bwbench.network.relay.switched import SwitchedSchedule
from tests.unit.network.relay.virtual_relay import LATENCY_S, Left, Submission, model, run

MODEL = model()


def left(asked: RelayModel, submissions: Sequence[tuple[float, int, int, int]], step_s: float = 1e-3) -> list[Left]:
    return run(asked, submissions, step_s).left


def test_a_frame_takes_both_serialisations_and_the_latency() -> None:
    ((due_s, dst, _),) = left(MODEL, [(1.0, 0, 3, 1514)], step_s=1e-4)
    assert due_s == pytest.approx(1.0 + 2 * 1514e-6 + LATENCY_S)
    assert dst == 3


def test_a_saturated_link_carries_its_rate() -> None:
    gone = left(MODEL, [(0.0, 0, 1, 1000)] * 64)
    assert {round(later.due_s - earlier.due_s, 9) for earlier, later in pairwise(gone)} == {1e-3}


def test_three_to_one_and_one_to_three_take_equally_long() -> None:
    to_one = left(MODEL, [(0.0, src, 0, 1000) for src in (1, 2, 3) for _ in range(10)])
    to_three = left(MODEL, [(0.0, 0, dst, 1000) for dst in (1, 2, 3) for _ in range(10)])
    assert to_one[-1].due_s == pytest.approx(to_three[-1].due_s, rel=0.02)


def test_both_directions_are_independent() -> None:
    both = left(MODEL, [(0.0, 0, 1, 1000)] * 20 + [(0.0, 1, 0, 1000)] * 20)
    one = left(MODEL, [(0.0, 0, 1, 1000)] * 20)
    assert both[-1].due_s == pytest.approx(one[-1].due_s)


def test_up_and_down_may_differ() -> None:
    """The slower of the sender's uplink and the receiver's downlink sets the pace."""
    asked = model(bandwidth=None, up="2 Mbit/s", down="8 Mbit/s")
    gone = left(asked, [(0.0, 0, 1, 1000)] * 10)
    assert gone[0].due_s == pytest.approx(4e-3 + LATENCY_S + 1e-3)
    assert gone[-1].due_s - gone[0].due_s == pytest.approx(9 * 4e-3)
    gone = left(model(bandwidth=None, up="8 Mbit/s", down="2 Mbit/s"), [(0.0, 0, 1, 1000)] * 10)
    assert gone[-1].due_s - gone[0].due_s == pytest.approx(9 * 4e-3)


def test_nodes_may_differ() -> None:
    """A slow, far node: its own traffic is slow both ways, and the others do not notice."""
    asked = model(overrides={3: {"bandwidth": "1 Mbit/s", "latency": "12.5 ms"}})
    far = {(0, 3): 1e-3 + 8e-3, (3, 0): 8e-3 + 1e-3, (0, 1): 2e-3}
    for (src, dst), serialised_s in far.items():
        latency_s = 7.5e-3 if 3 in (src, dst) else LATENCY_S  # each end contributes half
        assert left(asked, [(0.0, src, dst, 1000)])[0].due_s == pytest.approx(serialised_s + latency_s)


def test_a_near_node_is_served_before_frames_for_a_far_one_arrive() -> None:
    asked = model(overrides={2: {"latency": "200 ms"}})
    gone = left(asked, [(0.0, 0, 2, 1000), (0.001, 0, 1, 1000)])
    assert [dst for _, dst, _ in gone] == [1, 2]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"latency": "0 ms"},
        {"jitter": "0.4 ms"},
        {"jitter": "5 ms"},
        {"up": "1 Mbit/s"},
        {"overrides": {1: {"latency": "0 ms", "bandwidth": "100 Mbit/s"}}},
    ],
)
def test_nothing_is_due_before_the_look_ahead_is_over(asked: dict[str, object]) -> None:
    """The relay sleeps for that long without looking what has come."""
    schedule = SwitchedSchedule[int](model(**asked), lambda src, dst, frame, entered: None)
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    submissions = [Submission(0.1 * number, *pairs[number % len(pairs)], 42) for number in range(400)]
    gone = run(model(**asked), submissions).left
    shortest_s = min(due_s - submissions[number].time_s for due_s, _, number in gone)
    assert shortest_s >= schedule.look_ahead_s() - 1e-9
    if "jitter" not in asked and "overrides" not in asked:
        assert shortest_s == pytest.approx(schedule.look_ahead_s())


submission = st.tuples(
    st.integers(0, 200).map(lambda number: number * 1e-4), st.integers(0, 3), st.integers(0, 3), st.integers(60, 1514)
).filter(lambda one: one[1] != one[2])
LINKS = (
    MODEL,
    model(jitter="0.5 ms", loss=0.2),
    model(loss=0.3, loss_burst=3, queue="5 packets"),
    model(up="3 Mbit/s", overrides={2: {"latency": "0.3 ms", "queue": "3 kB"}}),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(submission, min_size=1, max_size=60), st.sampled_from([1e-4, 7e-4, 4e-3]), st.sampled_from(LINKS))
def test_how_often_the_relay_looks_changes_nothing(
    submissions: list[tuple[float, int, int, int]], step_s: float, asked: RelayModel
) -> None:
    """A relay that is late sends late, but it loses no capacity: the due times stay the same."""
    often, seldom = run(asked, submissions, 5e-5), run(asked, submissions, step_s)
    assert set(often.refused) == set(seldom.refused)
    if len({time_s for time_s, *_ in submissions}) == len(submissions):  # else the order is the relay's to choose
        assert often.ends_s == pytest.approx(seldom.ends_s)
        assert set(often.lost) == set(seldom.lost)


@settings(max_examples=60, deadline=None)
@given(st.lists(submission, min_size=1, max_size=60))
def test_no_frame_is_early_and_no_link_is_faster_than_asked(submissions: list[tuple[float, int, int, int]]) -> None:
    gone = left(MODEL, submissions)
    for due_s, dst, number in gone:
        time_s, _, asked_dst, num_bytes = submissions[number]
        assert dst == asked_dst
        assert due_s >= time_s + LATENCY_S + 2 * num_bytes * 1e-6 - 1e-12
    for node in range(4):
        ends = sorted((due_s, submissions[number][3] * 1e-6) for due_s, dst, number in gone if dst == node)
        for (earlier_s, _), (later_s, duration_s) in pairwise(ends):
            assert later_s - earlier_s >= duration_s - 1e-12
