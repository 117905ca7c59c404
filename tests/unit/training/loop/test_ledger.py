from __future__ import annotations

import pytest

from bwbench.methods.algorithms import ExchangeReport
from bwbench.training.loop.checkpoints import LedgerCheck
from bwbench.training.loop.step import PARTS, StepLedger


class Clock:
    now = 5.0

    def now_s(self):
        return self.now


def book(clock, ledger, part, seconds):
    clock.now += seconds
    return ledger.lap(part)


def test_parts_add_up_to_the_duration():
    clock = Clock()
    ledger = StepLedger(clock)
    for i, part in enumerate(PARTS):
        assert book(clock, ledger, part, 1.0 + i) == pytest.approx(1.0 + i)
    book(clock, ledger, "compute_s", 0.5)
    assert ledger.parts["compute_s"] == pytest.approx(1.5)
    assert ledger.duration_s == pytest.approx(sum(ledger.parts.values()))
    assert ledger.error_s == pytest.approx(0.0)


def test_an_exchange_is_split_as_reported():
    clock = Clock()
    ledger = StepLedger(clock)
    book(clock, ledger, "compute_s", 1.0)
    clock.now += 0.50
    ledger.exchange(ExchangeReport(ready_mono_s=0.0, exposed_s=0.3, codec_s=0.15))
    assert ledger.parts["exposed_s"] == pytest.approx(0.3)
    assert ledger.parts["codec_s"] == pytest.approx(0.15)
    assert ledger.parts["other_s"] == pytest.approx(0.05)
    assert ledger.error_s == pytest.approx(0.0)


def test_waiting_inside_backward_is_taken_out_of_computing():
    clock = Clock()
    ledger = StepLedger(clock)
    book(clock, ledger, "compute_s", 1.0)
    ledger.exchange(ExchangeReport(ready_mono_s=0.0, exposed_s=0.4, hidden_s=0.4))
    assert ledger.parts["compute_s"] == pytest.approx(0.6)
    assert ledger.parts["exposed_s"] == pytest.approx(0.4)
    assert ledger.error_s == pytest.approx(0.0)


def test_a_report_that_claims_too_much_is_seen():
    clock = Clock()
    ledger = StepLedger(clock)
    book(clock, ledger, "compute_s", 1.0)
    clock.now += 0.1
    ledger.exchange(ExchangeReport(ready_mono_s=0.0, exposed_s=0.3))
    check = LedgerCheck()
    check.add(ledger.error_s, ledger.duration_s)
    assert check.error == pytest.approx(0.2 / 1.1)
    assert check.worst_step == pytest.approx(0.2 / 1.1)
