"""The netem back end beside its shaping: the question to the kernel, and the bytes of TCP."""

from __future__ import annotations

import pytest

from bwbench.network.link import Link
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.network import open_network
from tests.netem.nodes import output_of, outside

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]


def test_the_kernel_is_asked_without_a_trace() -> None:
    before = outside()
    assert netem_available()
    assert outside() == before


@pytest.mark.parametrize("mtu", [1280, 1500])
def test_tcp_bytes_and_acknowledgements_are_counted_apart(mtu: int) -> None:
    payload_bytes = 1_000_000
    keys = {"bandwidth": "50 Mbit/s", "latency": "1 ms", "queue": "2 MB", "backend": "netem", "mtu": mtu}
    link = Link.model_validate(keys)
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
    assert data.bytes - (data.ack_bytes or 0) == pytest.approx(payload_bytes * (mtu + 14) / (mtu - 52), rel=0.01)
    assert data.ack_frames is not None and data.ack_frames < 15  # connecting and closing
    assert acks.ack_frames is not None and acks.frames - acks.ack_frames <= 2
    assert acks.frames > 50
    assert acks.ack_bytes == pytest.approx(acks.bytes, rel=0.02)
