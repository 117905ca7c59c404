"""A child ends with its parent, whatever ends that, and at once where the parent is gone already."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

ENDS_WITH_US = """
import subprocess, sys, time
child = "import os, sys, time; from bwbench.base.die_with_parent import die_with_parent; "
child += "die_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(60)"
import os
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())])
time.sleep(60)
"""


def test_it_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS_WITH_US], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + 10.0
    while psutil.pid_exists(child.pid) and child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s, "it has outlived its parent"
        time.sleep(0.02)


def test_it_ends_at_once_where_its_parent_is_another_by_now() -> None:
    code = f"from bwbench.base.die_with_parent import die_with_parent; die_with_parent({os.getpid() + 1})"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 1
