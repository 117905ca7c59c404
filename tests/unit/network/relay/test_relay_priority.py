"""How the relay gets its turn, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import os, resource, time
from bwbench.network.relay import relay_loop
if {denied}:
    def refuse(*_):
        raise PermissionError
    os.sched_setscheduler = os.setpriority = refuse
begun = relay_loop.Priority()
print(begun.name, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
if {greedy} and begun.name == "real-time":
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        pass
    begun.keep_fair(time.monotonic())
    print(begun.name, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
"""


def told(denied: bool = False, greedy: bool = False) -> list[list[str]]:
    """Name, policy and nice of the scheduling, line by line."""
    code = CODE.format(denied=denied, greedy=greedy)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return [line.rsplit(" ", 2) for line in run.stdout.splitlines()]


def test_the_name_is_what_the_kernel_granted() -> None:
    ((name, policy, nice),) = told()
    if name == "real-time":
        assert int(policy) == os.SCHED_RR
    else:
        assert int(policy) == os.SCHED_OTHER and (name == "normal" or name == f"nice {nice}")


def test_who_may_nothing_is_scheduled_like_everyone() -> None:
    ((name, policy, nice),) = told(denied=True)
    assert (name, int(policy), int(nice)) == ("normal", os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))


def test_a_relay_that_takes_a_whole_core_gives_real_time_up() -> None:
    lines = told(greedy=True)
    if len(lines) == 2:  # it had real time, and on a machine that let it run
        name, policy, nice = lines[1]
        assert name == "real-time" or (name == f"nice {nice}" and int(policy) == os.SCHED_OTHER)
