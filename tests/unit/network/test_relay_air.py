"""The shared air in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from bwbench.network.relay.air import SharedSchedule
from bwbench.network.relay.schedule import NEVER, LinkModel

LATENCY_S = 0.0025
MODEL = LinkModel(bandwidth_bps=8e6, latency_s=LATENCY_S, jitter_s=0.0, loss=0.0, queue_bytes=64_000)
Submission = tuple[float, int, int, int]


def run(
    submissions: Sequence[Submission], step_s: float = 1e-4, model: LinkModel = MODEL
) -> list[tuple[float, int, int]]:
    dropped: list[int] = []
    schedule = SharedSchedule[int](model, 4, lambda src, dst, frame, entered: dropped.append(frame))
    left = []
    waiting = sorted(enumerate(submissions), key=lambda item: item[1][0])
    polled_s = 0.0
    while waiting or schedule.next_time() != NEVER:
        while waiting and waiting[0][1][0] <= polled_s:
            number, (time_s, src, dst, num_bytes) = waiting.pop(0)
            schedule.submit(time_s, src, dst, num_bytes, number)
        schedule.advance(polled_s)
        while (due := schedule.pop_due(polled_s)) is not None:
            left.append(due)
        polled_s += step_s
    assert len(left) + len(dropped) == len(submissions)
    return left


def test_a_frame_crosses_the_air_twice() -> None:
    ((due_s, dst, _),) = run([(0.0, 0, 2, 1000)])
    assert (due_s, dst) == (pytest.approx(2 * 1000e-6 + LATENCY_S), 2)


def test_one_pair_gets_half_of_the_air() -> None:
    left = run([(0.0, 0, 1, 1000)] * 60)
    steady_s = left[40][0] - left[20][0]
    assert 20 * 1000 * 8 / steady_s == pytest.approx(4e6, rel=0.05)


def test_all_stations_share_one_air() -> None:
    """However many pairs talk, each frame takes two crossings of the one air."""
    frames = [(0.0, src, (src + 1) % 4, 1000) for _ in range(15) for src in range(4)]
    assert run(frames)[-1][0] == pytest.approx(2 * len(frames) * 1000e-6, rel=0.05)


def test_stations_take_turns() -> None:
    """A station with little to send does not wait behind all that another one has."""
    frames = [(0.0, 0, 3, 1000)] * 40 + [(0.0, 1, 3, 1000)] * 4
    ends = {number: due_s for due_s, _, number in run(frames)}
    assert max(ends[number] for number in range(40, 44)) < ends[20]


def test_the_turns_are_fair_in_the_long_run() -> None:
    frames = [(0.0, src, 3, 1000) for src in (0, 1, 2) for _ in range(20)]
    first = Counter(frames[number][1] for _, _, number in run(frames)[:30])
    assert max(first.values()) - min(first.values()) <= 1


def test_a_frame_on_its_way_to_the_access_point_keeps_nobody_waiting() -> None:
    """The air is free while the first frame takes its latency."""
    left = run([(0.0, 0, 1, 1000), (0.0015, 2, 3, 1000)])
    assert left[0][0] == pytest.approx(0.001 + LATENCY_S + 0.001)
    assert left[1][0] == pytest.approx(0.0015 + 0.001 + LATENCY_S + 0.001)


def test_a_full_queue_drops() -> None:
    small = LinkModel(**{**vars(MODEL), "queue_bytes": 5000})
    assert len(run([(0.0, 0, 1, 1000)] * 20, model=small)) == 5


def test_how_often_the_relay_looks_changes_nothing() -> None:
    frames = [
        (number * 3e-4, number % 4, (number + 1 + number % 3) % 4, 200 + number * 7 % 1300) for number in range(60)
    ]
    frames = [frame for frame in frames if frame[1] != frame[2]]
    often, seldom = run(frames, step_s=1e-4), run(frames, step_s=2e-3)
    assert [one[1:] for one in often] == [one[1:] for one in seldom]
    assert [due_s for due_s, *_ in often] == pytest.approx([due_s for due_s, *_ in seldom])
