"""What a profiler's events of a GPU are made into, and the picture of them, with events that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_parts.timeline import Event, busy, draw, summary


def event(kind: str, begin_ms: float, end_ms: float) -> Event:
    return {"kind": kind, "name": kind, "begin_us": 1e3 * begin_ms, "end_us": 1e3 * end_ms, "stream": None}


EVENTS = [
    event("backward", 10, 30),
    *(event("kernel", number, number + 0.999) for number in range(5, 31)),
    event("to host", 14, 16),
    event("to host", 15, 18),  # of another thread, at the same time
    event("to host", 29, 33),
    event("to host", 20, 20.002),  # a number that was asked for
    event("to device", 18, 20),
]


def test_copies_inside_of_a_backward_pass_and_beside_kernels() -> None:
    found = summary(EVENTS)
    assert found["copies_to_host_ms"] == pytest.approx(8.0)
    assert found["inside_backward"] == pytest.approx(5 / 8)
    assert found["beside_kernels"] == pytest.approx(6 / 8, abs=1e-3)
    assert found["backward_ms"] == pytest.approx(20.0)


def test_kernels_that_follow_closely_are_one() -> None:
    (one,) = busy(EVENTS)
    assert (one["begin_us"], one["end_us"]) == (5000, pytest.approx(30999))


def test_a_picture(tmp_path: Path) -> None:
    record: dict[str, Any] = {"gpu": "made up", "method": "ring", "parameters": 25e6, "events": EVENTS}
    draw(record | {"summary": summary(EVENTS)}, tmp_path / "overlap.png")
    assert (tmp_path / "overlap.png").stat().st_size > 5_000
    draw(record | {"events": [], "summary": summary([])}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
