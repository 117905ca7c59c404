"""``emulate``: programs that are not ours in nodes, with the interface of subprocess."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import pytest

from bwbench import Link, emulate
from bwbench.base.errors import ConfigError, LaunchError
from bwbench.network.emulate import Nodes

pytestmark = [pytest.mark.netns]

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with emulate("unshaped", num_nodes=2) as opened:
        yield opened


def test_nodes_are_a_sequence_with_addresses(nodes: Nodes) -> None:
    assert len(nodes) == 2 and [node.rank for node in nodes] == [0, 1]
    assert nodes[-1].address != nodes[0].address


def test_a_node_has_no_way_round_the_link(nodes: Nodes) -> None:
    shown = nodes[1].run(["cat", "/proc/self/net/dev", "/proc/self/net/fib_trie"], stdout=PIPE, text=True).stdout
    assert set(re.findall(r"^ *(\w+):", shown, re.MULTILINE)) - {"Main", "Local"} == {"lo", nodes[1].interface}
    assert "ctl0" not in shown
    assert set(re.findall(r"10\.7\d\.0\.\d+", shown)) == {"10.77.0.0", nodes[1].address, "10.77.0.255"}


def test_run_is_that_of_subprocess(nodes: Nodes, tmp_path: Path) -> None:
    script = "cat; echo $BWBENCH_RANK $BWBENCH_NODES $BWBENCH_ADDRESS; pwd >&2; exit 3"
    done = nodes[1].run(["sh", "-c", script], input="in\n", capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"in\n1 2 {nodes[1].address}\n"
    assert (done.returncode, done.stderr) == (3, f"{tmp_path}\n")
    assert (
        nodes[0].run(["sh", "-c", "echo $A"], env={"A": "b", "PATH": os.environ["PATH"]}, stdout=PIPE).stdout == b"b\n"
    )
    with pytest.raises(subprocess.CalledProcessError) as caught:
        nodes[0].run(["sh", "-c", "echo why >&2; exit 4"], capture_output=True, check=True)
    assert (caught.value.returncode, caught.value.stderr) == (4, b"why\n")


def test_a_run_that_takes_too_long_is_killed_with_what_it_said(nodes: Nodes) -> None:
    started_s = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        nodes[0].run(["sh", "-c", "echo begun; sleep 100"], capture_output=True, timeout=0.5)
    assert caught.value.stdout == b"begun\n"
    assert time.monotonic() - started_s < LIMIT_S


def test_much_output_and_much_input_do_not_block(nodes: Nodes) -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stderr.buffer.write(data); sys.stdout.buffer.write(data)"
    data = os.urandom(1 << 20)
    done = nodes[0].run([sys.executable, "-c", code], input=data, capture_output=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == (data, data)
    assert nodes[0].run(["true"], input=data).returncode == 0


def test_outputs_go_where_they_are_told(nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "echo out; echo err >&2"
    assert nodes[0].run(["sh", "-c", script], stdout=PIPE, stderr=STDOUT).stdout == b"out\nerr\n"
    with (tmp_path / "log").open("w") as log:
        nodes[0].run(["sh", "-c", script], stdout=log, stderr=DEVNULL)
    assert (tmp_path / "log").read_text() == "out\n"
    nodes[0].run(["sh", "-c", script])
    assert capfd.readouterr() == ("out\n", "err\n")


def test_a_process_can_be_watched_and_ended(nodes: Nodes) -> None:
    with nodes[0].popen(
        ["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"], stdout=PIPE
    ) as one:
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        assert (one.poll(), one.returncode) == (None, None)
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(timeout=0.05)
        with pytest.raises(subprocess.TimeoutExpired):
            one.communicate(timeout=0.05)
        one.terminate()
        assert one.communicate(timeout=LIMIT_S) == (b"", None)
    assert one.returncode == one.wait() == 9
    other = nodes[1].popen(["sleep", "100"])
    other.kill()
    assert other.wait(timeout=LIMIT_S) == -signal.SIGKILL


def test_a_program_that_does_not_exist(nodes: Nodes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchError, match="no-such-program"):
        nodes[0].popen(["no-such-program"], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_server_and_its_client_on_a_shaped_link() -> None:
    link = Link(bandwidth="20 Mbit/s", latency="10 ms", backend="relay")
    server_code = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"
    client_code = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1]).read()))"
    with emulate(link, num_nodes=2) as nodes:
        server = nodes[0].popen([sys.executable, "-u", "-c", server_code], stdout=PIPE, stderr=DEVNULL, text=True)
        assert server.stdout is not None and "Serving" in server.stdout.readline()
        url = f"http://{nodes[0].address}:8000/"
        done = nodes[1].run([sys.executable, "-c", client_code, url], capture_output=True, text=True, timeout=LIMIT_S)
        assert int(done.stdout) > 0, done.stderr
        answered = nodes.counters().pairs[0, 1]  # how TCP cuts and acknowledges it depends on the moment
        assert answered.bytes > int(done.stdout), answered
        nodes.play()
        nodes.hold()
    assert server.communicate(timeout=LIMIT_S) == ("", None)
    assert server.returncode == -signal.SIGKILL  # it ended with the block


def test_a_link_may_be_given_by_its_keys_or_as_a_preset() -> None:
    with emulate({"bandwidth": "10 Mbit/s", "overrides": {1: {"latency": "4 ms"}}}, num_nodes=2) as nodes:
        assert nodes.link.node(1).latency_s == 0.004
    with emulate("dsl", num_nodes=1) as nodes:
        assert nodes.link.base.up_bps == 1e6


@pytest.mark.parametrize("link", [{"bandwidth": "10"}, {"bandwith": "10 Mbit/s"}, "no-such-preset", {}])
def test_what_is_no_link_is_a_value_error(link: object) -> None:
    with pytest.raises(ValueError), emulate(link, num_nodes=2):  # type: ignore[arg-type]
        pass


def test_a_trace_that_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="no-such-trace"), emulate({"trace": "no-such-trace.tsv"}, num_nodes=2):
        pass
