"""``launcher: ssh`` and ``link apply --hosts`` where the kernel has netem, and what an ssh session notices of it."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bwbench.network.emulate import Node
from tests.e2e.program import wait_for
from tests.hosts.lab import PORT, SSHD, Lab, lab
from tests.hosts.trials import nothing_left, status, written
from tests.netem.test_interface_netem import load_modules

pytest.importorskip("asyncssh", reason="the extra [ssh] is not installed")
pytestmark = [
    pytest.mark.netem,
    pytest.mark.netns,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd (Debian: openssh-server)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd lets others in for root alone"),
    pytest.mark.timeout(900),
]

NUM_HOSTS = int(os.environ.get("BWBENCH_TEST_HOSTS", "2"))  # each takes the user-mode kernel a minute
EXTRA_S = 5e-3  # what shaping may add to a session that it leaves alone
ECHOES = 30
# Fills the way to argv[1] for argv[2] seconds; at the other end nobody listens.
FLOOD = """
import socket, sys, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    to.sendto(bytes(1472), (sys.argv[1], 9))
    time.sleep(0.006)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    load_modules()
    with lab(tmp_path_factory.mktemp("lab"), NUM_HOSTS) as made:
        yield made


def test_hosts_train_over_netem(made: Lab) -> None:
    before = made.shaping()
    # One processor runs all hosts: a slow and long link with a queue of 0.5 s asks little of it.
    written(made, "netem", link={"bandwidth": "1 Mbit/s", "latency": "100 ms", "queue": "64 kB"}, nodes=NUM_HOSTS)
    code, said = made.run("run", "netem.yaml", limit_s=600)
    assert code == 0, said
    assert status(made, "netem")["status"] == "done"
    (file,) = made.home.glob("results/netem/*/attempt-1/link.json")
    link: dict[str, Any] = json.loads(file.read_text())
    assert link["backend"] == "interface" and "netem" in str(link["applied"])
    for pair in (*link["achieved_before"]["pairs"], *link["achieved_after"]["pairs"]):
        assert pair["asked_rtt_s"] == pytest.approx(0.2, rel=0.05)
        assert pair["achieved_rtt_s"] == pytest.approx(pair["asked_rtt_s"], rel=0.1)
    nothing_left(made)
    assert made.shaping() == before


def echo_s(made: Lab, src: Node, dst: Node) -> float:
    """Median seconds from a key to its echo, in an ssh session between two hosts."""
    home = made.home / ".ssh"
    options = [
        "-i",
        str(home / "id_ed25519"),
        "-o",
        f"UserKnownHostsFile={home / 'known_hosts'}",
        "-o",
        "BatchMode=yes",
    ]
    script = made.folder / "echo.py"
    script.write_text(_ECHO.format(number=ECHOES, command=["ssh", "-p", str(PORT), *options, dst.address, "cat"]))
    done = src.run(["python3", str(script)], capture_output=True, text=True, timeout=90, check=True)
    return statistics.median(json.loads(done.stdout))


_ECHO = """
import json, subprocess, time
session = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
taken = []
for _ in range({number} + 3):
    begin = time.monotonic()
    session.stdin.write(b"x")
    session.stdout.read(1)
    taken.append(time.monotonic() - begin)
    time.sleep(0.05)
session.stdin.close()
session.wait(20)
print(json.dumps(taken[3:]))
"""


def ping_s(src: Node, dst: Node) -> float:
    done = src.run(["ping", "-c", "6", "-i", "0.3", "-q", dst.address], capture_output=True, text=True, timeout=30)
    return float(done.stdout.rpartition("=")[2].split("/")[1]) / 1e3


def test_an_ssh_session_beside_shaped_traffic_notices_nothing(made: Lab) -> None:
    here, there = made.hosts[:2]
    (made.home / "ours.yaml").write_text(json.dumps(made.inventory()))
    idle_s = echo_s(made, here, there)
    words = ("--bandwidth", "1 Mbit/s", "--latency", "50 ms")
    process = made.start("link", "apply", "--hosts", "ours.yaml", *words)
    wait_for(lambda: "until Ctrl-C" in made.said or process.poll() is not None, 200, "the link")
    assert "until Ctrl-C" in made.said, made.said
    assert ping_s(here, there) == pytest.approx(0.1, abs=0.02)
    flood = here.popen(["python3", "-c", FLOOD, there.address, "30"])
    time.sleep(2)
    assert ping_s(here, there) > 0.15  # the queue is full
    beside_s = echo_s(made, here, there)
    flood.kill()
    process.kill()
    print(f"an echo by ssh: {idle_s * 1e3:.2f} ms idle, {beside_s * 1e3:.2f} ms beside 1 Mbit/s and 50 ms")
    assert beside_s - idle_s < EXTRA_S
    wait_for(lambda: all("netem" not in shown for shown in made.shaping()), 30, "the end of the shaping")
