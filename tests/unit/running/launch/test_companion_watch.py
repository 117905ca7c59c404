"""Whether a worker gets on, seen from its own host."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from bwbench.running.launch.liveness import IDLE_LIMIT_S, CompanionWatch


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_worker_that_waits_for_too_long_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    watch = CompanionWatch(sleeper.pid, ["10.0.0.1", "10.0.0.2"], None)
    assert watch.look(1000.0) is None
    assert watch.look(1000.0 + IDLE_LIMIT_S - 1) is None
    assert "waited for its peers for 302 s" in str(watch.look(1002.0 + IDLE_LIMIT_S))


def test_a_word_of_the_worker_begins_the_wait_anew(sleeper: subprocess.Popen[bytes]) -> None:
    watch = CompanionWatch(sleeper.pid, [], None)
    watch.look(1000.0)
    watch.heard(1250.0)
    assert watch.look(1400.0) is None


def test_a_stopped_worker_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    watch, deadline = CompanionWatch(sleeper.pid, [], None), time.monotonic() + 5
    while watch._stopped_s is None and time.monotonic() < deadline:
        watch.look(1000.0)
    assert "was stopped (SIGSTOP) 25 s ago" in str(watch.look(1025.0))


def test_one_that_computes_gets_on() -> None:
    watch = CompanionWatch(os.getpid(), [], None)
    watch.look(0.0)
    sum(range(3_000_000))
    assert watch.look(0.5) is None
    assert watch.look(0.5 + IDLE_LIMIT_S - 1) is None
