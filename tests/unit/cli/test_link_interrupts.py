"""Ctrl-C while an interface is being changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bwbench.cli.link.real_interface import DeferredInterrupts

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Handlers as the command line has them, even where the tests run in the background."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_noted_and_a_second_one_is_heard(number: int) -> None:
    with DeferredInterrupts() as interrupts:
        assert not interrupts.asked
        os.kill(os.getpid(), number)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt):  # as before
        os.kill(os.getpid(), number)


def test_waiting_ends_with_the_signal() -> None:
    with DeferredInterrupts() as interrupts:
        assert not interrupts.wait(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.wait(3600.0)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with DeferredInterrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interrupts.asked
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
