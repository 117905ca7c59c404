"""One cell at a time on a machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.running.run_cell import SHARE, machine_turn

HOLD = """
import time
from bwbench.running.run_cell import machine_turn
with machine_turn(lambda: None):
    print("held", flush=True)
    time.sleep(600)
"""


def test_others_wait_until_it_is_free_or_its_holder_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    waits: list[int] = []
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(UnfitMachineError, match=SHARE), machine_turn(lambda: waits.append(1), limit_s=0.3):
            pass
        assert waits == [1]
        with monkeypatch.context() as patch:
            patch.setenv(SHARE, "1")
            with machine_turn(lambda: waits.append(2), limit_s=0.1):
                pass
        holder.kill()
        holder.wait()
    with machine_turn(lambda: waits.append(3), limit_s=60):
        pass
    assert waits == [1]


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with machine_turn(lambda: None):
        pass


def test_who_waits_comes_before_who_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    turns, waiting = list[str](), threading.Event()

    def other() -> None:
        with machine_turn(waiting.set, limit_s=60):
            turns.append("other")

    with machine_turn(lambda: None):
        thread = threading.Thread(target=other)
        thread.start()
        assert waiting.wait(60)
    for _ in range(3):
        with machine_turn(lambda: None, limit_s=60):
            turns.append("again")
    thread.join()
    assert turns == ["other", "again", "again", "again"]
