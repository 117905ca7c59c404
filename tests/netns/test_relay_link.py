"""The relay on real sockets, seen by the probe and by its own counters."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable

import pytest

from bwbench.network.link import TCP_PAYLOAD_BYTES, Link
from bwbench.network.network import open_network
from bwbench.network.probe.verification import LinkMeasurement, verify
from tests.netns.nodes import transfer

pytestmark = [pytest.mark.netns]

TRIES = 12  # a machine that is busy with something else makes a measurement worse, never better


def link(bandwidth: str = "10 Mbit/s", latency: str = "2.5 ms", **asked: object) -> Link:
    return Link.model_validate({"bandwidth": bandwidth, "latency": latency, "backend": "relay", **asked})


def measure(asked: Link, num_nodes: int, good: Callable[[LinkMeasurement], bool]) -> LinkMeasurement:
    with open_network(asked, num_nodes) as network:
        for _ in range(TRIES):
            measured = verify(network, asked, num_nodes)
            if good(measured):
                break
    return measured


@pytest.mark.parametrize("bandwidth", ["1 Mbit/s", "20 Mbit/s", "300 Mbit/s"])
def test_the_link_is_what_was_asked(bandwidth: str) -> None:
    measured = measure(link(bandwidth), 3, lambda found: found.verdict == "ok")
    assert measured.verdict == "ok", measured.reasons
    assert len(measured.pairs) == 3


def test_two_nodes_on_a_shared_air() -> None:
    measured = measure(link(medium="shared"), 2, lambda found: found.verdict == "ok")
    assert measured.verdict == "ok", measured.reasons
    for pair in measured.pairs:  # both send all they can, and the access point has a third of the turns for both
        assert pair.achieved_goodput_bps == pytest.approx(10e6 / 3 / 2 * 1472 / 1514, rel=0.05)


def test_loss_and_jitter_are_what_was_asked() -> None:
    measured = measure(link(loss=0.05, jitter="0.5 ms"), 2, lambda found: found.verdict == "ok")
    assert measured.verdict == "ok", measured.reasons
    assert all(pair.achieved_loss and pair.achieved_loss > 0.01 for pair in measured.pairs)


def test_one_node_has_nothing_to_measure() -> None:
    measured = measure(link(), 1, lambda found: True)
    assert (measured.verdict, measured.pairs) == ("ok", ())


@pytest.mark.parametrize(
    "fault, medium, words",
    [
        ("rate=0.1", "switched", "goodput"),
        ("rate=2", "switched", "goodput"),
        ("rate=0.1", "shared", "goodput"),
        ("rate=2", "shared", "one pair alone"),
        ("latency=10", "switched", "round trip"),
    ],
)
def test_a_link_that_is_not_what_was_asked_is_found_out(
    fault: str, medium: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BWBENCH_RELAY_FAULT", fault)
    asked = link(medium=medium)
    with open_network(asked, 2) as network:
        measured = verify(network, asked, 2)
        assert (network.applied["bandwidth_bps"], network.applied["latency_s"]) == (10e6, 0.0025)
    assert measured.verdict == "out-of-tolerance"
    assert any(words in reason for reason in measured.reasons)


@pytest.mark.main_job
@pytest.mark.parametrize("bandwidth", ["50 Mbit/s", "300 Mbit/s"])
def test_the_wire_carries_the_payload_and_the_headers_of_every_segment(bandwidth: str) -> None:
    """Below 200 Mbit/s frames come one by one, above as super-packets: both are charged alike."""
    payload_bytes = 2_000_000
    with open_network(link(bandwidth, queue="4 MB"), 2) as network:
        before = network.counters()
        transfer(network, [(0, 1)], payload_bytes)
        time.sleep(0.1)
        counted = network.counters().minus(before).pairs
    data = counted[0, 1]
    assert data.ack_bytes is not None and data.ack_frames is not None
    frames = payload_bytes / TCP_PAYLOAD_BYTES
    assert data.frames - data.ack_frames == pytest.approx(frames, rel=0.05)
    assert data.bytes - data.ack_bytes == pytest.approx(payload_bytes + 66 * frames, rel=0.03)
    acks = counted[1, 0]
    assert acks.ack_bytes == acks.bytes > 0
    assert data.drops == acks.drops == 0


def test_uplinks_and_downlinks_are_shared_alike() -> None:
    """Three to one takes as long as one to three; three neighbours in a ring share nothing."""
    patterns = {"out": [(0, 1), (0, 2), (0, 3)], "in": [(1, 0), (2, 0), (3, 0)], "ring": [(1, 2), (2, 3), (3, 1)]}
    durations_s = dict.fromkeys(patterns, math.inf)
    with open_network(link("8 Mbit/s"), 4) as network:
        for _ in range(TRIES):
            for name, pairs in patterns.items():
                started_s = time.monotonic()
                transfer(network, pairs, 300_000)
                durations_s[name] = min(durations_s[name], time.monotonic() - started_s)
            if durations_s["ring"] < 0.5 * durations_s["out"]:
                break
    assert durations_s["out"] > 0.9 * 3 * 300_000 * 8 / 8e6
    assert durations_s["in"] == pytest.approx(durations_s["out"], rel=0.3)
    assert durations_s["ring"] < 0.75 * durations_s["out"]


def test_the_relay_says_how_well_it_keeps_up() -> None:
    with open_network(link(), 2) as network:
        assert network.backend == "relay"
        transfer(network, [(0, 1)], 200_000)
        health = network.health()
        assert health["alive"]
        assert 0 <= health["lateness_p50_s"] <= health["lateness_p99_s"] <= health["lateness_max_s"]
        assert health["cpu_s"] > 0
        assert health["overruns"] == 0


def test_a_relay_that_has_ended_is_noticed() -> None:
    with open_network(link(), 2) as network:
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/comm") as comm, open(f"/proc/{entry}/environ") as environment:
                    if comm.read() == "bwbench-relay\n" and f"BWBENCH_TEST_PID={os.getpid()}" in environment.read():
                        os.kill(int(entry), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        deadline_s = time.monotonic() + 60
        while network.health()["alive"] and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert network.health()["alive"] is False
        network.counters()


@pytest.fixture(autouse=True)
def _mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWBENCH_TEST_PID", str(os.getpid()))
