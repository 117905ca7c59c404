"""What the kernel allows a program in a node, which root may have started."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from bwbench.network.link import UNSHAPED
from bwbench.network.namespaces.rights import KEPT
from bwbench.network.network import Network, open_network

pytestmark = [pytest.mark.netns]

NET_ADMIN, SYS_MODULE, SYS_PTRACE, SYS_ADMIN = 12, 16, 19, 21


def said(network: Network, *command: str) -> tuple[int | None, str]:
    """Exit status of a program in node 0, and what it printed."""
    read, write = os.pipe()
    with os.fdopen(read) as output:
        process = network.spawn(0, list(command), stdout=write, stderr=write, few_rights=True)
        os.close(write)
        text = output.read()
    return process.wait(30), text


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with open_network(UNSHAPED, 2) as opened:
        yield opened


def test_a_program_has_few_capabilities_and_can_get_no_other(network: Network) -> None:
    _, text = said(network, "cat", "/proc/self/status")
    masks = {line.split(":")[0]: int(line.split()[1], 16) for line in text.splitlines() if line.startswith("Cap")}
    allowed = sum(1 << number for number in KEPT)
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert masks[name] & ~allowed == 0, name
    for number in (NET_ADMIN, SYS_MODULE, SYS_PTRACE, SYS_ADMIN):
        assert not masks["CapBnd"] >> number & 1
    assert "NoNewPrivs:\t0" in text


def test_it_cannot_take_the_shaping_off(network: Network) -> None:
    if shutil.which("ip") is None:
        pytest.skip("no ip")
    status, text = said(network, "ip", "link", "set", "data0", "down")
    assert status != 0 and "not permitted" in text


def test_ping_goes_on_working(network: Network) -> None:
    if shutil.which("ping") is None:
        pytest.skip("no ping")
    status, text = said(network, "ping", "-c", "1", "-W", "5", network.nodes[1].data_address)
    assert status == 0, text


def test_packets_can_be_captured_and_low_ports_served(network: Network) -> None:
    code = (
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768).bind(('data0', 0));"
        "socket.create_server(('', 80)); print('both')"
    )
    assert said(network, sys.executable, "-Ic", code) == (0, "both\n")
