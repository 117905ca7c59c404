"""TCP settings of the nodes: set, recorded, refused with what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.network.link import Link
from bwbench.network.namespaces.congestion import taken_here
from bwbench.network.network import Network, open_network
from tests.netns.nodes import output_of, start

pytestmark = [pytest.mark.netns]

READ = "print(' '.join(open('/proc/sys/net/ipv4/{}').read().split()))"


def link(**tcp: Any) -> Link:
    return Link.model_validate({"bandwidth": "10 Mbit/s", "backend": "relay", "tcp": tcp})


def sysctl(network: Network, node: int, name: str) -> str:
    return output_of(network, node, READ.format(name)).strip()


def test_what_is_asked_holds_in_every_node_and_is_recorded() -> None:
    asked = link(congestion_control="reno", slow_start_after_idle=False, receive_buffer="2 MB", send_buffer="100 kB")
    with open_network(asked, 2) as network:
        recorded = network.applied["tcp"]
        assert recorded["tcp_congestion_control"] == "reno"
        assert recorded["tcp_slow_start_after_idle"] == "0"
        assert recorded["tcp_rmem"] == "4096 131072 2000000"
        assert recorded["tcp_wmem"] == "4096 100000 100000"
        for node in range(2):
            told = {name: value for name, value in recorded.items() if name.startswith("tcp_")}
            assert all(sysctl(network, node, name) == value for name, value in told.items())


IN_FORCE = """
import socket, sys
own, other, kind = sys.argv[1:]
def told(connection):
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(bytes(1))[0].decode()
if kind == "listens":
    with socket.create_server((own, 5001)) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
        print(told(connection), flush=True)
else:
    print(told(socket.create_connection((other, 5001), source_address=(own, 0))), flush=True)
"""


def in_force(network: Network) -> set[str]:
    """What both ends of a connection over the link use."""
    addresses = [node.data_address for node in network.nodes]
    process, read = start(network, 1, IN_FORCE, addresses[1], addresses[0], "listens")
    with open(read) as stream:
        assert stream.readline() == "listening\n"
        found = {output_of(network, 0, IN_FORCE, addresses[0], addresses[1], "connects").strip(), stream.read().strip()}
    assert process.wait(10) == 0
    return found


@pytest.mark.parametrize("asked", [None, "cubic", "reno"])
def test_connections_use_cubic_as_real_hosts_do_and_what_is_asked(asked: str | None) -> None:
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if asked not in (None, *known):
        pytest.skip(f"this kernel has no {asked}")
    with open_network(link(congestion_control=asked), 2) as network:
        expected = asked or ("cubic" if "cubic" in known else "reno")
        assert in_force(network) == {expected} == {network.applied["tcp"]["tcp_congestion_control"]}
        assert network.applied["tcp"]["congestion_control_by"] in ("namespace", "route")
        if asked is None:
            assert taken_here() == (expected, network.applied["tcp"]["congestion_control_by"])


def test_the_longest_wait_between_retransmissions_where_the_kernel_has_it() -> None:
    asked = link(rto_max="2 s")
    if os.path.exists("/proc/sys/net/ipv4/tcp_rto_max_ms"):
        with open_network(asked, 1) as network:
            assert network.applied["tcp"]["tcp_rto_max_ms"] == "2000"
        with (
            pytest.raises(ConfigError, match=r"link\.tcp\.rto_max.*1 s to 120 s"),
            open_network(link(rto_max="1 h"), 1),
        ):
            pass
    else:
        with pytest.raises(UnfitMachineError, match=r"link\.tcp\.rto_max.*Linux 6\.15"), open_network(asked, 1):
            pass


def test_a_congestion_control_that_the_kernel_does_not_have_names_those_that_it_has() -> None:
    with (
        pytest.raises(ConfigError, match=r"link\.tcp\.congestion_control.*'nonesuch'; it has .*reno.*modprobe"),
        open_network(link(congestion_control="nonesuch"), 1),
    ):
        pass
