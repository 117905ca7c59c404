from __future__ import annotations

import pytest

from bwbench.base import emulated_time
from bwbench.training.loop.clock import TrainingClock


class Time:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def time(monkeypatch):
    fake = Time()
    monkeypatch.setattr(emulated_time, "time", fake)
    return fake


def test_runs_from_its_start(time):
    clock = TrainingClock()
    time.now += 50
    assert clock.start() == 150
    time.now += 3
    assert clock.now_s() == 3


def test_stands_still_while_held_even_if_nested(time):
    clock = TrainingClock()
    time.now += 1
    with clock.held():
        time.now += 10
        assert clock.now_s() == 1
        with clock.held():
            time.now += 10
        time.now += 10
        assert clock.now_s() == 1
    time.now += 2
    assert clock.now_s() == 3


def test_goes_on_after_an_error_inside(time):
    clock = TrainingClock()
    with pytest.raises(RuntimeError), clock.held():
        time.now += 5
        raise RuntimeError
    time.now += 1
    assert clock.now_s() == 1


def test_start_forgets_what_was_held(time):
    clock = TrainingClock()
    with clock.held():
        time.now += 5
    clock.start()
    assert clock.now_s() == 0


def test_a_tally_counts_while_the_clock_runs(time):
    sent = [1000]
    clock = TrainingClock(lambda: sent[0])
    sent[0] += 500
    clock.start()
    sent[0] += 7
    with clock.held():
        assert clock.tallied == 7
        sent[0] += 500
        with clock.held():
            sent[0] += 500
    sent[0] += 2
    with clock.held():
        assert clock.tallied == 9
    clock.start(3.0, tallied=40)
    sent[0] += 1
    with clock.held():
        assert clock.tallied == 41


def test_is_put_forward_while_held_and_never_back(time):
    clock = TrainingClock()
    clock.start()
    time.now += 2
    with clock.held():
        time.now += 10
        clock.put_forward(3.0)
        clock.put_forward(1.0)
        assert clock.now_s() == 3
    time.now += 1
    assert clock.now_s() == 4
