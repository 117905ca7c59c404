"""The largest packet of the nodes' interfaces: what it is set to, and what it makes of a transfer."""

from __future__ import annotations

import pytest

from bwbench.network.link import Link
from bwbench.network.network import open_network
from tests.netns.nodes import output_of, transfer

pytestmark = [pytest.mark.netns]

PAYLOAD_BYTES = 2_000_000
SHAPED = {"bandwidth": "100 Mbit/s", "latency": "1 ms", "queue": "10 MB", "backend": "relay"}


FAST = SHAPED | {"bandwidth": "1 Gbit/s"}  # in super-packets, where two frames fit into one


@pytest.mark.parametrize(
    "mtu, asked",
    [(576, SHAPED), (1280, SHAPED), (9000, SHAPED), (9000, FAST), (65000, FAST), (1280, {"shaped": False})],
)
def test_a_transfer_has_frames_of_that_size(mtu: int, asked: dict[str, object]) -> None:
    with open_network(Link.model_validate({**asked, "mtu": mtu}), 2) as network:
        interface = network.nodes[0].data_interface
        assert output_of(network, 0, f"print(open('/sys/class/net/{interface}/mtu').read())").strip() == str(mtu)
        assert network.applied["mtu"] == mtu
        before = network.counters()
        transfer(network, [(0, 1)], PAYLOAD_BYTES)
        total = network.counters().minus(before).total()
    assert total.ack_bytes is not None
    assert total.bytes - total.ack_bytes == pytest.approx(PAYLOAD_BYTES * (mtu + 14) / (mtu - 52), rel=0.01)
