"""TCP settings of the nodes: set, recorded, refused with what to do."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.network.link import Link
from bwbench.network.network import Network, open_network
from tests.netns.nodes import output_of

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
            assert all(sysctl(network, node, name) == value for name, value in recorded.items())


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


def test_a_congestion_control_that_the_host_does_not_have_names_those_that_it_allows() -> None:
    with (
        pytest.raises(ConfigError, match=r"link\.tcp\.congestion_control.*'nonesuch'; allowed: .*reno.*modprobe"),
        open_network(link(congestion_control="nonesuch"), 1),
    ):
        pass
