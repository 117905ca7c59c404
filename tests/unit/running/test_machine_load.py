"""What else was at work on a machine while a cell ran."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bwbench.records.schema import Others
from bwbench.running.machine_load import disturbed, in_company
from bwbench.running.machine_turn import MachineName

BESIDE = """
import sys
from pathlib import Path
from bwbench.running.machine_load import in_company
from bwbench.running.machine_turn import MachineName
with in_company(MachineName(sys.argv[1], Path(sys.argv[2]))) as company:
    print("trains", flush=True)
    sys.stdin.readline()
    print(*company.others().trained)
"""


def test_both_know_of_one_another_though_neither_looks_meanwhile(tmp_path: Path) -> None:
    machine = MachineName(f"bwbench-test-{uuid.uuid4().hex}", tmp_path)
    command = [sys.executable, "-c", BESIDE, machine.name, str(tmp_path)]
    with in_company(machine) as company:
        assert company.others().trained == ()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None and other.stdout.readline() == "trains\n"
            found = other.communicate("\n")[0]
        found_here = company.others().trained
    assert found.startswith(f"process {os.getpid()} of ")
    assert len(found_here) == 1 and found_here[0].startswith(f"process {other.pid} of ")
    with in_company(machine) as later:
        assert later.others().trained == ()


def test_own_work_is_not_that_of_others(tmp_path: Path) -> None:
    machine = MachineName(f"bwbench-test-{uuid.uuid4().hex}", tmp_path)
    burn = [sys.executable, "-c", "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"]
    with in_company(machine) as company:
        before = time.monotonic()
        used = os.times()
        subprocess.run(burn, check=True)
        now, wall_s = os.times(), time.monotonic() - before
        others = company.others()
    own_cores = (now.children_user + now.children_system - used.children_user - used.children_system) / wall_s
    assert others.cores is not None
    assert others.cores <= len(os.sched_getaffinity(0)) - own_cores + 0.2


@pytest.mark.parametrize(
    ("others", "spare", "words"),
    [
        (Others(trained=("process 7 of anna",), cores=0.0), 0, "process 7 of anna"),
        (Others(cores=0.6), 0, "took 0.6"),
        (Others(cores=0.4), 0, None),
        (Others(cores=1.4), 1, None),
        (Others(), 0, None),
    ],
)
def test_what_is_left_over_others_may_take(others: Others, spare: int, words: str | None) -> None:
    found = disturbed(others, len(os.sched_getaffinity(0)) - spare, judges_load=True)
    assert found is None if words is None else words in (found or "")


def test_load_alone_does_not_count_where_steps_are_padded() -> None:
    assert disturbed(Others(cores=100.0), 1, judges_load=False) is None
