"""Managed queues, cross traffic and changes by hand on real sockets."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.link import Link
from bwbench.network.network import Network, open_network
from bwbench.network.probe.verification import verify
from tests.netns.nodes import REPOSITORY, output_of, start
from tests.netns.test_relay_link import TRIES, measure

pytestmark = [pytest.mark.netns]

# Sends over TCP to argv[1] for argv[2] seconds, and meanwhile datagrams there and back: prints their round trips in s.
LOADED = """
import socket, sys, threading, time
address, over = sys.argv[1], threading.Event()
stream = socket.create_connection((address, 5001))
def send():
    while not over.is_set():
        stream.sendall(bytes(65536))
threading.Thread(target=send, daemon=True).start()
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.settimeout(1.0)
probe.connect((address, 5002))
begin, seen = time.monotonic(), []
while (now := time.monotonic()) < begin + float(sys.argv[2]):
    probe.send(b"?")
    try:
        probe.recv(10)
    except TimeoutError:
        continue
    if now > begin + 1.5:
        seen.append(time.monotonic() - now)
    time.sleep(0.02)
over.set()
print(*seen)
"""
SWALLOW = """
import socket, threading
listener = socket.create_server(("", 5001))
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", 5002))
print("listening", flush=True)
def swallow():
    connection, _ = listener.accept()
    while connection.recv(1 << 20):
        pass
threading.Thread(target=swallow, daemon=True).start()
while True:
    echo.sendto(b"!", echo.recvfrom(10)[1])
"""
CONGESTION_SEEN = """
names, values = (line.split()[1:] for line in open("/proc/self/net/netstat") if line.startswith("IpExt:"))
print(dict(zip(names, values))["InCEPkts"])
"""


def link(**asked: Any) -> Link:
    usual = {"bandwidth": "10 Mbit/s", "latency": "5 ms", "backend": "relay"}
    return Link.model_validate({**usual, **asked})


def loaded_s(network: Network, seconds: float = 5.0) -> float:
    """Median round trip beside a TCP connection from node 0 to node 1 that sends as fast as it can."""
    server, read = start(network, 1, SWALLOW)
    with os.fdopen(read) as stream:
        assert stream.readline() == "listening\n"
        times = output_of(network, 0, LOADED, network.nodes[1].data_address, str(seconds)).split()
        server.kill()
    return statistics.median(map(float, times))


@pytest.mark.parametrize("asked", [{"queue": "fq_codel"}, {"queue": "pie"}, {"queue": "fq_codel", "medium": "shared"}])
def test_a_managed_link_is_what_was_asked(asked: dict[str, Any]) -> None:
    measured = measure(link(**asked), 3, lambda found: found.verdict == "ok")
    assert measured.verdict == "ok", measured.reasons


def test_fq_codel_keeps_the_queue_of_others_from_a_ping() -> None:
    with open_network(link(queue="50 ms"), 2) as network:
        assert _until(lambda: loaded_s(network), lambda found_s: found_s > 30e-3) > 30e-3
    with open_network(link(queue="fq_codel"), 2) as network:  # 10 ms, and a frame or two each way
        assert _until(lambda: loaded_s(network), lambda found_s: found_s < 18e-3) < 18e-3


def _until(measure_s: Callable[[], float], good: Callable[[float], bool]) -> float:
    """What was measured when it was good, or last: a machine that is busy makes a round trip longer or a load less."""
    for _ in range(TRIES):
        found_s = measure_s()
        if good(found_s):
            break
    return found_s


def test_a_queue_that_marks_is_told_of_by_tcp() -> None:
    queue = {"discipline": "codel", "ecn": True}
    with open_network(link(queue=queue), 2) as network:
        assert network.applied["tcp"]["tcp_ecn"] == "1"
        assert network.applied["discipline"]["discipline"] == "codel"
        for _ in range(TRIES):
            loaded_s(network)
            marked = int(output_of(network, 1, CONGESTION_SEEN))
            if marked:
                break
    assert marked > 0


def test_others_fill_the_queue_once_the_link_plays() -> None:
    with open_network(link(cross_traffic="upload"), 2) as network:
        assert _until(lambda: _ping_s(network), lambda found_s: found_s < 14e-3) < 14e-3
        network.play()
        assert _until(lambda: _ping_s(network, 60), lambda found_s: found_s > 25e-3) > 25e-3


def _ping_s(network: Network, count: int = 20) -> float:
    """Median round trip of datagrams from node 0 to node 1."""
    server, read = start(network, 1, SWALLOW)
    code = LOADED.replace("threading.Thread(target=send, daemon=True).start()", "").replace("+ 1.5", "")
    with os.fdopen(read) as stream:
        assert stream.readline() == "listening\n"
        times = output_of(network, 0, code, network.nodes[1].data_address, str(count * 0.03)).split()
        server.kill()
    return statistics.median(map(float, times))


def test_a_link_is_changed_while_it_runs_and_does_what_it_says_then() -> None:
    asked = link()
    with open_network(asked, 2) as network:
        changed = network.change(bandwidth="4 Mbit/s", latency="20 ms")
        assert network.applied["bandwidth_bps"] == 4e6
        for _ in range(TRIES):
            measured = verify(network, changed, 2)
            if measured.verdict == "ok":
                break
    assert measured.verdict == "ok", measured.reasons


def test_the_command_changes_the_link_of_a_run_and_the_run_tells_it(tmp_path: Path) -> None:
    bwbench = [sys.executable, "-m", "bwbench.cli.main", "link"]
    verdict = tmp_path / "verdict.json"
    asked = ["--backend", "relay", "--bandwidth", "10 Mbit/s", "--nodes", "1", "--json", str(verdict)]
    wait = ["sh", "-c", "echo ready; read line"]
    with subprocess.Popen(
        [*bwbench, "run", *asked, "--", *wait], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdin is not None and run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        which = ["--run", str(run.pid)]
        told = subprocess.run([*bwbench, "set", *which, "--bandwidth", "2 Mbit/s"], cwd=REPOSITORY, capture_output=True)
        wrong = subprocess.run([*bwbench, "set", *which, "--loss", "7"], cwd=REPOSITORY, capture_output=True)
        run.stdin.close()
    assert (told.returncode, told.stdout.startswith(b"2 Mbit/s")) == (0, True), told.stderr
    assert wrong.returncode == 2 and b"less than 1" in wrong.stderr
    (change,) = json.loads(verdict.read_text())["changes"]
    assert change["keys"] == {"bandwidth": "2 Mbit/s"} and change["link"].startswith("2 Mbit/s")
    nobody = subprocess.run([*bwbench, "set", *which, "--loss", "0"], cwd=REPOSITORY, capture_output=True)
    assert nobody.returncode != 0 and b"answers" in nobody.stderr


def test_a_link_with_super_packets_refuses_to_become_one_that_may_have_none() -> None:
    with open_network(link(bandwidth="400 Mbit/s"), 2) as network:
        with pytest.raises(ConfigError, match="super-packets of up to 25 kB"):
            network.change(bandwidth="5 Mbit/s")
        assert network.link.bandwidth_bps == network.applied["bandwidth_bps"] == 400e6
        network.change(bandwidth="1 Gbit/s", latency="1 ms")
        assert network.applied["bandwidth_bps"] == 1e9


def test_an_unshaped_link_stays_as_it_was_made() -> None:
    with (
        open_network(Link.model_validate({"shaped": False}), 1) as network,
        pytest.raises(ConfigError, match="unshaped"),
    ):
        network.change(loss=0.1)
