"""The link that netem makes: rate, round trips, loss, jitter, counters; and that nothing of it stays."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator

import pytest

from bwbench.network.backend import WireCounters
from bwbench.network.link import Link
from bwbench.network.netem.check import netem_available
from bwbench.network.network import Network, open_network
from tests.netem.nodes import REPOSITORY, output_of, outside

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]

ROUND_TRIPS = 200


@pytest.fixture(scope="module")
def rough() -> Iterator[Network]:
    """A link with much jitter and loss, for the tests that need no other; no queue of it ever fills."""
    link = Link.model_validate(
        {
            "bandwidth": "20 Mbit/s",
            "latency": "30 ms",
            "jitter": "6 ms",
            "loss": 0.05,
            "queue": "2 MB",
            "backend": "netem",
        }
    )
    with open_network(link, 2) as network:
        yield network


def test_the_kernel_is_asked_without_a_trace() -> None:
    before = outside()
    assert netem_available()
    assert outside() == before


def test_auto_takes_netem_where_the_kernel_has_it_and_leaves_nothing_behind() -> None:
    before = outside()
    with open_network(Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "2.5 ms"}), 2) as network:
        assert (network.backend, network.applied["bandwidth_bps"]) == ("netem", 10e6)
        assert network.applied["offloads"] is False
        assert outside() != before
    assert outside() == before


def test_jitter_is_normal_and_loss_is_what_was_asked(rough: Network) -> None:
    address = rough.nodes[1].data_address
    text = output_of(rough, 0, "ping", "-c", str(ROUND_TRIPS), "-i", "0.02", "-W", "1", address)
    times_ms = [float(figure) for figure in re.findall(r"time=([\d.]+)", text)]
    # The path has the latency, jitter and loss once each way. Quartiles, because a busy machine adds a few late ones.
    low_ms, median_ms, high_ms = statistics.quantiles(times_ms, n=4)
    deviation_ms = math.sqrt(2) * 6
    assert median_ms == pytest.approx(60, abs=4)
    assert high_ms - low_ms == pytest.approx(2 * 0.6745 * deviation_ms, rel=0.35)
    beyond = sum(time_ms < 60 - 1.5 * deviation_ms for time_ms in times_ms)  # of an even distribution 0.02 would be
    assert beyond / len(times_ms) == pytest.approx(0.067, abs=0.055)
    lost = 1 - len(times_ms) / ROUND_TRIPS
    expected = 1 - 0.95**2
    assert lost == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / ROUND_TRIPS))


def test_jitter_lets_no_packet_overtake_another(rough: Network) -> None:
    # 0.3 ms apart with a jitter of 6 ms: without the rate on the line nearly every second one would.
    number = 250  # what a receive buffer holds even if its owner never gets to run meanwhile
    order, drops = datagrams(rough, number, gap_s=0.3e-3, payload_bytes=200)
    assert order == sorted(order)
    assert 0 < drops < number / 5
    assert len(order) + drops == number


def test_a_full_queue_drops_and_counts() -> None:
    link = Link.model_validate({"bandwidth": "1 Mbit/s", "queue": "30 kB", "backend": "netem"})
    with open_network(link, 2) as network:
        before = network.counters()
        order, drops = datagrams(network, number=60, gap_s=0.0, payload_bytes=1472)
        counted = network.counters().minus(before).pairs[0, WireCounters.ANY_NODE]
    # 30 kB are 20 frames, and one is on its way out; more leave, one each 12 ms, while the sender gets to send all.
    assert 20 <= len(order) <= 40
    assert len(order) + drops == 60
    assert (counted.frames, counted.bytes) == (len(order), len(order) * 1514)


def test_tcp_bytes_and_acknowledgements_are_counted_apart() -> None:
    payload_bytes = 1_000_000
    link = Link.model_validate({"bandwidth": "50 Mbit/s", "latency": "1 ms", "queue": "2 MB", "backend": "netem"})
    with open_network(link, 2) as network:
        before = network.counters()
        listen = "import socket; s = socket.create_server(('', 9998)); c, _ = s.accept(); print('on'); "
        serve = network.spawn(1, ["python3", "-c", listen + "[None for _ in iter(lambda: c.recv(1 << 16), b'')]"])
        send = (
            "import socket, time\n"
            "for _ in range(100):\n"
            f"    try: c = socket.create_connection(('{network.nodes[1].data_address}', 9998)); break\n"
            "    except OSError: time.sleep(0.1)\n"
            f"c.sendall(bytes({payload_bytes})); c.shutdown(1); c.recv(1)"
        )
        output_of(network, 0, "python", "-c", send)
        assert serve.wait(20) == 0
        counted = network.counters().minus(before)
    data, acks = counted.pairs[0, WireCounters.ANY_NODE], counted.pairs[1, WireCounters.ANY_NODE]
    assert data.bytes - (data.ack_bytes or 0) == pytest.approx(payload_bytes * 1514 / 1448, rel=0.01)
    assert data.ack_frames is not None and data.ack_frames < 15  # connecting and closing
    assert acks.ack_frames is not None and acks.frames - acks.ack_frames <= 2
    assert acks.frames > 50
    assert acks.ack_bytes == pytest.approx(acks.bytes, rel=0.02)


def datagrams(network: Network, number: int, gap_s: float, payload_bytes: int) -> tuple[list[int], int]:
    """Send numbered datagrams from node 0 to node 1: the numbers as they came, and the drops that the link counted."""
    read, write = os.pipe()
    module = "tests.netem.paced_datagrams"
    receiver = network.spawn(1, [sys.executable, "-m", module, "receive", "1"], cwd=REPOSITORY, stdout=write)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        assert stream.readline() == "ready\n"
        drops_before = network.counters().total().drops
        address = network.nodes[1].data_address
        output_of(network, 0, "python", "-m", module, "send", address, str(number), str(gap_s), str(payload_bytes))
        order = json.loads(stream.readline())
    assert receiver.wait(10) == 0
    time.sleep(0.1)
    return order, network.counters().total().drops - drops_before
