from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bwbench.base.ownership import OWNER, is_orphan, owned, owned_by_nobody
from bwbench.network.probe.machine import find_leftovers

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
START = f"""
import subprocess, sys
from bwbench.base.ownership import owned
environment = owned() if sys.argv[1] == "owned" else None
print(subprocess.Popen({SLEEP!r}, env=environment, start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True)
if sys.argv[2] == "stay":
    sys.stdin.read()
"""


def test_a_record_says_whether_the_owner_has_ended() -> None:
    assert not is_orphan(owned({})) and not is_orphan({})
    pid, started, namespace = owned({})[OWNER].split(":", 2)
    assert is_orphan({OWNER: f"{pid}:{int(started) + 1}:{namespace}"})  # the number was given to another process
    assert is_orphan({OWNER: f"{2**22 + 1}:{started}:{namespace}"})


@pytest.mark.parametrize(
    "record", ["", "1", "1:2", "x:y:z", "1:2:pid:[1]", "99999999:1:unknown", "-1:3:", "²:1:pid:[1]"]
)
def test_what_cannot_be_judged_is_no_orphan(record: str) -> None:
    assert not is_orphan({OWNER: record})


def test_what_goes_on_alone_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER, "1:2:3")
    assert OWNER not in owned_by_nobody()


def test_an_owner_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen(SLEEP) as process:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        environment = {OWNER: f"{process.pid}:{fields[19]}:{owned({})[OWNER].split(':', 2)[2]}"}
        assert not is_orphan(environment)
        process.kill()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert is_orphan(environment)


@pytest.mark.parametrize(
    "record, then, is_left",
    [
        pytest.param("owned", "stay", False, id="work of a program that lives, whatever it is called"),
        pytest.param("owned", "end", True, id="left by a program that has ended"),
        pytest.param("none", "end", False, id="started by hand, from a shell that has been closed"),
    ],
)
def test_leftovers_are_what_has_lost_its_owner(record: str, then: str, is_left: bool) -> None:
    command = [sys.executable, "-c", START, record, then]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        pid = int(program.stdout.readline())
        try:
            if then == "end":
                program.wait(60)
            assert (pid in [leftover.pid for leftover in find_leftovers()]) is is_left
        finally:
            os.kill(pid, 9)
            program.stdin.close()
