"""A super-packet goes from link to link as its segments would."""

from __future__ import annotations

import pytest

from tests.unit.network.relay.virtual_relay import FRAME_BYTES, LATENCY_S, model, run

SEGMENTS = 40
FRAME_S = FRAME_BYTES * 1e-6  # at 8 Mbit/s


def end_s(num_bytes: int, **asked: object) -> float:
    (left,) = run(model(2, queue="10 MB", **asked), [(0.0, 0, 1, num_bytes)]).left
    return left.due_s


def test_its_segments_do_not_wait_for_each_other() -> None:
    """They follow each other over both links, so only one of them is on its way twice."""
    assert end_s(SEGMENTS * FRAME_BYTES) == pytest.approx((SEGMENTS + 1) * FRAME_S + LATENCY_S)
    assert end_s(FRAME_BYTES) == pytest.approx(2 * FRAME_S + LATENCY_S)


@pytest.mark.parametrize("slow", ["up", "down"])
def test_the_slower_link_sets_the_pace(slow: str) -> None:
    fast = "down" if slow == "up" else "up"
    ends_s = end_s(SEGMENTS * FRAME_BYTES, bandwidth=None, **{slow: "8 Mbit/s", fast: "80 Mbit/s"})
    assert ends_s == pytest.approx((SEGMENTS + 0.1) * FRAME_S + LATENCY_S)


def test_a_row_of_them_takes_as_long_as_its_frames() -> None:
    together = run(model(2, queue="10 MB"), [(0.0, 0, 1, SEGMENTS * FRAME_BYTES)] * 5)
    single = run(model(2, queue="10 MB"), [(0.0, 0, 1, FRAME_BYTES)] * (5 * SEGMENTS))
    assert together.left[-1].due_s == pytest.approx(single.left[-1].due_s)
