"""Claims on cells: held by one process, gone with it, readable by all."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bwbench.base.errors import CellTakenError, ConfigError, UnfitMachineError
from bwbench.records.lock import CLAIM, ClaimNote, claim_of, claimed, locked

HOLD = """
import sys, time, pathlib
from bwbench.records.lock import claimed
with claimed(pathlib.Path(sys.argv[1])) as claim:
    claim.note(phase="training")
    print("held", flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_claim_keeps_others_out_and_leaves_no_file(tmp_path: Path) -> None:
    with claimed(tmp_path / "cell"):
        with pytest.raises(CellTakenError, match="process"), claimed(tmp_path / "cell"):
            pass
        assert claim_of(tmp_path / "cell") is not None
    assert claim_of(tmp_path / "cell") is None
    assert list((tmp_path / "cell").iterdir()) == []
    with claimed(tmp_path / "cell"):
        pass


def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        found = claim_of(tmp_path)
        assert found is not None and found.pid == process.pid and found.phase == "training"
        with pytest.raises(CellTakenError), claimed(tmp_path):
            pass
        process.kill()
        process.wait()
    assert claim_of(tmp_path) is None and (tmp_path / CLAIM).exists()
    with claimed(tmp_path):
        assert claim_of(tmp_path) is not None


def test_of_many_that_come_and_go_one_holds_it_at_a_time(tmp_path: Path) -> None:
    held, most, taken = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal held, most, taken
        for _ in range(60):
            try:
                with claimed(tmp_path):
                    with guard:
                        held += 1
                        most, taken = max(most, held), taken + 1
                    claim_of(tmp_path)
                    with guard:
                        held -= 1
            except CellTakenError:
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and taken >= 6


def test_the_lock_for_planning_is_waited_for_within_a_limit(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        with pytest.raises(ConfigError, match="--results"), locked(tmp_path / "new", limit_s=0.05):
            pass
    with locked(tmp_path / "new", limit_s=0.05):
        pass


def without_lockd(descriptor: object, operation: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(("flock", "why"), [(lambda *_: None, "two holders"), (without_lockd, "No locks available")])
def test_a_disk_whose_locks_keep_nobody_out_is_refused_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flock: object, why: str
) -> None:
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UnfitMachineError, match=f"{tmp_path}.*{why}.*--results"), locked(tmp_path):
        pytest.fail("held")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("phase", "is_training", "said"),
    [
        (None, False, "opening the link"),
        ("starting workers", False, "starting workers"),
        ("starting workers", True, "training"),
        ("probing the link", True, "probing the link"),
        (5, True, "5"),  # a claim is a file that anybody may have written
    ],
)
def test_what_is_being_done_is_said_in_one_way(phase: str | None, is_training: bool, said: str) -> None:
    assert ClaimNote(phase=phase).doing(is_training=is_training) == said
