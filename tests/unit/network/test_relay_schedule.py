"""The switched link in virtual time: what a frame takes, what saturation carries, who shares what."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.network.relay.schedule import NEVER, LinkModel, SwitchedSchedule

BANDWIDTH_BPS = 8e6  # a byte takes a microsecond
LATENCY_S = 0.0025
Submission = tuple[float, int, int, int]  # time, src, dst, bytes
Left = tuple[float, int, int]  # time, dst, number of the submission


def model(**changes: float) -> LinkModel:
    asked = LinkModel(BANDWIDTH_BPS, LATENCY_S, jitter_s=0.0, loss=0.0, queue_bytes=64_000)
    return replace(asked, **changes)  # type: ignore[arg-type]


def run(asked: LinkModel, submissions: Sequence[Submission], step_s: float, num_nodes: int = 4) -> list[Left]:
    """Let a relay look every ``step_s``: what left when, in the order in which it did."""
    drops: list[int] = []
    schedule = SwitchedSchedule[int](asked, num_nodes, lambda src, dst, frame, entered: drops.append(frame))
    left: list[Left] = []
    waiting = sorted(enumerate(submissions), key=lambda item: item[1][0])
    polled_s = min(time_s for time_s, *_ in submissions)
    while waiting or schedule.next_time() != NEVER:
        while waiting and waiting[0][1][0] <= polled_s:
            number, (time_s, src, dst, num_bytes) = waiting.pop(0)
            schedule.submit(time_s, src, dst, num_bytes, number)
        schedule.advance(polled_s)
        while (due := schedule.pop_due(polled_s)) is not None:
            left.append(due)
        polled_s += step_s
    assert len(left) + len(drops) == len(submissions)
    return left


def test_a_frame_takes_both_serialisations_and_the_latency() -> None:
    ((due_s, dst, _),) = run(model(), [(1.0, 0, 3, 1514)], step_s=1e-4)
    assert due_s == pytest.approx(1.0 + 2 * 1514e-6 + LATENCY_S)
    assert dst == 3


def test_a_saturated_link_carries_its_rate() -> None:
    left = run(model(), [(0.0, 0, 1, 1000)] * 64, step_s=1e-3)
    gaps = {round(later[0] - earlier[0], 9) for earlier, later in zip(left, left[1:], strict=False)}
    assert gaps == {1e-3}


def test_three_to_one_and_one_to_three_take_equally_long() -> None:
    to_one = run(model(), [(0.0, src, 0, 1000) for src in (1, 2, 3) for _ in range(10)], step_s=1e-3)
    to_three = run(model(), [(0.0, 0, dst, 1000) for dst in (1, 2, 3) for _ in range(10)], step_s=1e-3)
    assert to_one[-1][0] == pytest.approx(to_three[-1][0], rel=0.02)


def test_both_directions_are_independent() -> None:
    both = run(model(), [(0.0, 0, 1, 1000)] * 20 + [(0.0, 1, 0, 1000)] * 20, step_s=1e-3)
    one = run(model(), [(0.0, 0, 1, 1000)] * 20, step_s=1e-3)
    assert both[-1][0] == pytest.approx(one[-1][0])


def test_a_full_queue_drops_what_comes_last() -> None:
    left = run(model(queue_bytes=10_000), [(0.0, 0, 1, 1000)] * 30, step_s=1e-3)
    assert [number for _, _, number in left] == list(range(10))


def test_the_receivers_queue_drops_too() -> None:
    """Two senders, each within its own uplink, are too many for one downlink."""
    submissions = [(number * 1e-3, src, 0, 1000) for number in range(40) for src in (1, 2)]
    assert len(run(model(queue_bytes=10_000), submissions, step_s=1e-3)) < 60


def test_an_empty_queue_takes_a_frame_larger_than_itself() -> None:
    assert len(run(model(queue_bytes=1000), [(0.0, 0, 1, 60_000)], step_s=1e-3)) == 1


def test_loss_is_the_share_that_was_asked() -> None:
    frames = [(number * 1e-3, 0, 1, 100) for number in range(5000)]
    assert len(run(model(loss=0.1), frames, step_s=1e-3)) == pytest.approx(4500, abs=100)


def test_jitter_has_its_spread_and_keeps_the_order() -> None:
    frames = [(number * 0.1, 0, 1, 100) for number in range(400)]
    left = run(model(jitter_s=0.0005), frames, step_s=1e-2)
    delays_s = [due_s - frames[number][0] for due_s, _, number in left]
    assert statistics.mean(delays_s) == pytest.approx(LATENCY_S + 200e-6, rel=0.05)
    assert statistics.stdev(delays_s) == pytest.approx(0.0005, rel=0.2)
    dense = run(model(jitter_s=0.0005), [(number * 1e-4, 0, 1, 50) for number in range(400)], step_s=1e-3)
    assert [number for _, _, number in dense] == sorted(number for _, _, number in dense)


submission = st.tuples(
    st.integers(0, 200).map(lambda number: number * 1e-4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(60, 1514),
).filter(lambda one: one[1] != one[2])


@settings(max_examples=60, deadline=None)
@given(st.lists(submission, min_size=1, max_size=60), st.sampled_from([1e-4, 7e-4, 4e-3]))
def test_how_often_the_relay_looks_changes_nothing(submissions: list[Submission], step_s: float) -> None:
    """A relay that is late sends late, but it loses no capacity: the due times stay the same."""
    often = run(model(), submissions, step_s=5e-5)
    seldom = run(model(), submissions, step_s=step_s)
    by_number = [sorted(left, key=lambda one: one[2]) for left in (often, seldom)]
    assert [one[1:] for one in by_number[0]] == [one[1:] for one in by_number[1]]
    assert [one[0] for one in by_number[0]] == pytest.approx([one[0] for one in by_number[1]])


@settings(max_examples=60, deadline=None)
@given(st.lists(submission, min_size=1, max_size=60))
def test_no_frame_is_early_and_no_link_is_faster_than_asked(submissions: list[Submission]) -> None:
    left = run(model(), submissions, step_s=1e-3)
    for due_s, dst, number in left:
        time_s, _, asked_dst, num_bytes = submissions[number]
        assert dst == asked_dst
        assert due_s >= time_s + LATENCY_S + 2 * num_bytes * 1e-6 - 1e-12
    for node in range(4):
        ends = sorted((due_s, submissions[number][3] * 1e-6) for due_s, dst, number in left if dst == node)
        for (earlier_s, _), (later_s, duration_s) in zip(ends, ends[1:], strict=False):
            assert later_s - earlier_s >= duration_s - 1e-12
