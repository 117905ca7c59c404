from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest

from bwbench.methods.collectives import pacing
from bwbench.methods.collectives.pacing import pace
from bwbench.network.link import UNSHAPED, Link

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_MAX_PACING_RATE is Linux's")
PACING_RATE = 47
UNLIMITED = 2**64 - 1


def rate_of(connection):
    return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, PACING_RATE, 8), "little")


@pytest.fixture
def connections(monkeypatch):
    """From node 0 to node 1, from node 0 to node 2, and one that leaves from another address."""
    monkeypatch.setattr(pacing, "node_addresses", lambda node: SimpleNamespace(data_address=f"127.77.0.{node + 1}"))
    opened = []
    for own, peer in (("127.77.0.1", "127.77.0.2"), ("127.77.0.1", "127.77.0.3"), ("127.0.0.1", "127.77.0.2")):
        server = socket.create_server((peer, 0))
        opened += [server, socket.create_connection(server.getsockname(), source_address=(own, 0))]
    yield opened[1::2]
    for connection in opened:
        connection.close()


def test_every_connection_gets_its_share_of_the_slower_end(connections):
    link = Link(bandwidth="10 Mbit/s", latency="2 ms", overrides={2: {"bandwidth": "2 Mbit/s"}})
    assert pace(link, flows=1) == 2
    full = pacing.SHARE_OF_DATA * 10e6 / 8 * 1448 / 1514
    assert [rate_of(connection) for connection in connections] == [int(full), int(full / 5), UNLIMITED]
    assert pace(link, flows=2) == 2
    assert rate_of(connections[0]) == int(full / 2)
    assert pace(link, flows=0) == 2
    assert [rate_of(connection) for connection in connections] == [UNLIMITED] * 3
    assert all(connection.gettimeout() is None for connection in connections)


@pytest.mark.parametrize("link", [None, UNSHAPED, Link(bandwidth="10 Mbit/s", latency="2 ms", medium="shared")])
def test_nothing_is_done_where_no_rate_is_a_nodes_own(connections, link):
    assert pace(link, flows=1) == 0
    assert [rate_of(connection) for connection in connections] == [UNLIMITED] * 3


def test_addresses_of_other_networks_are_left_alone(connections, monkeypatch):
    monkeypatch.undo()
    assert pace(Link(bandwidth="10 Mbit/s", latency="2 ms"), flows=1) == 0


def test_between_sites_the_narrowest_line_counts(connections):
    sites = {"a": {"bandwidth": "4 Mbit/s", "nodes": 2}, "b": {"bandwidth": "5 Mbit/s", "nodes": 2}}
    link = Link(bandwidth="10 Mbit/s", latency="2 ms", sites=sites)
    assert pace(link, flows=1, num_nodes=4) == 2
    full = pacing.SHARE_OF_DATA * 10e6 / 8 * 1448 / 1514
    assert [rate_of(connection) for connection in connections[:2]] == [int(full), int(full * 0.4)]
    assert pace(link, flows=0) == 2
