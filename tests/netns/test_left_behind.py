"""Whatever happens to the parent, nothing of its network is left; and rights that are missing are said."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bwbench.base.errors import LinkError
from bwbench.network.link import UNSHAPED
from bwbench.network.network import open_network
from bwbench.network.probe.machine import end_leftovers, find_leftovers
from tests.netns.nodes import REPOSITORY

pytestmark = [pytest.mark.netns]

LIMIT_S = 5.0
PR_CAPBSET_DROP = 24
PARENT = """
import sys, time
from bwbench.network.link import Link
from bwbench.network.network import open_network
link = Link.model_validate({"bandwidth": "10 Mbit/s", "backend": "relay"})
while True:
    with open_network(link, 4) as network:
        for node in range(4):
            network.spawn(node, ["sh", "-c", "(setsid sleep 1000 &) ; sleep 1000"])
        print("open", network.backend, flush=True)
        if "once" in sys.argv:
            break
        time.sleep(0.3)
"""
IN_A_THREAD = """
import threading, time
def work():
    from bwbench import emulate
    with emulate({"bandwidth": "10 Mbit/s", "backend": "relay"}, 2):
        print("open", flush=True)
        time.sleep(1000)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
# Gives up the right that lets root make namespaces without a user namespace, as an ordinary user has to.
WITHOUT_RIGHTS = f"""
import os, sys
from bwbench.base.die_with_parent import prctl
from bwbench.network.namespaces import isolation
if isolation.has_capability(isolation.CAP_SYS_ADMIN):
    prctl({PR_CAPBSET_DROP}, isolation.CAP_SYS_ADMIN)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], "once"])
"""
# A user namespace in which no network namespace may be made.
FORBIDDEN = """
import os, sys
from pathlib import Path
from bwbench.network.namespaces import isolation
uid = os.geteuid()
isolation.unshare(isolation.CLONE_NEWUSER)
Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
Path("/proc/sys/user/max_net_namespaces").write_text("0")
os.execv(sys.executable, [sys.executable, "-m", "bwbench.cli.main", "link", "verify", "--bandwidth", "10 Mbit/s"])
"""


def marked(mark: str) -> list[int]:
    """Processes that have ``mark`` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and "Z" not in (entry / "stat").read_text().split()[2]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(code: str, *arguments: str, mark: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "BWBENCH_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_nothing_left(mark: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while (left := marked(mark)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not left, [command(pid) for pid in left]


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_at_any_moment_leaves_nothing(seed: int) -> None:
    mark = uuid.uuid4().hex
    parent = start(PARENT, mark=mark)
    time.sleep(random.Random(seed).uniform(0.1, 1.8))
    parent.kill()
    parent.communicate(timeout=10)
    assert_nothing_left(mark)


def test_kill_9_of_an_open_network_leaves_nothing() -> None:
    mark = uuid.uuid4().hex
    parent = start(PARENT, mark=mark)
    assert parent.stdout is not None and parent.stdout.readline() == "open relay\n"
    assert len(marked(mark)) >= 1 + 2 + 1 + 4  # parent, agent twice, relay, nodes
    parent.kill()
    parent.communicate(timeout=10)
    assert_nothing_left(mark)


def test_an_ordinary_end_leaves_nothing() -> None:
    mark = uuid.uuid4().hex
    parent = start(PARENT, "once", mark=mark)
    output, errors = parent.communicate(timeout=30)
    assert (parent.returncode, output, errors) == (0, "open relay\n", "")
    assert_nothing_left(mark)


def test_an_interrupt_leaves_nothing() -> None:
    mark = uuid.uuid4().hex
    parent = start(PARENT, mark=mark)
    assert parent.stdout is not None and parent.stdout.readline()
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert_nothing_left(mark)


def test_an_agent_that_is_killed_takes_all_with_it_and_is_missed() -> None:
    with open_network(UNSHAPED, 2) as network:
        process = network.spawn(0, ["sleep", "1000"])
        agents = [pid for pid in children_of(os.getpid()) if b"bwbench.network.namespaces.agent" in command(pid)]
        assert len(agents) == 1
        os.kill(agents[0], signal.SIGKILL)
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        with pytest.raises(LinkError, match="agent is gone"):
            network.counters()


def test_clean_tells_work_from_what_was_left() -> None:
    """A stopped agent that a thread has started outlives its parent: no signal comes, and it reads nothing."""
    mark = uuid.uuid4().hex
    parent = start(IN_A_THREAD, mark=mark)
    assert parent.stdout is not None and parent.stdout.readline()
    agents = [pid for pid in marked(mark) if pid != parent.pid and b"network.namespaces.agent" in command(pid)]
    try:
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        found = {process.pid for process in find_leftovers()}
        assert agents and not found & set(marked(mark))  # nothing tells that the parent is bwbench
        parent.kill()
        parent.wait()
        found_since = [process for process in find_leftovers() if process.pid in agents]
        assert {process.pid for process in found_since} == set(agents)
        end_leftovers(found_since)
        assert_nothing_left(mark)
    finally:
        parent.kill()
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        parent.communicate()


def test_no_right_of_root_is_needed() -> None:
    mark = uuid.uuid4().hex
    user = start(WITHOUT_RIGHTS, PARENT, mark=mark)
    output, errors = user.communicate(timeout=30)
    if "sudo" in errors:
        pytest.skip(errors.strip().splitlines()[-1])
    assert (user.returncode, output, errors) == (0, "open relay\n", "")
    assert_nothing_left(mark)


def test_missing_rights_are_said_with_what_to_do() -> None:
    user = start(FORBIDDEN, mark=uuid.uuid4().hex)
    output, errors = user.communicate(timeout=30)
    assert (user.returncode, output) == (3, "")
    assert "user.max_net_namespaces" in errors
    assert "sudo" in errors
    assert "Traceback" not in errors
