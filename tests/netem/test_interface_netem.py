"""``bwbench link apply`` where the kernel has netem: latency, jitter, loss and the queue, seen by ping."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.interface_lab import OTHER, PEER, PEER_6, Machine, wait_for

pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(120)]

MODULES = "sch_htb sch_tbf sch_ingress cls_u32 act_mirred ifb"
OF_THE_RIG = Path("/run/modules")  # where tests/netem/init keeps the user-mode kernel's modules
# Sends full datagrams to argv[1] for argv[2] seconds, four times as fast as 8 Mbit/s.
TRIES = 5  # a busy machine makes a transfer slower, and never faster
FLOOD = """
import socket, sys, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
sent = 0
while (now := time.monotonic() - start) < float(sys.argv[2]):
    while sent * 1514 * 8 < now * 32e6:
        to.sendto(bytes(1472), (sys.argv[1], 9))
        sent += 1
    time.sleep(0.002)
"""


def load_modules() -> None:
    """In the user-mode kernel; others load them by themselves."""
    if OF_THE_RIG.is_dir():
        subprocess.run(["modprobe", "-d", str(OF_THE_RIG), "-a", *MODULES.split()], check=True)


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    load_modules()
    with Machine() as machine:
        yield machine


@pytest.fixture
def machine(lab: Machine) -> Iterator[Machine]:
    """The machine; the test has to leave it as it found it."""
    before = lab.state()
    yield lab
    lab.clear()
    assert wait_for(lambda: lab.state() == before), lab.state()


def pings(machine: Machine, address: str, number: int = 40, gap_s: float = 0.03) -> list[float]:
    """Round trips in milliseconds; the first, which looks for neighbours, is left out."""
    text = machine.output_of("ping", "-c", str(number + 1), "-i", str(gap_s), "-W", "1", address, check=False)
    return [float(found[1]) for found in re.findall(r"icmp_seq=(\d+) .*?time=([\d.]+)", text) if found[0] != "1"]


def test_latency_is_added_in_both_directions_for_the_peers_alone(machine: Machine) -> None:
    idle_ms = statistics.median(pings(machine, PEER))
    machine.apply("--peer", PEER_6, "--latency", "20 ms")
    for address in (PEER, PEER_6):
        assert statistics.median(pings(machine, address)) - idle_ms == pytest.approx(40, abs=3)
    assert statistics.median(pings(machine, OTHER)) - idle_ms < 5
    machine.clear()
    assert statistics.median(pings(machine, PEER)) - idle_ms < 5


def test_latency_of_what_goes_out_alone(machine: Machine) -> None:
    machine.apply("--latency", "20 ms", "--only-up")
    assert statistics.median(pings(machine, PEER)) == pytest.approx(20, abs=3)


def test_the_rate_holds_beside_the_latency(machine: Machine) -> None:
    machine.apply("--latency", "5 ms", "--queue", "100 kB")
    asked_bps = 8e6 * 1448 / 1514
    for way in ("up", "down"):
        rates_bps = [machine.rate_bps(way, size=700_000)]
        while rates_bps[-1] < 0.85 * asked_bps and len(rates_bps) < TRIES:
            rates_bps.append(machine.rate_bps(way, size=700_000))
        assert 0.85 <= max(rates_bps) / asked_bps <= 1.15, rates_bps


def test_jitter_varies_the_round_trip(machine: Machine) -> None:
    machine.apply("--latency", "20 ms", "--jitter", "4 ms", "--jitter-kind", "independent")
    times_ms = pings(machine, PEER, number=150)
    low_ms, middle_ms, high_ms = statistics.quantiles(times_ms, n=4)
    assert middle_ms == pytest.approx(40, abs=4)
    assert high_ms - low_ms == pytest.approx(2 * 0.6745 * 4 * 2**0.5, rel=0.45)


def test_loss_is_lost(machine: Machine) -> None:
    number = 300
    machine.apply("--loss", "0.1")
    lost = 1 - len(pings(machine, PEER, number, gap_s=0.01)) / number
    expected = 1 - 0.9**2
    assert lost == pytest.approx(expected, abs=4 * (expected * (1 - expected) / number) ** 0.5)


def test_a_full_queue_delays_as_long_as_it_is(machine: Machine) -> None:
    """The queue holds what waits for the rate, and not what is under way."""
    machine.apply("--latency", "10 ms", "--queue", "50 kB", "--only-up")
    with machine.start("python", "-c", FLOOD, PEER, "4") as flood:
        loaded_ms = statistics.median(pings(machine, PEER, number=50)[20:])
        flood.communicate(timeout=20)
    assert loaded_ms - 10 == pytest.approx(50e3 * 8 / 8e6 * 1e3, rel=0.25)


def test_what_the_kernel_does_is_what_tc_would_do(machine: Machine) -> None:
    words = (
        "--latency",
        "20 ms",
        "--jitter",
        "2 ms",
        "--jitter-kind",
        "independent",
        "--loss",
        "0.02",
        "--loss-burst",
        "4",
    )
    machine.apply(*words)
    text = machine.output_of("tc", "qdisc", "show")
    assert text.count("netem") == 2
    assert text.count("delay 20ms  2ms") == 2
    assert text.count("loss gemodel p 0.510204% r 25% 1-h 100% 1-k 0%") == 2
