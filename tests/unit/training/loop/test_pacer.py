from __future__ import annotations

import time

import pytest

from bwbench.training.loop.step import Pacer


def paced(step_time_s: float) -> Pacer:
    """In a step, of which always the same is asked."""
    pacer = Pacer(lambda step, clock_s: step_time_s)
    pacer.begin_step(1, 0.0)
    return pacer


def test_pads_to_the_step_time_minus_what_still_comes():
    pacer = paced(0.100)
    for tail_s in (0.019, 0.020, 0.500):  # one disturbed step does not count
        pacer.observe(tail_s)
    assert pacer.missing_s(0.030) == pytest.approx(0.050)


def test_each_step_is_asked_for_its_own_time():
    pacer = Pacer(lambda step, clock_s: 0.010 * step + clock_s)
    for step, clock_s in ((1, 0.0), (2, 0.0), (2, 5.0)):
        pacer.begin_step(step, clock_s)
        assert pacer.missing_s(0.004) == pytest.approx(0.010 * step + clock_s - 0.004)


def test_a_pass_that_is_declared_is_taken_off_in_its_own_step_beside_what_was_observed():
    pacer = paced(0.100)
    pacer.observe(0.005)
    assert [pacer.missing_s(0.030, declared_s) for declared_s in (0.0, 0.040, 0.090)] == pytest.approx(
        [0.065, 0.025, 0.0]
    )


def test_a_step_that_is_too_slow_is_not_padded():
    pacer = paced(0.010)
    pacer.observe(0.008)
    assert pacer.missing_s(0.005) == 0.0


def test_no_step_time_no_padding():
    pacer = Pacer(None)
    pacer.begin_step(1, 0.0)
    pacer.observe(1.0)
    assert pacer.missing_s(0.0) == 0.0


def test_pad_sleeps(monkeypatch):
    slept_s = []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    paced(0.05).pad(0.01)
    paced(0.05).pad(0.06)
    assert slept_s == [pytest.approx(0.04)]
