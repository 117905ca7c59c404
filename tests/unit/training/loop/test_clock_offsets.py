"""Asking other ranks for their time, over messages that take a while."""

from __future__ import annotations

import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.records.schema import ComparedClock
from bwbench.training.loop import external as clock_offsets
from bwbench.training.loop.external import QUESTIONS, compare_clocks

APART_S = {0: 0.0, 1: 1234.5, 2: -77.0}
own = threading.local()


class Message:
    def wait(self) -> None:
        return None


class Wire:
    """A process group of one rank, whose messages take a millisecond, or five."""

    def __init__(self, rank: int, boxes: dict[tuple[int, int], queue.Queue[float]]) -> None:
        self._rank, self._boxes, self._sent = rank, boxes, 0

    def send(self, tensors: list[Any], peer: int, tag: int) -> Message:
        self._sent += 1
        time.sleep(1e-3 if self._sent % 4 == 0 else 5e-3)
        self._boxes[self._rank, peer].put(float(tensors[0]))
        return Message()

    def recv(self, tensors: list[Any], peer: int, tag: int) -> Message:
        tensors[0][0] = self._boxes[peer, self._rank].get(timeout=120)
        return Message()


def test_every_clock_is_found_within_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_offsets, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + APART_S[own.rank]))
    boxes = {(src, dst): queue.Queue[float]() for src in APART_S for dst in APART_S}
    found: dict[int, list[ComparedClock]] = {}

    def run(rank: int) -> None:
        own.rank = rank
        data: Any = Wire(rank, boxes)
        control: Any = SimpleNamespace(rank=rank, size=len(APART_S))
        found[rank] = compare_clocks(data, control)

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in APART_S]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join(240)
    assert found[1] == found[2] == []
    assert [one.rank for one in found[0]] == [1, 2]
    for one in found[0]:
        assert abs(one.offset_s - APART_S[one.rank]) <= one.uncertainty_s + 1e-6
        assert one.uncertainty_s < 30
    assert all(box.empty() for box in boxes.values()) and QUESTIONS > 4
