"""Disciplines of the relay beside the kernel's own: the same connections over the same bottleneck, in turns."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bwbench.network.link import Link
from bwbench.network.network import open_network
from tests.netem.nodes import REPOSITORY, output_of

pytestmark = [pytest.mark.netem, pytest.mark.netns]

RATE_MBPS = 4  # what the relay carries in a user-mode kernel without being late
ONE_WAY_MS = 10
SECONDS, CONNECTIONS, CONTROL, PORT = 24, 4, "cubic", 5001
# What tc is told, and what a link.
DISCIPLINES: dict[str, tuple[str, Any]] = {
    "fq_codel": ("fq_codel limit 10240 flows 1024 target 5ms interval 100ms quantum 1514 noecn", "fq_codel"),
    "codel": ("codel limit 1000 target 5ms interval 100ms noecn", "codel"),
    "pie": ("pie limit 1000 target 15ms tupdate 15ms alpha 2 beta 20 noecn", "pie"),
    "red": (
        # burst 96 makes tc take a weight of 2^-9
        "red limit 120000 min 10000 max 30000 avpkt 1000 burst 96 bandwidth 4mbit probability 0.1",
        {"discipline": "red", "size": "120 kB", "low": 10 / 120, "high": 30 / 120, "probability": 0.1},
    ),
    "drop-tail": ("bfifo limit 64000", "64 kB"),
}
GOODPUT, DELAY, SLACK_S = 0.03, 0.10, 1.5e-3


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


@contextlib.contextmanager
def kernel_path(qdisc: str) -> Iterator[None]:
    """a - r - b: the bottleneck is in r on the way to b, the delay on the way back, as a sender's own would not do."""
    sh(f"""
        set -e
        for name in a r b; do ip netns add $name; ip -n $name link set lo up; done
        ip -n r link add ra type veth peer name data netns a
        ip -n r link add rb type veth peer name data netns b
        ip -n a addr add 10.99.1.1/24 dev data; ip -n b addr add 10.99.2.1/24 dev data
        ip -n r addr add 10.99.1.2/24 dev ra; ip -n r addr add 10.99.2.2/24 dev rb
        for name in a b; do
            ip netns exec $name ethtool -K data tso off gso off gro off > /dev/null
            ip -n $name link set data gso_max_segs 1 up
        done
        for name in ra rb; do ip netns exec r ethtool -K $name tso off gso off gro off > /dev/null; done
        ip -n r link set ra up; ip -n r link set rb up
        ip netns exec r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
        ip -n a route add default via 10.99.1.2; ip -n b route add default via 10.99.2.2
        tc -n r qdisc add dev rb root handle 1: tbf rate {RATE_MBPS}mbit burst 4600 limit 10000000
        tc -n r qdisc add dev rb parent 1:1 handle 2: {qdisc}
        tc -n r qdisc add dev ra root netem delay {2 * ONE_WAY_MS}ms limit 100000
    """)
    try:
        yield
    finally:
        sh("for name in a r b; do ip netns del $name; done")


def of_kernel(qdisc: str) -> dict[str, float]:
    with kernel_path(qdisc):
        module = [sys.executable, "-m", "tests.netem.loaded_link"]
        with subprocess.Popen(["ip", "netns", "exec", "b", *module, "serve", str(PORT)], cwd=REPOSITORY) as server:
            try:
                time.sleep(2.0)
                words = ["load", "10.99.2.1", str(PORT), str(SECONDS), str(CONNECTIONS), CONTROL]
                done = subprocess.run(
                    ["ip", "netns", "exec", "a", *module, *words], cwd=REPOSITORY, capture_output=True, check=True
                )
            finally:
                server.kill()
    found: dict[str, float] = json.loads(done.stdout)
    return found


def of_relay(queue: Any) -> dict[str, float]:
    link = Link.model_validate(
        {
            "bandwidth": f"{RATE_MBPS} Mbit/s",
            "latency": f"{ONE_WAY_MS} ms",
            "queue": queue,
            "backend": "relay",
            "tcp": {"congestion_control": CONTROL},
        }
    )
    with open_network(link, 2) as network:
        module = [sys.executable, "-m", "tests.netem.loaded_link"]
        server = network.spawn(1, [*module, "serve", str(PORT)], cwd=REPOSITORY)
        try:
            time.sleep(2.0)
            words = ["load", network.nodes[1].data_address, str(PORT), str(SECONDS), str(CONNECTIONS), CONTROL]
            answer = output_of(network, 0, *module, *words)
            print("lateness p99", network.health()["lateness_p99_s"], "cpu", network.health()["cpu_s"])
        finally:
            server.kill()
    found: dict[str, float] = json.loads(answer)
    return found


@pytest.mark.parametrize("name", DISCIPLINES)
def test_a_discipline_does_what_the_kernels_does(name: str) -> None:
    """Goodput and delay under load: what the queue adds to the round trip on the idle link."""
    qdisc, queue = DISCIPLINES[name]
    theirs, ours = of_kernel(qdisc), of_relay(queue)
    print(name, "kernel", theirs, "relay", ours)
    assert ours["goodput_bps"] == pytest.approx(theirs["goodput_bps"], rel=GOODPUT)
    assert ours["mean_s"] == pytest.approx(theirs["mean_s"], rel=DELAY, abs=SLACK_S)
