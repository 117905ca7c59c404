"""A live relay whose nodes differ and whose links change: what comes through, tenth of a second by tenth."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from bwbench.network.link import ETHERNET_FRAME_BYTES, UDP_PAYLOAD_BYTES, Link
from bwbench.network.link.trace_file import freeze_link
from bwbench.network.network import Network, open_network
from tests.netns.nodes import start

pytestmark = [pytest.mark.netns]

# Sends full datagrams to port 6001 of argv[1] for argv[2] seconds at argv[3] bit/s of frames, however late it is.
FLOOD = f"""
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin, sent = time.monotonic(), 0
while (since := time.monotonic() - begin) < float(sys.argv[2]):
    while sent < since * float(sys.argv[3]) / 8 / {ETHERNET_FRAME_BYTES}:
        udp.sendto(bytes({UDP_PAYLOAD_BYTES}), (sys.argv[1], 6001))
        sent += 1
    time.sleep(0.002)
"""
# Prints when datagrams came (CLOCK_MONOTONIC), once none has come for argv[1] seconds.
WATCH = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 6001))
print("listening", flush=True)
udp.settimeout(15)
came = []
try:
    while udp.recv(2048):
        came.append(time.monotonic())
        udp.settimeout(float(sys.argv[1]))
except TimeoutError:
    print(*came)
"""


class Flow:
    """A flood from one node to another."""

    def __init__(
        self, network: Network, src: int, dst: int, rate_bps: float, duration_s: float, patience_s: float = 0.6
    ) -> None:
        self._watcher, watch = start(network, dst, WATCH, str(patience_s))
        self._stream = os.fdopen(watch)
        assert self._stream.readline() == "listening\n"
        address = network.nodes[dst].data_address
        self._sender, self._output = start(network, src, FLOOD, address, str(duration_s), str(rate_bps))

    def came_s(self) -> list[float]:
        """When each datagram came."""
        with self._stream:
            came_s = [float(word) for word in self._stream.read().split()]
        assert self._watcher.wait(10) == 0 and self._sender.wait(10) == 0
        os.close(self._output)
        return came_s


def rate_bps(came_s: list[float], begin_s: float, end_s: float) -> float:
    return sum(begin_s < time_s <= end_s for time_s in came_s) * ETHERNET_FRAME_BYTES * 8 / (end_s - begin_s)


def link(**asked: Any) -> Link:
    described = {"bandwidth": "4 Mbit/s", "latency": "1 ms", "queue": "16 kB", "backend": "relay", **asked}
    return Link.model_validate({key: value for key, value in described.items() if value is not None})


def carried_bps(network: Network, src: int, dst: int) -> float:
    came_s = Flow(network, src, dst, 8e6, 1.0).came_s()
    return rate_bps(came_s, came_s[0] + 0.2, came_s[0] + 0.9)


def test_directions_and_nodes_may_differ() -> None:
    asked = link(up="2 Mbit/s", overrides={2: {"bandwidth": "1 Mbit/s"}})
    with open_network(asked, 3) as network:
        assert (network.applied["up_bps"], network.applied["down_bps"]) == (2e6, 4e6)
        assert network.applied["nodes"] == {"2": {"up_bps": 1e6, "down_bps": 1e6}}
        assert carried_bps(network, 0, 1) == pytest.approx(2e6, rel=0.1)
        assert carried_bps(network, 1, 2) == pytest.approx(1e6, rel=0.1)
        assert carried_bps(network, 2, 0) == pytest.approx(1e6, rel=0.1)


def test_a_trace_begins_when_it_is_told_to_and_ends_when_it_is_held(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("time_s,rate_mbit_per_s\n0,1\n1,5\n2,1\n3,5\n")
    trace = {"file": "rates.csv", "format": "csv", "unit": "Mbit/s", "measures": "link"}
    asked = freeze_link(link(bandwidth=None, trace=trace), tmp_path)
    mean_bps = asked.base.up_bps
    with open_network(asked, 2) as network:
        flow = Flow(network, 0, 1, 8e6, 4.0)
        begun_s = time.monotonic()
        time.sleep(1.0)
        network.play()
        played_s = time.monotonic()
        time.sleep(2.0)
        network.hold()
        held_s = time.monotonic()
        came_s = flow.came_s()
    assert rate_bps(came_s, begun_s + 0.3, played_s) == pytest.approx(mean_bps, rel=0.15)
    assert rate_bps(came_s, played_s + 0.2, played_s + 1.0) == pytest.approx(1e6, rel=0.2)
    assert rate_bps(came_s, played_s + 1.2, held_s) == pytest.approx(5e6, rel=0.15)
    assert rate_bps(came_s, held_s + 0.2, held_s + 0.7) == pytest.approx(mean_bps, rel=0.15)


def test_an_outage_cuts_its_node_off_and_is_over_when_held() -> None:
    asked = link(outages=[{"at": "0.3 s", "duration": "0.5 s", "nodes": [1]}, {"at": "1.3 s", "duration": "1 h"}])
    with open_network(asked, 3) as network:
        flows = [Flow(network, 0, dst, 1e6, 3.0, patience_s=1.5) for dst in (1, 2)]
        time.sleep(0.3)
        network.play()
        played_s = time.monotonic()
        time.sleep(1.6)
        network.hold()
        held_s = time.monotonic()
        dead, alive = (flow.came_s() for flow in flows)
        assert network.counters().total().drops > 20
    for came_s, share in ((dead, 0.0), (alive, 1.0)):
        assert rate_bps(came_s, played_s + 0.35, played_s + 0.8) == pytest.approx(share * 1e6, abs=1e5)
        assert rate_bps(came_s, played_s + 0.85, played_s + 1.3) == pytest.approx(1e6, rel=0.2)
        assert rate_bps(came_s, played_s + 1.4, held_s) == 0
        assert rate_bps(came_s, held_s + 0.05, held_s + 0.5) == pytest.approx(1e6, rel=0.2)
