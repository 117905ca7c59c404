"""What pyroute2 asks for, the kernel takes: with tc(8) as a second witness beside our own reading back."""

from __future__ import annotations

import json

import pytest

from bwbench.network.link import UNSHAPED
from bwbench.network.netem.shape import MAX_RATE_BYTES_PER_S, NetemQdisc
from bwbench.network.network import open_network
from tests.netem.nodes import output_of, outside

pytestmark = [pytest.mark.netem, pytest.mark.netns]

QDISCS = [
    NetemQdisc(limit_packets=44, rate_bytes_per_s=1_250_000),
    NetemQdisc(limit_packets=1_000_000, delay_us=2500),
    NetemQdisc(200, MAX_RATE_BYTES_PER_S, delay_us=5000, jitter_us=1000, loss=0.02),
    NetemQdisc(limit_packets=2**32 - 1, rate_bytes_per_s=1, delay_us=100_000_000, loss=1.0),
]
TICK_S = 1e-6  # tc cuts what it shows to whole microseconds


def test_every_field_arrives_and_other_values_are_refused() -> None:
    before = outside()
    asked = json.dumps([qdisc.to_json() for qdisc in QDISCS])
    with open_network(UNSHAPED, 1) as network:
        told = json.loads(output_of(network, 0, "python", "-m", "tests.netem.qdiscs_on_loopback", asked))
    for qdisc, said in zip(QDISCS, told["qdiscs"], strict=True):
        options = said["options"]
        assert (said["kind"], said["handle"], said["root"]) == ("netem", "bbbb:", True)
        assert options["limit"] == qdisc.limit_packets
        assert options.get("rate", {}).get("rate", 0) == qdisc.rate_bytes_per_s
        assert options.get("delay", {}).get("delay", 0) == pytest.approx(qdisc.delay_us / 1e6, abs=1.1 * TICK_S)
        assert options.get("delay", {}).get("jitter", 0) == pytest.approx(qdisc.jitter_us / 1e6, abs=1.1 * TICK_S)
        assert options.get("loss-random", {}).get("loss", 0) == pytest.approx(qdisc.loss, abs=1e-6)
    assert "'limit_packets': 44" in told["refusal"] and "'limit_packets': 45" in told["refusal"]
    assert told["afterwards"] == "noqueue"
    assert outside() == before
