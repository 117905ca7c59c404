"""The training's time: what a factor makes of waiting, of computing, and of what libraries compute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from bwbench.base import emulated_time


class Machine:
    """A machine whose clocks stand still unless it is told to compute, to wait or to sleep."""

    def __init__(self) -> None:
        self.now_s, self.process_s = 100.0, 5.0
        self.of_threads_s: dict[int, float] = {}
        self.late_s = 0.0  # by which it wakes up too late

    def compute(self, seconds: float) -> None:
        own = threading.get_native_id()
        self.of_threads_s[own] = self.of_threads_s.get(own, 0.0) + seconds
        self.process_s += seconds
        self.now_s += seconds

    def libraries_compute(self, seconds: float) -> None:
        self.process_s += seconds
        self.now_s += seconds

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.late_s

    def thread_time(self) -> float:
        return self.of_threads_s.get(threading.get_native_id(), 0.0)

    def clock_gettime(self, clock: int) -> float:
        thread = ~(clock >> 3)
        if thread not in self.of_threads_s:
            raise OSError
        return self.of_threads_s[thread]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Restored with the factor of 1 that every other test relies on."""
    found = Machine()
    monkeypatch.setattr(time, "monotonic", lambda: found.now_s)
    monkeypatch.setattr(time, "process_time", lambda: found.process_s)
    for name in ("thread_time", "sleep", "clock_gettime"):
        monkeypatch.setattr(time, name, getattr(found, name))
    yield found
    emulated_time.dilate(1.0)


def test_without_a_factor_nothing_sleeps_and_the_clock_is_the_machines(machine: Machine) -> None:
    emulated_time.catch_up(of_libraries=True)
    machine.compute(3.0)
    emulated_time.catch_up(of_libraries=True)
    assert machine.now_s == 103.0
    assert emulated_time.monotonic() == 103.0


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0, 7.5])
def test_waiting_is_divided_and_computing_takes_what_it_takes(machine: Machine, factor: float) -> None:
    emulated_time.dilate(factor)
    emulated_time.catch_up()
    began_s = emulated_time.monotonic()
    machine.sleep(6.0)
    machine.compute(2.0)
    emulated_time.catch_up()
    emulated_time.sleep(1.5)
    assert emulated_time.monotonic() - began_s == pytest.approx(6.0 / factor + 2.0 + 1.5)
    assert emulated_time.machine_s(1.5) == 1.5 * factor


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_what_is_shrunk_is_work_on_vectors_and_nothing_else(machine: Machine, factor: float) -> None:
    emulated_time.dilate(factor, work=8.0)
    emulated_time.catch_up()
    began_s = emulated_time.monotonic()
    machine.compute(0.5)  # a message, a step: as many as there would be of the whole
    with emulated_time.work_on_vectors():
        machine.compute(0.25)
        with emulated_time.work_on_vectors():
            machine.compute(0.125)
        emulated_time.catch_up()
        machine.compute(0.125)
    machine.compute(0.5)
    emulated_time.catch_up()
    assert emulated_time.monotonic() - began_s == pytest.approx(0.5 + 8 * 0.5 + 0.5)


@pytest.mark.parametrize("work", [0.25, 0.5, 1.0])
def test_on_a_faster_device_work_on_vectors_alone_takes_less(machine: Machine, work: float) -> None:
    emulated_time.dilate(4.0, work)
    emulated_time.catch_up()
    began_s = emulated_time.monotonic()
    machine.compute(0.5)
    with emulated_time.work_on_vectors():
        machine.compute(2.0)
    machine.compute(0.5)
    emulated_time.catch_up()
    assert emulated_time.monotonic() - began_s == pytest.approx(0.5 + work * 2.0 + 0.5)
    machine.compute(1.0)
    emulated_time.forget_computed()
    before_s = machine.now_s
    emulated_time.catch_up()
    assert machine.now_s == before_s


def test_rounding_puts_no_clock_back(machine: Machine) -> None:
    emulated_time.dilate(49.0, 1 / 49)
    emulated_time.catch_up()
    began_s = emulated_time.monotonic()
    with emulated_time.work_on_vectors():
        machine.compute(49.0)
    assert emulated_time.monotonic() - began_s == pytest.approx(1.0)


def test_threads_shrink_what_they_compute_themselves(machine: Machine) -> None:
    emulated_time.dilate(1.0, work=8.0)
    emulated_time.catch_up()

    def work() -> None:
        emulated_time.catch_up()
        machine.compute(1.0)
        emulated_time.catch_up()

    began_s = machine.now_s
    with emulated_time.work_on_vectors():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert machine.now_s - began_s == 1.0


def test_what_is_forgotten_is_not_owed(machine: Machine) -> None:
    emulated_time.dilate(4.0)
    emulated_time.catch_up(of_libraries=True)
    machine.compute(5.0)
    machine.libraries_compute(1.0)
    emulated_time.forget_computed()
    before_s = machine.now_s
    emulated_time.catch_up(of_libraries=True)
    assert machine.now_s == before_s


@pytest.mark.parametrize(("factor", "work"), [(0.25, 4.0), (0.25, 16.0), (4.0, 2.0)])
def test_software_on_less_takes_as_many_times_as_long_and_no_clock_is_put_back(
    machine: Machine, factor: float, work: float
) -> None:
    emulated_time.dilate(factor, work)
    emulated_time.forget_computed()
    began_s = emulated_time.monotonic()
    with emulated_time.work_on_vectors():
        machine.compute(2.0)
    machine.libraries_compute(1.0)
    machine.sleep(1.0)
    emulated_time.catch_up(of_libraries=True)
    assert machine.now_s == pytest.approx(100.0 + 1.0 + 1.0 + 2.0 * factor * work)
    assert emulated_time.monotonic() - began_s == pytest.approx(2.0 * work + 2.0 / factor)


def test_what_a_message_costs_by_itself_is_not_taken_back_where_no_clock_is_put_back(machine: Machine) -> None:
    emulated_time.dilate(0.25, 16.0)
    emulated_time.forget_computed()
    began_s = emulated_time.monotonic()
    machine.compute(2.0)
    emulated_time.catch_up(of_libraries=True)
    assert machine.now_s == 102.0
    assert emulated_time.monotonic() - began_s == pytest.approx(8.0)


def test_what_libraries_compute_is_caught_up_with_once_and_only_where_it_is_asked(machine: Machine) -> None:
    emulated_time.dilate(0.5)
    emulated_time.forget_computed()
    began_s = emulated_time.monotonic()
    machine.libraries_compute(2.0)
    emulated_time.catch_up()
    assert emulated_time.monotonic() == began_s + 4.0
    emulated_time.catch_up(of_libraries=True)
    emulated_time.catch_up(of_libraries=True)
    assert emulated_time.monotonic() == began_s + 2.0


def test_what_is_computed_at_the_same_time_has_the_clock_put_back_once(machine: Machine) -> None:
    emulated_time.dilate(0.25)
    emulated_time.forget_computed()
    began_s = emulated_time.monotonic()
    machine.compute(2.0)
    machine.process_s += 1.5  # of libraries, on another processor meanwhile
    emulated_time.catch_up(of_libraries=True)
    assert emulated_time.monotonic() - began_s == pytest.approx(2.0)
    machine.libraries_compute(1.0)
    emulated_time.catch_up(of_libraries=True)
    assert emulated_time.monotonic() - began_s == pytest.approx(3.0)


def test_slowed_down_libraries_are_left_as_they_are(machine: Machine) -> None:
    emulated_time.dilate(3.0)
    emulated_time.forget_computed()
    machine.libraries_compute(2.0)
    before_s = machine.now_s
    emulated_time.catch_up(of_libraries=True)
    assert machine.now_s == before_s


def test_a_thread_that_catches_up_by_itself_is_no_library_even_once_it_has_ended(machine: Machine) -> None:
    emulated_time.dilate(0.5)
    emulated_time.forget_computed()

    def work() -> None:
        emulated_time.catch_up()
        machine.compute(1.0)
        emulated_time.catch_up(of_libraries=True)
        worker.append(threading.get_native_id())

    worker: list[int] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    before_s = emulated_time.monotonic()
    emulated_time.catch_up(of_libraries=True)
    del machine.of_threads_s[worker[0]]
    emulated_time.catch_up(of_libraries=True)
    assert emulated_time.monotonic() == before_s


def test_waking_up_late_is_taken_off_what_is_owed_next(machine: Machine) -> None:
    emulated_time.dilate(2.0)
    emulated_time.catch_up()
    machine.late_s = 0.25
    began_s = machine.now_s
    for _ in range(8):
        machine.compute(1.0)
        emulated_time.catch_up()
    assert machine.now_s - began_s == pytest.approx(16.25)


def test_little_is_owed_until_it_is_worth_a_sleep(machine: Machine) -> None:
    emulated_time.dilate(2.0)
    emulated_time.catch_up()
    machine.late_s = 0.0
    began_s = machine.now_s
    for _ in range(10):
        machine.compute(emulated_time.SHORTEST_SLEEP_S / 4)
        emulated_time.catch_up()
    owed_s = machine.now_s - began_s - 10 * emulated_time.SHORTEST_SLEEP_S / 4
    assert 10 * emulated_time.SHORTEST_SLEEP_S / 4 - owed_s <= emulated_time.SHORTEST_SLEEP_S


def test_real_threads_have_clocks_of_their_own() -> None:
    emulated_time.dilate(0.999)
    try:
        emulated_time.forget_computed()
        thread = threading.Thread(target=lambda: sum(i * i for i in range(200_000)))
        thread.start()
        thread.join()
        assert emulated_time._libraries_cpu_s() > 1e-3
    finally:
        emulated_time.dilate(1.0)
