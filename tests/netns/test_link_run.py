"""``bwbench link run``: one command a node, what they print, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.netns.nodes import REPOSITORY
from tests.netns.test_left_behind import assert_nothing_left

pytestmark = [pytest.mark.netns]

RUN = [sys.executable, "-m", "bwbench.cli.main", "link", "run", "--backend", "relay", "--bandwidth", "50 Mbit/s"]
LIMIT_S = 40.0
# Sends a datagram to node 0, which answers those that it gets within the time; exit status 5 without an answer.
ASK = """
import os, socket, sys
rank, address, server, wait_s = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind((address, 5005))
end.settimeout(wait_s)
try:
    if rank:
        for _ in range(20):
            end.sendto(b"?", (server, 5005))
            end.settimeout(wait_s / 20)
            try:
                end.recv(10)
                break
            except TimeoutError:
                continue
        else:
            sys.exit(5)
    else:
        question, asker = end.recvfrom(10)
        end.sendto(b"!", asker)
except TimeoutError:
    sys.exit(5)
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*RUN, *words], cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, timeout=LIMIT_S
    )


def test_every_node_runs_it_and_knows_who_it_is() -> None:
    code = (
        "import os, sys; e = os.environ;"
        "print(*sys.argv[1:], e['GLOO_SOCKET_IFNAME'], end=' ');"
        "print(e['BWBENCH_RANK'], e['BWBENCH_NODES'], e['BWBENCH_ADDRESS'], e.get('RANK'));"
        "print(os.getcwd(), sys.stdin.read() == '', file=sys.stderr)"
    )
    words = ["{rank}", "{nodes}", "{address}", "{address:0}", '{"a": {"b": 1}}', "{{rank}}"]
    done = run("--nodes", "3", "--", sys.executable, "-c", code, *words)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == [
        f'[{rank}] {rank} 3 10.77.0.{rank + 1} 10.77.0.1 {{"a": {{"b": 1}}}} {{rank}} '
        f"data0 {rank} 3 10.77.0.{rank + 1} None"
        for rank in range(3)
    ]
    *lines, summary = done.stderr.decode().splitlines()
    assert sorted(lines) == [f"[{rank}] {REPOSITORY} True" for rank in range(3)]
    assert summary.startswith("relay: ") and "on the wire" in summary and "lateness" in summary or "0 B" in summary


def test_nodes_talk_over_the_link_and_the_summary_counts_it() -> None:
    words = [sys.executable, "-c", ASK, "{rank}", "{address}", "{address:0}", "20"]
    done = run("--nodes", "2", "--", *words)
    assert done.returncode == 0, done.stderr
    frames = int(done.stderr.decode().split(" frames")[0].split()[-1])
    assert frames >= 2


def test_outages_begin_with_the_commands() -> None:
    words = [sys.executable, "-c", ASK, "{rank}", "{address}", "{address:0}", "3"]
    done = run("--nodes", "2", "--quiet", "--outage", "at=0 s,duration=50 s", "--", *words)
    assert done.returncode == 5
    assert b"frames" not in done.stderr


def test_torch_finds_its_own_environment() -> None:
    done = run(
        "--nodes", "2", "--torch-env", "--no-prefix", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR"
    )
    assert sorted(done.stdout.splitlines()) == [b"0 2 0 10.77.0.1", b"1 2 0 10.77.0.1"]


def test_one_node_prints_as_it_pleases() -> None:
    done = run("--nodes", "1", "--quiet", "--", "printf", "\\001 [x]\\r\\nend")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"\x01 [x]\r\nend", b"")


def test_lines_of_several_nodes_never_mix() -> None:
    code = "for n in range(3000): print(n, 'x' * (n % 200))\nprint('no end', end='')"
    done = run("--nodes", "3", "--", sys.executable, "-c", code)
    expected = [f"{number} {'x' * (number % 200)}" for number in range(3000)] + ["no end"]
    lines = done.stdout.decode().splitlines()
    for rank in range(3):
        assert [line[4:] for line in lines if line.startswith(f"[{rank}] ")] == expected


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    done = run("--nodes", "2", "--no-prefix", "--", "head", "-c", "1000000", "/dev/zero")
    assert done.stdout.replace(b"\n", b"") == bytes(2_000_000)


@pytest.mark.parametrize(
    "script, status, reason",
    [("exit 7", 7, "node 1 exited with status 7"), ("kill -SEGV $$", 139, "node 1 was killed by SIGSEGV")],
)
def test_when_one_fails_the_others_are_ended_and_its_status_is_ours(script: str, status: int, reason: str) -> None:
    started_s = time.monotonic()
    done = run("--nodes", "3", "--", "sh", "-c", f"if [ {{rank}} = 1 ]; then {script}; fi; sleep 100")
    assert done.returncode == status
    assert reason in done.stderr.decode() and "node(s) 0, 2 ended because one failed" in done.stderr.decode()
    assert time.monotonic() - started_s < 20


def test_who_ignores_the_request_to_end_is_killed() -> None:
    done = run("--nodes", "2", "--", "sh", "-c", "if [ {rank} = 1 ]; then sleep 1; exit 1; fi; trap '' TERM; sleep 100")
    assert done.returncode == 1


def test_a_command_may_clean_up_when_it_is_ended() -> None:
    script = (
        "if [ {rank} = 1 ]; then sleep 1; exit 1; fi; trap 'echo cleaning; exit 0' TERM; while :; do sleep 0.1; done"
    )
    done = run("--nodes", "2", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (1, b"[0] cleaning\n")


def test_a_limit_of_time() -> None:
    done = run("--nodes", "2", "--timeout", "500 ms", "--", "sh", "-c", "[ {rank} = 0 ] || sleep 100")
    assert done.returncode == 124
    assert "node(s) 1 ended because time was up" in done.stderr.decode()


@pytest.mark.parametrize("words, number, status", [(["--timeout", "1 s"], 0, 124), ([], signal.SIGTERM, 130)])
def test_a_reader_that_stands_still_holds_up_no_end(words: list[str], number: int, status: int, tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said:
        command = [*RUN, "--nodes", "2", *words, "--", "yes"]
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=said) as process:
            try:
                assert process.stdout is not None and process.stdout.read(1) == b"["
                time.sleep(1.0)
                process.send_signal(number)
                assert process.wait(15) == status, (tmp_path / "said").read_text()
            finally:
                process.kill()


def test_what_a_command_leaves_behind_does_not_hold_us() -> None:
    mark = uuid.uuid4().hex
    started_s = time.monotonic()
    done = run("--nodes", "2", "--quiet", "--", "sh", "-c", "echo up; sleep 1000 &", BWBENCH_TEST_MARK=mark)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [b"[0] up", b"[1] up"])
    assert time.monotonic() - started_s < 20
    assert_nothing_left(mark)


@pytest.mark.parametrize(
    "number, returncode", [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_however_we_end_nothing_is_left(number: int, returncode: int) -> None:
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
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == returncode
    assert b"Traceback" not in errors
    assert_nothing_left(mark)


@pytest.mark.parametrize(
    "words, message",
    [
        (["touch", "{adress}"], "{adress} is no placeholder. Did you mean 'address'?"),
        (["touch", "x{address:4}"], "nodes are numbered 0 to 3"),
        (["no-such-program-{rank}"], "there is no program 'no-such-program-0'"),
        (["--timeout", "3", "true"], "--timeout: '3' has no unit"),
        (["--timeout", "0 s", "true"], "more than 0"),
        (["--nodes", "0", "true"], "--nodes 0"),
        (["--nodes", "1", "--verify", "true"], "--verify: a link has two ends"),
        (["--override", "4:loss=0.1", "true"], "there is no node 4"),
        ([], "CMD"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(words: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run([*RUN, *words], cwd=tmp_path, capture_output=True, timeout=LIMIT_S, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_link_may_be_measured_first() -> None:
    done = run("--nodes", "2", "--verify", "--latency", "2 ms", "--", "echo", "after")
    errors = done.stderr.decode()
    if done.returncode == 3:  # a busy machine; then nothing may have been started
        assert done.stdout == b"" and "nothing was started" in errors
    else:
        assert done.stdout.count(b"after") == 2 and "within 5% of what was asked" in errors
