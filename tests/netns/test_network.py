"""The parent's side: processes in nodes, what they see, how they end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError, LaunchError, LinkError
from bwbench.network.link import UNSHAPED
from bwbench.network.namespaces.addresses import CONTROL_INTERFACE, control_address
from bwbench.network.network import Network, open_network
from tests.netns.nodes import REPOSITORY, output_of, transfer

pytestmark = [pytest.mark.netns, pytest.mark.main_job]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with open_network(UNSHAPED, 3) as opened:
        yield opened


def test_nodes_reach_each_other_on_both_networks() -> None:
    code = """
import socket, sys
ends = [socket.create_server((address, 0)) for address in sys.argv[1:]]
for end in ends:
    with socket.create_connection(end.getsockname()), end.accept()[0]:
        pass
    end.close()
"""
    with open_network(UNSHAPED, 3, control_path=True) as network:
        output_of(network, 1, code, network.nodes[1].data_address, control_address(1))
        transfer(network, [(0, 1), (2, 0)], 100_000)
        interfaces = output_of(network, 2, "print(open('/proc/self/net/dev').read())")
    assert f"{CONTROL_INTERFACE}:" in interfaces


def test_a_node_has_these_interfaces_and_no_ipv6_on_them(network: Network) -> None:
    text = output_of(network, 2, "print(open('/proc/self/net/dev').read(), open('/proc/self/net/if_inet6').read())")
    for name in ("lo", network.nodes[2].data_interface):
        assert f"{name}:" in text
    assert "eth0" not in text and CONTROL_INTERFACE not in text
    assert "fe80" not in text


def test_neighbours_on_the_data_network_are_known_for_good(network: Network) -> None:
    arp = output_of(network, 0, "print(open('/proc/self/net/arp').read())")
    rows = [line.split() for line in arp.splitlines() if network.nodes[0].data_interface in line]
    assert {row[0] for row in rows} == {network.nodes[1].data_address, network.nodes[2].data_address}
    assert {row[2] for row in rows} == {"0x6"}  # complete and permanent


def test_a_process_gets_its_environment_directory_and_descriptors(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "a folder 'with' \"quotes\"\n and a line break"
    folder.mkdir()
    code = "import os; os.write(7, repr((os.getcwd(), dict(os.environ).get('WORD'), os.environ.get('HOME'))).encode())"
    read, write = os.pipe()
    environment = {"WORD": "two words\n"}
    process = network.spawn(0, [sys.executable, "-c", code], env=environment, cwd=folder, pass_fds={7: write})
    os.close(write)
    with open(read) as stream:
        assert stream.read() == repr((str(folder), "two words\n", None))
    assert process.wait(60) == 0


def test_return_codes_are_those_of_subprocess(network: Network) -> None:
    process = network.spawn(0, ["sh", "-c", "exit 7"])
    assert process.wait(60) == 7
    assert process.poll() == process.wait(0) == process.returncode == 7
    process = network.spawn(0, ["sleep", "100"])
    assert process.poll() is None
    started_s = time.monotonic()
    assert process.wait(0.1) is None
    assert time.monotonic() - started_s < 5
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    process.kill()


def test_kill_takes_the_children_too(network: Network) -> None:
    read, write = os.pipe()
    process = network.spawn(1, ["sh", "-c", "sleep 100 & wait"], stdout=write)
    os.close(write)
    time.sleep(0.2)
    process.kill()
    assert os.read(read, 1) == b""  # the last writer has ended
    os.close(read)


def test_the_process_id_is_the_one_that_we_see(network: Network) -> None:
    process = network.spawn(2, ["sleep", "100"])
    assert Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\x00100\x00"
    assert process.cpu_time_s() >= 0
    process.kill()
    process.wait(60)


@pytest.mark.parametrize("argv, cwd", [(["no-such-program"], REPOSITORY), (["true"], "/no/such/folder")])
def test_what_cannot_be_started_says_so(network: Network, argv: list[str], cwd: str) -> None:
    with pytest.raises(LaunchError, match="No such file or directory"):
        network.spawn(0, argv, cwd=cwd)


def test_many_processes_end_in_any_order(network: Network) -> None:
    processes = [network.spawn(number % 3, ["sh", "-c", f"exit {number}"]) for number in range(20)]
    assert [process.wait(60) for process in reversed(processes)] == list(reversed(range(20)))


def test_traffic_is_counted_with_the_headers_of_every_segment() -> None:
    with open_network(UNSHAPED, 2) as network:
        before = network.counters()
        transfer(network, [(0, 1)], 10_000_000)
        total = network.counters().minus(before).total()
    assert total.ack_bytes is not None
    assert total.bytes - total.ack_bytes == pytest.approx(10_000_000 * 1514 / 1448, rel=0.01)
    assert total.drops == 0


@pytest.mark.parametrize("num_nodes", [0, -1, 255])
def test_a_number_of_nodes_out_of_range_is_the_users_error(num_nodes: int) -> None:
    with pytest.raises(ConfigError, match="1 to 254"), open_network(UNSHAPED, num_nodes):
        pass


def test_closing_ends_everything_and_may_be_repeated() -> None:
    with open_network(UNSHAPED, 2) as network:
        process = network.spawn(0, ["sleep", "100"])
        network.close()
        assert process.wait(60) == -signal.SIGKILL
        network.close()
        with pytest.raises(LinkError):
            network.counters()


def test_a_parent_with_many_threads_may_open_and_use_a_network() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(30)]
    for thread in threads:
        thread.start()
    codes: list[int | None] = []

    def from_another_thread() -> None:
        with open_network(UNSHAPED, 2) as other:
            codes.append(other.spawn(0, ["sh", "-c", "exit 5"]).wait(60))

    try:
        with open_network(UNSHAPED, 2) as network:
            processes = [network.spawn(0, ["sh", "-c", "exit 6"]) for _ in range(4)]
            waiters = [threading.Thread(target=lambda p=p: codes.append(p.wait(60))) for p in processes]
            waiters.append(threading.Thread(target=from_another_thread))
            for waiter in waiters:
                waiter.start()
            for waiter in waiters:
                waiter.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert sorted(codes, key=str) == [5, 6, 6, 6, 6]
