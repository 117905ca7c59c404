"""A node has a name of its own, knows the others by theirs, and is told at once that there is nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.network.link import UNSHAPED
from bwbench.network.network import Network, open_network
from tests.netns.nodes import REPOSITORY, output_of

pytestmark = [pytest.mark.netns]

LOOK_UP = """
import socket, sys, time
begin_s = time.monotonic()
try:
    socket.getaddrinfo(sys.argv[1], 80)
except socket.gaierror:
    print(time.monotonic() - begin_s)
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with open_network(UNSHAPED, 2) as opened:
        yield opened


def test_a_node_is_called_by_its_number_and_found_by_that_name(network: Network) -> None:
    code = "import socket; print(socket.gethostname(), *map(socket.gethostbyname, ('node0', 'node1', 'localhost')))"
    for node in (0, 1):
        words = output_of(network, node, code).split()
        assert words == [f"node{node}", network.nodes[0].data_address, network.nodes[1].data_address, "127.0.0.1"]


def test_sys_shows_the_nodes_interfaces(network: Network) -> None:
    shown = output_of(network, 1, "import os; print(*os.listdir('/sys/class/net'), os.path.isdir('/sys/fs/cgroup'))")
    if "data0" not in shown:
        pytest.skip("this kernel mounts no /sys in a user namespace")
    assert set(shown.split()) == {"lo", "data0", str(os.path.isdir("/sys/fs/cgroup"))}


def test_proc_shows_the_networks_processes_by_their_own_numbers(network: Network) -> None:
    code = (
        "import os; print(os.readlink('/proc/self') == str(os.getpid()), open('/proc/1/comm').read().strip(),"
        "os.path.exists(f'/proc/{os.getppid()}'))"
    )
    shown = output_of(network, 1, code)
    if "bwbench-agent" not in shown and os.geteuid() != 0:
        pytest.skip("this kernel mounts no /proc in a user namespace")
    assert shown.split() == ["True", "bwbench-agent", "True"]


def test_interfaces_are_running_from_the_first_moment() -> None:
    code = (
        "import fcntl, socket, struct\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:\n"
        "    flags = fcntl.ioctl(asked, 0x8913, struct.pack('16s16x', b'data0'))\n"  # SIOCGIFFLAGS
        "print(struct.unpack('16xH14x', flags)[0] & 0x40)"  # IFF_RUNNING
    )
    for _ in range(2):
        with open_network(UNSHAPED, 2) as opened:
            assert [output_of(opened, node, code).strip() for node in (0, 1)] == ["64", "64"]


def test_a_peer_of_a_socket_for_both_kinds_of_ip_has_a_name_too(network: Network) -> None:
    code = "import socket; print(*socket.getnameinfo(('::ffff:10.77.0.2', 80, 0, 0), socket.NI_NAMEREQD))"
    assert output_of(network, 0, code).split()[0] == "node1.mapped"


def test_names_of_the_outside_are_unknown_at_once(network: Network) -> None:
    taken = output_of(network, 1, LOOK_UP, "no-node.example.org")
    assert float(taken) < 2.0


def test_an_address_of_the_outside_is_unreachable_at_once(network: Network) -> None:
    code = "import errno, socket; print(socket.socket().connect_ex(('192.0.2.7', 80)) == errno.ENETUNREACH)"
    assert network.looked_outside() == []
    started_s = time.monotonic()
    assert output_of(network, 0, code).strip() == "True"
    assert time.monotonic() - started_s < 20
    assert network.looked_outside() == [0]


def test_link_run_says_who_looked_for_the_outside() -> None:
    code = "import socket, sys; sys.argv[1] == '1' and socket.socket().connect_ex(('192.0.2.7', 80))"
    command = ["link", "run", "--nodes", "2", "--bandwidth", "50 Mbit/s", "--", sys.executable, "-c", code, "{rank}"]
    ended = subprocess.run(
        [sys.executable, "-m", "bwbench.cli.main", *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "node(s) 1 looked for something outside, but nodes see only each other" in ended.stderr


def test_the_machine_keeps_its_own_name_and_files() -> None:
    before = socket.gethostname(), Path("/etc/hosts").read_bytes(), Path("/proc/self/mountinfo").read_text()
    with open_network(UNSHAPED, 1) as network:
        output_of(network, 0, "pass")
        after = socket.gethostname(), Path("/etc/hosts").read_bytes(), Path("/proc/self/mountinfo").read_text()
    assert after == before
