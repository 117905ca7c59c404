"""In which order a GPU is told what, with a torch.cuda that only writes down what it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from bwbench.methods.devices import DONE, HOST, CudaDevice, device_of

Told = list[tuple[str, ...]]


class Stream:
    def __init__(self, told: Told, name: str) -> None:
        self.told, self.name = told, name

    def wait_event(self, event: Event) -> None:
        self.told.append((self.name, "waits for", event.name))


class Event:
    def __init__(self, told: Told, *, blocking: bool) -> None:
        assert blocking, "who waits sleeps"
        self.told, self.name = told, ""

    def record(self, stream: Stream) -> None:
        self.name = f"mark {sum(one[1:2] == ('marks',) for one in self.told) + 1}"
        self.told.append((stream.name, "marks", self.name))

    def synchronize(self) -> None:
        self.told.append(("host", "reaches", self.name))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told: Told = []
    current = threading.local()
    names = iter(("first side", "second side"))

    def current_stream(index: int) -> Stream:
        assert index == 3
        found: Stream | None = getattr(current, "stream", None)
        return found or Stream(told, "main")

    @contextmanager
    def stream(one: Stream) -> Iterator[None]:
        before, current.stream = getattr(current, "stream", None), one
        yield
        current.stream = before

    def new_stream(index: int, priority: int) -> Stream:
        assert (index, priority) == (3, -1)
        return Stream(told, next(names))

    fakes: dict[str, Any] = {
        "current_stream": current_stream,
        "stream": stream,
        "Stream": new_stream,
        "Event": lambda blocking: Event(told, blocking=blocking),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return told


def test_a_job_begins_behind_its_mark_and_ends_before_it_counts_as_done(told: Told) -> None:
    device = CudaDevice(3)
    mark = device.mark()
    for _ in range(2):  # the same queue again
        with device.beside(mark):
            told.append(("job",))
    job = [("first side", "waits for", "mark 1"), ("job",)]
    ends = [[("first side", "marks", f"mark {number}"), ("host", "reaches", f"mark {number}")] for number in (2, 3)]
    assert told == [("main", "marks", "mark 1"), *job, *ends[0], *job, *ends[1]]


def test_what_is_left_under_way_is_waited_for_by_its_own_mark(told: Told) -> None:
    device = CudaDevice(3)
    with device.beside(device.mark(), finish=False):
        copied = device.mark()
    told.append(("more computing",))
    copied.reach()
    assert told[-3:] == [("first side", "marks", "mark 2"), ("more computing",), ("host", "reaches", "mark 2")]


def test_every_thread_has_its_own_queue(told: Told) -> None:
    device = CudaDevice(3)
    with device.beside(DONE):
        pass
    thread = threading.Thread(target=lambda: device.beside(device.mark()).__enter__())
    thread.start()
    thread.join()
    assert {one for one, *_ in told} == {"first side", "host", "main", "second side"}


def test_a_job_that_fails_is_waited_for_too(told: Told) -> None:
    with pytest.raises(ValueError), CudaDevice(3).beside(DONE):
        raise ValueError
    assert told[-1][:2] == ("host", "reaches")


def test_the_host_is_always_done() -> None:
    device = device_of(torch.zeros(1))
    assert device is HOST and device.mark() is DONE and not device.elsewhere
    with device.beside(device.mark()):
        device.finish()
    DONE.wait()
    DONE.reach()
    assert device_of(torch.empty(1, device="meta")) is HOST, "what is sent for it is written on the host"
