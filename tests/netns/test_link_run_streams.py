"""``bwbench link run``: standard input, a terminal of one's own, captures, the verdict, a stopped agent."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from bwbench.base.errors import LinkError
from bwbench.network.link import UNSHAPED
from bwbench.network.network import open_network
from bwbench.network.probe.capture import MAGIC_NANOSECONDS
from tests.netns.nodes import REPOSITORY
from tests.netns.test_left_behind import assert_nothing_left
from tests.netns.test_link_run import ASK, RUN

LIMIT_S = 30.0
pytestmark = [pytest.mark.netns]
TALK = [sys.executable, "-c", ASK, "{rank}", "{address}", "{address:0}", "20"]
# Datagrams to the next node for five seconds, one a millisecond.
SEND = """
import socket, sys, time
end, until_s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic() + 5
print("up", flush=True)
while time.monotonic() < until_s:
    end.sendto(bytes(500), (sys.argv[1], 9))
    time.sleep(0.001)
sys.exit(int(sys.argv[2]))
"""


def run(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*RUN, *words], cwd=REPOSITORY, input=given, capture_output=True, timeout=LIMIT_S)


@pytest.mark.parametrize(
    "options, lines",
    [
        (("--nodes", "1"), [b"hello"]),
        (("--nodes", "3"), [b"[0] hello"]),
        (("--nodes", "3", "--stdin", "2"), [b"[2] hello"]),
        (("--nodes", "2", "--stdin", "none"), []),
    ],
)
def test_standard_input_goes_to_one_node(options: Sequence[str], lines: list[bytes]) -> None:
    done = run(*options, "--", "cat", given=b"hello\n")
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


@pytest.mark.parametrize("node", ["2", "-1", "x", ""])
def test_standard_input_for_no_node(node: str) -> None:
    done = run("--nodes", "2", f"--stdin={node}", "--", "true")
    assert done.returncode == 2 and b"0 to 1, or 'none'" in done.stderr


def in_terminal(words: Sequence[str], talk: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, int]:
    """Run in a terminal; answer each text that is seen, one after the other. What was shown, and the exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPOSITORY)
        os.execv(words[0], list(words))
    shown, rest, until_s = b"", list(talk), time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < until_s:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    data = os.read(terminal, 65_536)
                except OSError:  # it has ended
                    data = b""
                if not data:
                    break
                shown += data
            if rest and rest[0][0] in shown:
                time.sleep(0.3)  # as a person would: what was just started has the terminal by then
                os.write(terminal, rest.pop(0)[1])
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(terminal)
    return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_terminal_stays_one_and_ctrl_c_reaches_the_program() -> None:
    script = "trap 'echo caught; exit 4' INT; test -t 0 && test -t 1 && echo rea''dy; while :; do sleep 0.1; done"
    shown, status = in_terminal([*RUN, "--nodes", "1", "--", "sh", "-c", script], [(b"ready", b"\x03")])
    assert b"caught" in shown and status == 4, shown


def test_a_shell_has_job_control() -> None:
    talk = [
        (b"# ", b"sleep 77\n"),
        (b"77\r\n", b"\x1a"),
        (b"Stopped", b"kill -9 %1; sleep 0.3; echo a''gain\n"),
        (b"again", b"exit 6\n"),
    ]
    words = [*RUN, "--nodes", "1", "--", "env", "PS1=# ", "bash", "--norc", "--noprofile", "-i"]
    shown, status = in_terminal(words, talk)
    assert status == 6 and b"no job control" not in shown, shown


def test_when_a_shell_has_ended_ctrl_c_ends_the_others() -> None:
    script = "if [ {rank} = 0 ]; then exec sleep 60; else echo rea''dy; read word; fi"
    words = [*RUN, "--nodes", "2", "--stdin", "1", "--", "sh", "-c", script]
    shown, status = in_terminal(words, [(b"ready", b"go\n"), (b"node(s) 0 still run", b"\x03")])
    assert b"interrupted" in shown and status == 130, shown


def test_a_capture_holds_what_crossed_the_link(tmp_path: Path) -> None:
    done = run("--nodes", "2", "--pcap", str(tmp_path / "link.pcap"), "--", *TALK)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        data = (tmp_path / f"link-{rank}.pcap").read_bytes()
        magic, *_, kind = struct.unpack("=IHHiIII", data[:24])
        assert (magic, kind) == (MAGIC_NANOSECONDS, 1)
        frames, at = [], 24
        while at < len(data):
            seconds, _, length, _ = struct.unpack("=IIII", data[at : at + 16])
            assert abs(seconds - time.time()) < 3600
            frames.append(data[at + 16 : at + 16 + length])
            at += 16 + length
        assert any(frame.endswith(b"?") for frame in frames) and any(b"!" in frame[42:] for frame in frames)


def test_captures_are_named_by_rank_and_need_a_folder(tmp_path: Path) -> None:
    assert run("--nodes", "2", "--pcap", str(tmp_path / "n{rank}.x"), "--", "true").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n0.x", "n1.x"]
    done = run("--nodes", "2", "--pcap", str(tmp_path / "none" / "x.pcap"), "--", "true")
    assert done.returncode == 2 and b"there is no folder" in done.stderr


def test_the_verdict_as_json(tmp_path: Path) -> None:
    done = run("--nodes", "2", "--quiet", "--json", str(tmp_path / "verdict.json"), "--", *TALK)
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert (done.returncode, verdict["verdict"]) in ((0, "ok"), (3, "unfit"))
    assert verdict["frames"] >= 2 and len(verdict["nodes"]) == 2 and verdict["worst_late_s"] >= 0


def child_of(pid: int, name: str) -> psutil.Process:
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        for child in psutil.Process(pid).children(recursive=True):
            if child.name() == name:
                return child
        time.sleep(0.05)
    raise AssertionError(name)


@pytest.mark.parametrize("own, expected", [("0", 3), ("5", 5)])
def test_a_relay_that_was_stopped_is_no_link(own: str, expected: int) -> None:
    words = [*RUN, "--nodes", "2", "--quiet", "--", sys.executable, "-c", SEND, "{address:0}", own]
    process = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    relay = child_of(process.pid, "bwbench-relay")
    assert process.stdout is not None
    assert process.stdout.readline().endswith(b"up\n")
    time.sleep(0.5)
    relay.suspend()
    time.sleep(1.0)
    relay.resume()
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == expected, errors
    assert b"the emulator was late" in errors


def test_a_request_to_end_is_obeyed_though_the_agent_is_stopped() -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*RUN, "--nodes", "3", "--", "sh", "-c", "echo up; (setsid sleep 1000 &); sleep 1000"],
        cwd=REPOSITORY,
        env={**os.environ, "BWBENCH_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline().endswith(b"up\n")
    child_of(process.pid, "bwbench-agent").suspend()
    begun_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and b"Traceback" not in errors
    assert time.monotonic() - begun_s < 12
    assert_nothing_left(mark)


def test_a_stopped_agent_is_named() -> None:
    with open_network(UNSHAPED, 1) as network:
        agent = child_of(os.getpid(), "bwbench-agent")
        agent.suspend()
        begun_s = time.monotonic()
        with pytest.raises(LinkError, match=f"is stopped .process {agent.pid}"):
            network.counters()
        assert time.monotonic() - begun_s < 12
        with pytest.raises(LinkError, match="is stopped"):
            network.health()
    agent.wait(5)


def test_an_agent_that_was_stopped_for_a_moment_goes_on() -> None:
    with open_network(UNSHAPED, 1) as network:
        agent = child_of(os.getpid(), "bwbench-agent")
        agent.suspend()
        resume = subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {agent.pid}"])
        assert network.health()["alive"]
        assert resume.wait(5) == 0
