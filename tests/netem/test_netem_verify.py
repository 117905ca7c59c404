"""The probe on a netem link of four nodes, in slow motion too: goodput of all at once, round trips, loss."""

from __future__ import annotations

import pytest

from bwbench.network.link import Link
from bwbench.network.network import open_network
from bwbench.network.probe.verification import LinkMeasurement, PairMeasurement, judge, verify
from tests.netem.nodes import outside

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]

NUM_NODES = 4
# The user-mode kernel has one processor and shares it with whatever else the machine does. That spoils the measurement
# of a pair now and then; a link that is wrong spoils it every time.
TRIES = 5


@pytest.mark.parametrize(("bandwidth", "latency", "dilation"), [("10 Mbit/s", "2.5 ms", 1), ("80 Mbit/s", "0.5 ms", 8)])
def test_the_probe_finds_what_was_asked(
    bandwidth: str, latency: str, dilation: float, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Link.model_validate({"bandwidth": bandwidth, "latency": latency, "backend": "netem"})
    link = asked.dilated(dilation)
    before = outside()
    measured: list[LinkMeasurement] = []
    right: dict[int, PairMeasurement] = {}  # by sending node, of a try in which it was found to be what was asked
    with open_network(asked, NUM_NODES, dilation=dilation) as network:
        assert network.backend == "netem"
        while len(right) < NUM_NODES and len(measured) < TRIES:
            measured.append(verify(network, link, NUM_NODES))
            right |= {one.src: one for one in measured[-1].pairs if judge("netem", link, [one], 0.05).verdict == "ok"}
    with capsys.disabled():
        for pair in measured[-1].pairs:
            print(
                f"\n  {pair.src} -> {pair.dst}: goodput {pair.achieved_goodput_bps / 1e6:.3f} Mbit/s"
                f" of {(pair.asked_goodput_bps or 0) / 1e6:.3f},"
                f" round trip {(pair.achieved_rtt_s or 0) * 1e3:.2f} ms of {(pair.asked_rtt_s or 0) * 1e3:.2f}",
                end="",
            )
    assert len(right) == NUM_NODES, [measurement.reasons for measurement in measured]
    assert len(measured[-1].pairs) == NUM_NODES
    # What stays of a rate for payload depends on frames alone, so that it is the same share of what was asked.
    for pair in (one.emulated(dilation) for one in right.values()):
        assert pair.asked_bps == pytest.approx(asked.bandwidth_bps)
        assert pair.achieved_goodput_bps == pytest.approx(0.972 * (asked.bandwidth_bps or 0), rel=0.05)
    assert outside() == before
