"""One cell at a time on a machine, whatever the environment of who asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.running.machine_turn import SHARE, MachineName, SharedTurn, machine_turn, turn_is_awaited

HOLD = """
import sys, time
from pathlib import Path
from bwbench.running.machine_turn import MachineName, machine_turn
with machine_turn(print, machine=MachineName(sys.argv[1], Path(sys.argv[2]))):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineName:
    """A machine of the test's own: nobody else's turn is taken."""
    monkeypatch.delenv(SHARE, raising=False)
    return MachineName(f"bwbench-test-{uuid.uuid4().hex}", tmp_path)


@contextmanager
def holder(machine: MachineName, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the turn."""
    command = [sys.executable, "-c", HOLD, machine.name, str(machine.folder)]
    env = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_others_wait_until_it_is_free_or_its_holder_dead(machine: MachineName, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    with holder(machine) as process:
        with pytest.raises(UnfitMachineError, match=SHARE), machine_turn(waits.append, 0.3, machine):
            pass
        assert len(waits) == 1
        with monkeypatch.context() as patch:
            patch.setenv(SHARE, "1")
            with machine_turn(waits.append, 0.1, machine):
                pass
        process.kill()
        process.wait()
    with machine_turn(waits.append, 60, machine):
        pass
    assert len(waits) == 1


@pytest.mark.parametrize("apart", ["folder", "name"])
def test_either_way_of_seeing_one_another_is_enough(machine: MachineName, tmp_path: Path, apart: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    waits: list[str] = []
    with holder(machine, TMPDIR=str(elsewhere)) as process:
        # Another folder stands for a private /tmp, a socket of another name for another network namespace. There the
        # file of the same name is made a link to the holder's, which is what a folder that both see comes to.
        other = MachineName(machine.name, elsewhere)
        if apart == "name":
            other = MachineName(f"{machine.name}-other", elsewhere)
            for which in ("machine", "next"):
                os.link(tmp_path / f"{machine.name}-{which}.lock", elsewhere / f"{other.name}-{which}.lock")
        with pytest.raises(UnfitMachineError), machine_turn(waits.append, 0.3, other):
            pass
    assert f"process {process.pid} of " in waits[0]


def test_a_stopped_holder_is_named_as_such(machine: MachineName) -> None:
    waits: list[str] = []
    with holder(machine) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        with pytest.raises(UnfitMachineError, match="stopped"), machine_turn(waits.append, 0.3, machine):
            pass
    assert f"kill -CONT {process.pid}" in waits[0]


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(machine: MachineName) -> None:
    with machine_turn(print, machine=MachineName(machine.name, machine.folder / "missing")):
        pass


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_the_lock_holds_nobody_up(machine: MachineName) -> None:
    os.mkfifo(machine.folder / f"{machine.name}-machine.lock")
    with machine_turn(print, machine=machine):
        pass


def test_who_waits_comes_before_who_asks_again(machine: MachineName) -> None:
    turns, waiting = list[str](), threading.Event()

    def other() -> None:
        with machine_turn(lambda _: waiting.set(), 60, machine):
            turns.append("other")

    with machine_turn(print, 60, machine):
        thread = threading.Thread(target=other)
        thread.start()
        assert waiting.wait(60)
    for _ in range(3):
        with machine_turn(print, 60, machine):
            turns.append("again")
    thread.join()
    assert turns == ["other", "again", "again", "again"]


def test_a_shared_turn_lasts_from_the_first_to_the_last_who_holds_it(machine: MachineName) -> None:
    shared, waits = SharedTurn(machine), list[str]()
    first, second = shared.held(waits.append), shared.held(waits.append)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(UnfitMachineError), machine_turn(waits.append, 0.1, machine):
        pass
    second.__exit__(None, None, None)
    with machine_turn(waits.append, 0.1, machine), pytest.raises(UnfitMachineError):
        with machine_turn(waits.append, 0.1, machine):
            pass
    with shared.held(waits.append):
        pass


def test_who_shares_a_turn_is_told_that_somebody_waits_for_it(machine: MachineName) -> None:
    seen: list[bool] = []
    assert not turn_is_awaited(machine)
    with machine_turn(print, machine=machine):
        assert not turn_is_awaited(machine)
        with pytest.raises(UnfitMachineError):
            with machine_turn(lambda _: seen.append(turn_is_awaited(machine)), 0.1, machine):
                pass
    assert seen == [True]
