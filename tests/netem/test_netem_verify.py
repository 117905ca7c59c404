"""The program's own probe on a netem link of four nodes: goodput of all at once, round trips, loss."""

from __future__ import annotations

import pytest

from bwbench.network.link import Link
from bwbench.network.network import open_network
from bwbench.network.probe.verification import LinkMeasurement, judge, verify
from tests.netem.nodes import outside

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]

NUM_NODES = 4
# The user-mode kernel has one processor and shares it with whatever else the machine does. That spoils the measurement
# of a pair now and then; a link that is wrong spoils it every time.
TRIES = 5


def test_the_probe_finds_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    link = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "2.5 ms", "backend": "netem"})
    before = outside()
    measured: list[LinkMeasurement] = []
    wrong = set(range(NUM_NODES))
    with open_network(link, NUM_NODES) as network:
        assert network.backend == "netem"
        while wrong and len(measured) < TRIES:
            measured.append(verify(network, link, NUM_NODES))
            wrong &= {pair.src for pair in measured[-1].pairs if judge("netem", link, [pair], 0.05).verdict != "ok"}
    with capsys.disabled():
        for pair in measured[-1].pairs:
            print(
                f"\n  {pair.src} -> {pair.dst}: goodput {pair.achieved_goodput_bps / 1e6:.3f} Mbit/s"
                f" of {(pair.asked_goodput_bps or 0) / 1e6:.3f},"
                f" round trip {(pair.achieved_rtt_s or 0) * 1e3:.2f} ms of {(pair.asked_rtt_s or 0) * 1e3:.2f}",
                end="",
            )
    assert not wrong, [measurement.reasons for measurement in measured]
    assert len(measured[-1].pairs) == NUM_NODES
    assert outside() == before
