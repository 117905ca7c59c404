"""A link whose nodes and directions differ: every qdisc as tc(8) sees it, then rates, queues, delays, losses."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterator

import pytest

from bwbench.network.link import ETHERNET_FRAME_BYTES, UDP_PAYLOAD_BYTES, Link
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.netem.tc_commands import tc_commands
from bwbench.network.network import Network, open_network
from tests.netem import air
from tests.netem.nodes import outside
from tests.netem.streams import Received, send

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]

NUM_NODES = 4
NEAR, SLOW, FAR, SHORT = range(NUM_NODES)
LINK = Link.model_validate(
    {
        "up": "6 Mbit/s",
        "down": "12 Mbit/s",
        "latency": "5 ms",
        "queue": "30 packets",
        "overrides": {
            SLOW: {"up": "2 Mbit/s", "down": "3 Mbit/s"},
            FAR: {"latency": "45 ms", "loss": 0.3},
            SHORT: {"queue": "20 kB"},
        },
    }
)
OVERLOAD = 1.25


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    before = outside()
    with open_network(LINK, NUM_NODES) as opened:
        assert outside() != before
        yield opened
    assert outside() == before


def test_auto_takes_netem_where_the_kernel_has_it(network: Network) -> None:
    told = network.applied
    assert network.backend == "netem"
    assert (told["bandwidth_bps"], told["up_bps"], told["down_bps"], told["latency_s"]) == (6e6, 6e6, 12e6, 0.005)
    assert (told["offloads"], told["queue_packets"]) == (False, 31)
    assert told["seed_applied"] is (tuple(map(int, platform.release().split(".")[:2])) >= (6, 6))
    assert [shapes["nodes"] for shapes in told["shapes"]] == [[NEAR], [SLOW], [FAR], [SHORT]]


def test_the_printed_commands_make_the_same_qdiscs(network: Network) -> None:
    ours = air.netem_lines(air.tc_of_agent("-s", "-d", "qdisc", "show"))
    assert len(ours) == 3 * NUM_NODES + 1
    assert ours == air.qdiscs_by_hand(tc_commands(LINK, NUM_NODES))
    assert ours["nu0"].endswith("limit 31 rate 6Mbit") and ours["n0"].endswith("limit 31 rate 12Mbit")
    assert ours["nu1"].endswith("limit 31 rate 2Mbit") and ours["n1"].endswith("limit 31 rate 3Mbit")
    assert ours["nu3"].endswith("limit 15 rate 6Mbit")  # 20 kB are 13.2 frames
    assert "delay 5ms" in ours["nd0"] and "delay 25ms" in ours["nd2"] and "delay 20ms" in ours["no2"]


@pytest.mark.parametrize(
    "src, dst, rate_bps, queue_frames",
    [
        (NEAR, FAR, 6e6, 30),  # up is the bottleneck
        (NEAR, SLOW, 3e6, 30),  # down is the bottleneck
        (SLOW, NEAR, 2e6, 30),
        (SHORT, NEAR, 6e6, 20_000 / 1514),
    ],
)
def test_the_rate_and_the_queue_of_each_direction(
    network: Network, src: int, dst: int, rate_bps: float, queue_frames: float
) -> None:
    frame_s = ETHERNET_FRAME_BYTES * 8 / rate_bps
    path = LINK.path(src, dst)
    asked_s = path.latency_s + ETHERNET_FRAME_BYTES * 8 * (1 / LINK.node(src).up_bps + 1 / LINK.node(dst).down_bps)
    tolerance = 0.02 if path.loss == 0 else 0.1
    for _ in range(10):  # a machine that stops for longer than a queue lasts spoils a try; a wrong qdisc spoils all
        before = network.counters()
        (stream,) = send(network, src, [dst], 400, frame_s / OVERLOAD, UDP_PAYLOAD_BYTES, catches_up=True)
        counted = network.counters().minus(before)
        # The queue takes 30 / 0.25 frames to fill; arrivals without the lost ones, which took their time as well.
        late = stream.delays_s[len(stream.delays_s) // 2 :]
        queued_frames = (statistics.median(late) - asked_s) / frame_s
        achieved_bps = stream.rate_bps / (1 - path.loss)
        if achieved_bps == pytest.approx(rate_bps, rel=tolerance) and abs(queued_frames / queue_frames - 1) <= 0.1:
            break
    assert achieved_bps == pytest.approx(rate_bps, rel=tolerance)
    assert queued_frames == pytest.approx(queue_frames, rel=0.1)
    check_counts(counted, src, dst, stream)


def check_counts(counted: WireCounters, src: int, dst: int, stream: Received) -> None:
    """Every frame that was sent either came or counts as a drop, and what entered counts as sent."""
    lost = stream.number - len(stream.numbers)
    sender = counted.pairs[src, WireCounters.ANY_NODE]
    assert counted.total().drops == lost
    assert sender.bytes == sender.frames * ETHERNET_FRAME_BYTES
    lost_before_it_entered = sender.drops if dst != FAR else 0
    assert len(stream.numbers) <= sender.frames <= stream.number - lost_before_it_entered


def test_each_end_has_its_half_of_latency_and_loss(network: Network) -> None:
    serialised_s = {
        (src, dst): 142 * 8 * (1 / LINK.node(src).up_bps + 1 / LINK.node(dst).down_bps)
        for src in range(NUM_NODES)
        for dst in range(NUM_NODES)
    }
    before = network.counters()
    for src, dsts in ((FAR, [NEAR, SLOW]), (NEAR, [FAR, SHORT])):
        for dst, stream in zip(dsts, send(network, src, dsts, 400, 0.005, 100), strict=True):
            path = LINK.path(src, dst)
            soon_s = statistics.quantiles(stream.delays_s, n=10)[0]  # a machine can only make it later
            assert soon_s == pytest.approx(path.latency_s + serialised_s[src, dst], abs=1e-3)
            expected, deviation = 400 * path.loss, (400 * path.loss * (1 - path.loss)) ** 0.5
            assert 400 * stream.loss == pytest.approx(expected, abs=4 * deviation)
    counted = network.counters().minus(before)
    assert counted.pairs[FAR, WireCounters.ANY_NODE].drops > 0  # what is lost on its way out of it and into it
    assert counted.pairs[SLOW, WireCounters.ANY_NODE].drops == 0


def test_tc_counts_the_same(network: Network) -> None:
    counts = air.counts(air.tc_of_agent("-s", "qdisc", "show"))
    counters = network.counters()
    for node in range(NUM_NODES):
        ours = counters.pairs[node, WireCounters.ANY_NODE]
        assert (ours.bytes, ours.frames) == counts[f"nu{node}"][:2]
        names = [f"{name}{node}" for name in ("nu", "no", "nd", "n")]
        assert ours.drops == sum(counts[name][2] for name in names if name in counts)
    assert network.health()["drops"] == counters.total().drops
