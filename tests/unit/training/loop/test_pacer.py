from __future__ import annotations

import time

import pytest

from bwbench.training.loop.step import Pacer


def test_pads_to_the_step_time_minus_what_still_comes():
    pacer = Pacer(0.100)
    for tail_s in (0.019, 0.020, 0.500):  # one disturbed step does not count
        pacer.observe(tail_s)
    assert pacer.missing_s(0.030) == pytest.approx(0.050)


def test_a_step_that_is_too_slow_is_not_padded():
    pacer = Pacer(0.010)
    pacer.observe(0.008)
    assert pacer.missing_s(0.005) == 0.0


def test_no_step_time_no_padding():
    pacer = Pacer(None)
    pacer.observe(1.0)
    assert pacer.missing_s(0.0) == 0.0


def test_pad_sleeps(monkeypatch):
    slept_s = []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    Pacer(0.05).pad(0.01)
    Pacer(0.05).pad(0.06)
    assert slept_s == [pytest.approx(0.04)]
