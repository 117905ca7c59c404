"""Who computes or sends gets on; who was stopped, or waits for others that wait as well, does not."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from bwbench.base.plain_data import Json, JsonObject
from bwbench.experiment.config.resolve import resolve
from bwbench.running.launch.liveness import ALONE_LIMIT_S, STALL_AFTER_S, STOPPED_AFTER_S, Stalls, is_stopped
from bwbench.running.launch.local import quiet_steps


def said_after(seconds: int, computing: list[bool], stopped: int | None = None, sends: bool = False) -> str | None:
    """The first verdict within so many seconds, one look each."""
    stalls = Stalls(len(computing))
    for second in range(seconds + 1):
        used = [second * 0.9 if busy else second * 0.001 for busy in computing]
        stalls.look(float(second), used, [rank == stopped for rank in range(len(used))], second if sends else 0)
        if (reason := stalls.verdict(float(second))) is not None:
            return reason
    return None


def test_computing_on_all_ranks_is_no_stall_however_long() -> None:
    assert said_after(5000, [True, True]) is None


def test_sending_is_no_stall_however_long() -> None:
    assert said_after(5000, [False, False], sends=True) is None


def test_all_waiting_is_one() -> None:
    assert "no rank has computed or sent" in str(said_after(int(STALL_AFTER_S) + 6, [False, False]))


def test_one_that_computes_on_does_not_hold_the_others_for_ever() -> None:
    assert said_after(int(ALONE_LIMIT_S) - 5, [False, True]) is None
    assert "rank 1 computes while all others wait" in str(said_after(int(ALONE_LIMIT_S) + 10, [False, True]))


def test_a_stopped_rank_is_named_even_while_others_work() -> None:
    reason = str(said_after(int(STOPPED_AFTER_S) + 2, [True, True, True], stopped=1, sends=True))
    assert reason.startswith("rank 1 was stopped")


def test_declared_pauses_are_waited_for() -> None:
    stalls = Stalls(1, pause_s=60.0)
    for second in range(80):
        stalls.look(float(second), [0.0], [False], 0)
        assert stalls.verdict(float(second)) is None


def test_the_state_of_a_process() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while not is_stopped(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_stopped(process.pid)
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(process.pid)


@pytest.mark.parametrize(
    ("algorithm", "every", "steps"),
    [
        ("ring", 640, 1),
        ({"local-sgd": {"period": 8}}, 640, 8),
        ("no-communication", 640, 10),
        ("no-communication", 10_000, 50),
        ("single", 640, 40),
    ],
)
def test_what_sends_nothing_is_quiet_until_the_next_evaluation(
    tmp_path: Path, algorithm: Json, every: int, steps: int
) -> None:
    asked = {"nodes": 4, "link": {"bandwidth": "10 Mbit/s"}, "model": "logistic", "batch_size": 16}
    limits: JsonObject = {"evaluate": {"every": f"{every} samples"}, "limit": {"samples": 3200}}
    config = resolve({**asked, **limits, "algorithm": algorithm}, (), tmp_path).config
    assert config is not None and quiet_steps(config) == steps
