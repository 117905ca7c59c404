"""Whose traffic, as which link: what is taken and what is refused."""

from __future__ import annotations

import ipaddress

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.interface.shaping_request import PeerTraffic, PortRange, check_link
from bwbench.network.link import UNSHAPED, Link


def link(**asked: object) -> Link:
    return Link.model_validate({"bandwidth": "10 Mbit/s", **asked})


@pytest.mark.parametrize(
    "text, first, last", [("5001", 5001, 5001), (" 5001 - 5010 ", 5001, 5010), ("1-65535", 1, 65535)]
)
def test_ports(text: str, first: int, last: int) -> None:
    assert PortRange.parse(text) == PortRange(first, last)


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "5010-5001", "1-2-3", "-5", "5001,5002", "1e3", "٣"])
def test_wrong_ports(text: str) -> None:
    with pytest.raises(ConfigError, match="--port"):
        PeerTraffic.parse(["10.0.0.2"], [text])


def test_peers_are_addresses_and_networks_of_both_versions() -> None:
    traffic = PeerTraffic.parse(["10.0.0.2", "10.1.0.0/16", "fe80::1%eth0", "fd00::/8", "10.0.0.2"], [])
    assert str(traffic) == "10.0.0.2, 10.1.0.0/16, fe80::1, fd00::/8 (everything)"
    assert str(PeerTraffic.parse(["10.0.0.2"], ["22", "80-81"])) == "10.0.0.2 (TCP and UDP, ports 22, 80-81)"


@pytest.mark.parametrize(
    "peer, words",
    [
        ("server.lan", "no IP address"),
        ("10.0.0", "no IP address"),
        ("", "no IP address"),
        ("10.0.0.2:22", "no IP address"),
        ("10.0.0.2/24", "write 10.0.0.0/24 or 10.0.0.2"),
        ("0.0.0.0/0", "everybody"),
        ("::/0", "everybody"),
        ("127.0.0.1", "not the address of another machine"),
        ("224.0.0.1", "not the address of another machine"),
        ("::", "not the address of another machine"),
    ],
)
def test_wrong_peers(peer: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        PeerTraffic.parse([peer, "also wrong"], ["no port"])
    assert len(caught.value.problems) == 3


def test_no_peer_at_all() -> None:
    with pytest.raises(ConfigError, match="--peer"):
        PeerTraffic.parse([], [])


@pytest.mark.parametrize(
    "ports, remote, remote_port, local_port, expected",
    [
        ([], "10.0.0.2", 50000, 22, True),
        ([], "10.0.0.3", 50000, 22, False),
        ([], "fd00::2", 50000, 22, True),
        (["5001-5010"], "10.0.0.2", 50000, 22, False),
        (["5001-5010"], "10.0.0.2", 50000, 5010, True),
        (["5001-5010"], "10.0.0.2", 5001, 22, True),
    ],
)
def test_which_connections_it_has(
    ports: list[str], remote: str, remote_port: int, local_port: int, expected: bool
) -> None:
    traffic = PeerTraffic.parse(["10.0.0.2", "fd00::/64"], ports)
    assert traffic.has(ipaddress.ip_address(remote), remote_port, local_port) is expected


@pytest.mark.parametrize("netem", [True, False])
def test_a_rate_and_a_queue_need_no_netem(netem: bool) -> None:
    check_link(link(up="1 Mbit/s", queue="100 packets"), netem=netem)
    check_link(link(backend="auto"), netem=netem)


def test_the_rest_needs_it() -> None:
    asked = link(latency="5 ms", jitter="1 ms", jitter_kind="independent", loss=0.01, backend="netem")
    check_link(asked, netem=True)
    with pytest.raises(ConfigError) as caught:
        check_link(asked, netem=False)
    assert [problem.message.partition(":")[0] for problem in caught.value.problems] == [
        "--latency",
        "--jitter",
        "--loss",
    ]
    assert "modprobe sch_netem" in str(caught.value)


@pytest.mark.parametrize(
    "asked, option",
    [
        (link(medium="shared"), "--medium"),
        (link(outages=[{"at": "1 s", "duration": "1 s"}]), "--trace, --outage"),
        (link(overrides={"0": {"latency": "1 ms"}}), "--override"),
        (link(tcp={"congestion_control": "reno"}), "--congestion-control"),
        (link(mtu=9000), "--mtu"),
        (link(backend="relay"), "--backend"),
        (link(bandwidth="100 Gbit/s"), "--bandwidth"),
        (UNSHAPED, "unshaped"),
    ],
)
def test_what_no_interface_can_do(asked: Link, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        check_link(asked, netem=True)
