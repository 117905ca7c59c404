"""When the relay wakes up, in virtual time."""

from __future__ import annotations

import random

import pytest

from bwbench.network.relay.relay_loop import WakeUp

TAKES_S = 40e-6
PACKET_S = 0.0012  # a full frame at 10 Mbit/s


def leave(due_s: list[float], look_ahead_s: float = 0.0025, packet_s: float = PACKET_S) -> tuple[list[float], int]:
    """How late each frame leaves, and how often the relay woke up, if waking up always takes as long."""
    wake_up, waiting, lateness_s, times = WakeUp(look_ahead_s, packet_s), sorted(due_s)[::-1], [], 0
    while waiting:
        until_s = wake_up.time_for(waiting[-1], waiting[-1])
        now_s = until_s + TAKES_S
        wake_up.woke(TAKES_S)
        times += 1
        late_s = []
        while waiting and waiting[-1] <= now_s + wake_up.early_s:
            late_s.append(now_s - waiting.pop())
        if late_s:
            wake_up.sent(len(late_s), sum(late_s))
        lateness_s += late_s
    return lateness_s, times


def test_a_frame_by_itself_leaves_when_it_is_due() -> None:
    lateness_s, times = leave([number * 0.01 for number in range(1000)])
    assert times == 1000
    assert all(abs(late_s) < 5e-6 for late_s in lateness_s[100:])


def test_crowds_leave_together_and_are_right_on_average() -> None:
    draw = random.Random(1)
    due_s = [draw.random() * 2 for _ in range(2 * 10_000)]
    lateness_s, times = leave(due_s)
    assert times < 0.4 * len(due_s)
    settled_s = lateness_s[1000:]
    assert abs(sum(settled_s) / len(settled_s)) < 15e-6
    assert max(map(abs, settled_s)) < 300e-6


@pytest.mark.parametrize("look_ahead_s, most_s", [(0.0, 60e-6), (1e-4, 60e-6), (0.001, 110e-6), (0.1, 300e-6)])
def test_a_short_link_is_kept_to_more_exactly(look_ahead_s: float, most_s: float) -> None:
    draw = random.Random(1)
    lateness_s, _ = leave([draw.random() * 0.2 for _ in range(10_000)], look_ahead_s)
    assert max(map(abs, lateness_s[1000:])) < most_s


@pytest.mark.parametrize("packet_s, most_s", [(12e-6, 60e-6), (120e-6, 70e-6), (240e-6, 130e-6)])
def test_fast_links_get_no_bursts_of_several_packets(packet_s: float, most_s: float) -> None:
    draw = random.Random(1)
    lateness_s, _ = leave([draw.random() * 0.2 for _ in range(10_000)], packet_s=packet_s)
    assert max(map(abs, lateness_s[1000:])) < most_s


def test_a_relay_that_was_late_for_once_does_not_hurry_afterwards() -> None:
    wake_up = WakeUp(0.0025, PACKET_S)
    wake_up.sent(50, 50 * 0.1)
    wake_up.woke(0.1)
    assert abs(wake_up.time_for(1.0, 1.0) - 1.0) < 50e-6
    assert wake_up.early_s <= 400e-6


def test_a_decision_is_not_made_before_its_time() -> None:
    wake_up = WakeUp(0.0025, PACKET_S)
    for _ in range(200):
        wake_up.woke(TAKES_S)
    assert wake_up.time_for(1.0, 2.0) == 1.0
    assert wake_up.time_for(1.0, 1.0) == pytest.approx(1.0 - TAKES_S, abs=1e-6)
    assert wake_up.time_to_look(1.0) == pytest.approx(1.0 - TAKES_S, abs=1e-6)
