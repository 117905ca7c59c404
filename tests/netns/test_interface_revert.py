"""Whatever happens to the one who shapes an interface: it is taken back."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.netns.interface_lab import PEER, Machine, applying, wait_for

pytestmark = [pytest.mark.netns]

KILL_TRIALS = 4  # of each seed
IS_SHAPED = "qdisc htb"

# Applies for real in a child that is killed after 0, 1, 2, … steps, until one gets through; takes it back each time.
# The revert is a stub, which could do no more than clear does.
UP_TO_A_STEP = """
import os, signal, sys
from bwbench.network.interface import shaping
from bwbench.network.interface.remove import clear
from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.shaping_request import PeerTraffic
from bwbench.network.link import Link
class Stub:
    how = "a stub"
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def alive(self): return True
take = Kernel.take
def counted(kernel, step):
    global left
    if left == 0: os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    take(kernel, step)
shaping.arm, Kernel.take = lambda *_: Stub(), counted
def child():
    with Kernel() as kernel:
        link = Link.model_validate({"bandwidth": "8 Mbit/s"})
        prepared = shaping.prepare(kernel, "wan0", PeerTraffic.parse(["10.9.0.2"], []), link, both=True)
        with shaping.applied(kernel, prepared, 60.0, held=False):
            os._exit(0)
with Kernel() as kernel:
    before, status, steps = kernel.described(kernel.index_of("wan0")), 9, 0
    while status != 0:
        left, steps = steps, steps + 1
        pid = os.fork()
        if pid == 0:
            child()
        status = os.waitpid(pid, 0)[1]
        clear(kernel, "wan0")
        print("same" if kernel.described(kernel.index_of("wan0")) == before else "differs")
print("whole")
"""
# Cannot start its revert: there is no such module.
UNARMED = """
from bwbench.cli.main import _run
from bwbench.network.interface import revert
import sys
revert._MODULE = "bwbench.network.interface.missing"
sys.exit(_run(sys.argv[1:]))
"""
# A held run with a short lease.
IMPATIENT = """
import sys
from bwbench.cli.main import _run
from bwbench.network.interface import shaping
shaping.LEASE_S, shaping.BEAT_S = 2.0, 0.3
sys.exit(_run(sys.argv[1:]))
"""
SYSTEMD_RUN = """#!/bin/sh
echo "$@" >/run/systemd/asked
while case "$1" in --*) true;; *) false;; esac; do shift; done
setsid "$@" </dev/null >/dev/null 2>&1 &
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine


@pytest.fixture
def machine(lab: Machine) -> Iterator[Machine]:
    """The machine; the test has to leave it as it found it."""
    before = lab.state()
    yield lab
    lab.clear()
    assert wait_for(lambda: lab.state() == before), lab.state()


def is_shaped(machine: Machine) -> bool:
    return any(line.startswith(IS_SHAPED) for line in machine.state()["qdiscs"])


def hold(machine: Machine, *words: str) -> subprocess.Popen[str]:
    """A run that is held, once it is there."""
    process = machine.start(*applying("--hold", "--json", *words))
    assert wait_for(lambda: is_shaped(machine) or process.poll() is not None)
    assert process.stdout is not None
    assert process.stdout.readline() == "{\n"
    return process


def test_it_ends_at_its_time(machine: Machine) -> None:
    before = machine.state()
    started_s = time.monotonic()
    machine.apply("--for", "3 s")
    assert is_shaped(machine)
    assert wait_for(lambda: machine.state() == before)
    assert time.monotonic() - started_s > 3


def test_it_outlives_the_session_that_asked_for_it(machine: Machine) -> None:
    before = machine.state()
    words = machine.words(*applying("--for", "4 s"))
    machine.output_of("setsid", "sh", "-c", '"$@"; kill -HUP 0', "-", *words, "--json", check=False)
    assert is_shaped(machine) and len(machine.reverts()) == 1
    assert wait_for(lambda: machine.state() == before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_held_run_ends_with_its_holder(machine: Machine, number: int) -> None:
    before = machine.state()
    with hold(machine) as process:
        machine.kill(process, number)
        errors = process.communicate(timeout=20)[1]
    assert "Traceback" not in errors
    assert (process.returncode == 0) == (number != signal.SIGKILL), errors
    assert wait_for(lambda: machine.state() == before)


def test_a_held_run_whose_holder_is_silent_is_taken_back(machine: Machine) -> None:
    before = machine.state()
    with machine.start("python", "-c", IMPATIENT, *applying("--hold")[1:]) as process:
        assert wait_for(lambda: "qdisc htb" in str(machine.state()["qdiscs"]))
        time.sleep(3)  # longer than the lease: it is renewed
        assert is_shaped(machine)
        machine.kill(process, signal.SIGSTOP)
        is_back = wait_for(lambda: machine.state() == before)
        process.send_signal(signal.SIGCONT)  # nsenter stops with its child
        machine.kill(process, signal.SIGCONT)  # whatever comes of it: a stopped process keeps others waiting
        assert is_back
        assert "meanwhile" in process.communicate(timeout=20)[1]
    assert process.returncode == 3


def test_a_held_run_ends_at_its_time(machine: Machine) -> None:
    before = machine.state()
    with hold(machine, "--for", "2 s") as process:
        assert "as it was" in process.communicate(timeout=20)[1]
    assert process.returncode == 0
    assert wait_for(lambda: machine.state() == before)


def test_a_holder_notices_that_somebody_has_cleared_it(machine: Machine) -> None:
    with hold(machine) as process:
        machine.clear()
        assert "cleared" in process.communicate(timeout=20)[1]
    assert process.returncode == 3


def test_a_revert_that_is_told_to_end_takes_it_back_first(machine: Machine) -> None:
    before = machine.state()
    machine.apply()
    (revert,) = machine.reverts()
    machine.output_of("kill", "-TERM", str(revert))
    assert wait_for(lambda: machine.state() == before)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_any_moment_it_is_taken_back(machine: Machine, seed: int) -> None:
    before = machine.state()
    moments_s = random.Random(seed)
    for trial in range(KILL_TRIALS):
        process = machine.start(*applying("--for", "20 s", "--hold"))
        if trial:  # most of the time goes by before anything happens: aim at the rest
            assert wait_for(lambda: machine.output_of("find", "/run", "-type", "f") != "")
            time.sleep(moments_s.uniform(0.0, 0.6))
        else:
            time.sleep(moments_s.uniform(0.0, 0.4))
        machine.kill(process)
        process.communicate(timeout=10)
        assert wait_for(lambda: recovered(machine) == before), (trial, machine.state())


def recovered(machine: Machine) -> object:
    """The state of the machine; a state file without a revert is what a kill before arming leaves, and is no harm."""
    state = machine.state()
    if not state["reverts"]:
        state["files"] = []
    return state


def test_killed_after_any_step_all_of_it_is_found_again(machine: Machine) -> None:
    before = machine.state()
    printed = machine.output_of("python", "-c", UP_TO_A_STEP).split()
    assert printed[-1] == "whole" and len(printed) > 10
    assert set(printed[:-1]) == {"same"}
    assert machine.state() == before


def test_nothing_is_applied_where_the_revert_cannot_be_armed(machine: Machine) -> None:
    before = machine.state()
    words = applying()[1:]
    result = machine.run("python", "-c", UNARMED, *words)
    assert result.returncode == 3
    assert "nothing was applied" in result.stderr and "Traceback" not in result.stderr
    assert machine.state() == before


def test_a_state_folder_of_somebody_else_is_not_trusted(machine: Machine) -> None:
    machine.output_of("sh", "-c", "rm -rf /run/bwbench; mkdir -m 777 /run/bwbench")
    try:
        result = machine.run(*applying())
        assert result.returncode == 3
        assert "/run/bwbench should belong to user 0 alone" in result.stderr
    finally:
        machine.output_of("rmdir", "/run/bwbench")


def test_where_systemd_runs_it_keeps_the_revert(machine: Machine) -> None:
    """A stand-in for systemd-run: what it is asked for, and that the answer is waited for."""
    machine.output_of("mkdir", "-p", "/run/systemd/system", "/run/programs")
    machine.output_of("sh", "-c", 'echo "$1" >/run/programs/systemd-run; chmod +x /run/programs/*', "-", SYSTEMD_RUN)
    try:
        path = machine.output_of("sh", "-c", "echo /run/programs:$PATH").strip()
        applied = json.loads(machine.apply("--json", PATH=path))
        unit = f"bwbench-revert-{applied['run']}"
        assert applied["armed_by"] == f"systemd unit {unit}"
        asked = machine.output_of("cat", "/run/systemd/asked")
        assert f"--unit={unit}" in asked and "Restart=on-failure" in asked
        assert len(machine.reverts()) == 1
        machine.clear()
        assert wait_for(lambda: machine.reverts() == [])
        machine.output_of("sh", "-c", "echo 'echo refused >&2; exit 1' >/run/programs/systemd-run")
        assert json.loads(machine.apply("--json", PATH=path))["armed_by"] == "a daemon"
        machine.clear()
    finally:
        machine.output_of("rm", "-r", "/run/systemd", "/run/programs")


def test_an_interface_that_disappears_takes_nothing_along(machine: Machine) -> None:
    machine.output_of(*"ip link add wan1 type veth peer name far1".split())
    machine.output_of("ip", "link", "set", "wan1", "up")
    applied = json.loads(machine.apply("--for", "3 s", "--json", dev="wan1", peer=PEER))
    assert f"bw-{applied['run']}:" in machine.state()["interfaces"]
    machine.output_of("ip", "link", "del", "wan1")
    assert wait_for(lambda: f"bw-{applied['run']}:" not in machine.state()["interfaces"])
