"""Disciplines of the relay beside the kernel's own: the same datagrams at the same times through both.

The kernel's queue stands in a router between sender and receiver. What came of each datagram there is compared with
what the relay's makes of the times at which they were sent, in virtual time. So a machine that is busy, as a user-mode
kernel is, moves both alike.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from bwbench.network.link.node_link import Queue
from bwbench.network.relay.disciplines import Packet
from bwbench.network.relay.managed import ManagedBottleneck, queue_of
from bwbench.network.relay.schedule import Direction
from bwbench.network.relay.switched import Line
from tests.netem.nodes import REPOSITORY

pytestmark = [pytest.mark.netem, pytest.mark.netns]

# So slow that what a user-mode kernel is late matters little: a frame takes 8.3 ms. The times of CoDel and PIE are four
# times as long as usual, too.
RATE_BPS = 1e6
FRAME_BYTES, HEADERS_BYTES = 1042, 42
BULK, OTHER, SPARSE = 1.0, 0.35, 0.03  # shares of the rate that three flows ask for: together a little too much
SECONDS, SETTLED_S, PORT = 45.0, 12.0, 5001
# What tc is told, and what a link.
DISCIPLINES: dict[str, tuple[str, Any]] = {
    "fq_codel": (
        "fq_codel limit 10240 flows 1024 target 20ms interval 400ms quantum 1514 noecn",
        {"discipline": "fq_codel", "target": "20 ms", "interval": "400 ms"},
    ),
    "codel": (
        "codel limit 1000 target 20ms interval 400ms noecn",
        {"discipline": "codel", "target": "20 ms", "interval": "400 ms"},
    ),
    "pie": (
        "pie limit 1000 target 60ms tupdate 60ms alpha 2 beta 20 noecn",
        {"discipline": "pie", "target": "60 ms", "update": "60 ms"},
    ),
    "red": (
        # burst 96 makes tc take a weight of 2^-9
        "red limit 120000 min 10000 max 60000 avpkt 1000 burst 96 bandwidth 1mbit probability 0.5",
        {"discipline": "red", "size": "120 kB", "low": 10 / 120, "high": 60 / 120, "probability": 0.5},
    ),
    "drop-tail": ("bfifo limit 64000", "64 kB"),
}
THROUGHPUT, DELAY, SLACK_S, LOSS = 0.05, 0.10, 2e-3, 0.05


class Came(NamedTuple):
    """What came of datagrams, once all had settled."""

    throughput_bps: float
    mean_delay_s: float
    loss: float


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


@contextlib.contextmanager
def kernel_path(qdisc: str) -> Iterator[None]:
    """a - r - b: the bottleneck is in r, on the way to b, where no sender's own limits are."""
    sh(f"""
        set -e
        for name in a r b; do ip netns add $name; ip -n $name link set lo up; done
        ip -n r link add ra type veth peer name data netns a
        ip -n r link add rb type veth peer name data netns b
        ip -n a addr add 10.99.1.1/24 dev data; ip -n b addr add 10.99.2.1/24 dev data
        ip -n r addr add 10.99.1.2/24 dev ra; ip -n r addr add 10.99.2.2/24 dev rb
        ip -n a link set data up; ip -n b link set data up
        ip -n r link set ra up; ip -n r link set rb up
        ip netns exec r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
        ip -n a route add default via 10.99.1.2; ip -n b route add default via 10.99.2.2
        tc -n r qdisc add dev rb root handle 1: tbf rate {RATE_BPS / 1e6}mbit burst 5000 limit 10000000
        tc -n r qdisc add dev rb parent 1:1 handle 2: {qdisc}
    """)
    try:
        yield
    finally:
        sh("for name in a r b; do ip netns del $name; done")


def through_the_kernel(qdisc: str) -> tuple[list[Any], dict[tuple[int, int], float]]:
    """Rows of what was sent, and when each datagram came."""
    inside = ["ip", "netns", "exec"]
    module = [sys.executable, "-m", "tests.netem.flooding_datagrams"]
    paces = [str(share * RATE_BPS / 8 / FRAME_BYTES) for share in (BULK, OTHER, SPARSE)]
    with kernel_path(qdisc):
        listen = [*inside, "b", *module, "receive", str(PORT), str(SECONDS + 6)]
        with subprocess.Popen(listen, cwd=REPOSITORY, stdout=subprocess.PIPE) as receiver:
            time.sleep(3.0)
            words = ["send", "10.99.2.1", str(PORT), str(SECONDS), str(FRAME_BYTES - HEADERS_BYTES), *paces]
            sender = subprocess.run([*inside, "a", *module, *words], cwd=REPOSITORY, capture_output=True, check=True)
            came, _ = receiver.communicate(timeout=60)
    return json.loads(sender.stdout), {(flow, number): time_s for flow, number, time_s in json.loads(came)}


def through_ours(asked: Any, rows: list[Any]) -> dict[tuple[int, int], float]:
    """When each datagram comes that is sent at these times."""
    queue, came = Queue.parse(asked), {}
    num_bytes = queue.num_bytes(RATE_BPS, 0.0, 1514)
    direction = Direction(RATE_BPS, num_bytes, queue.packets, discipline=queue.discipline)

    def sent(time_s: float, packet: Packet[tuple[int, int]]) -> None:
        came[packet.item] = time_s

    ours = ManagedBottleneck[tuple[int, int]](
        Line(direction), partial(queue_of, direction, 1514, "1"), sent, lambda packet: None, lambda packet: False
    )
    for flow, number, time_s in rows:
        ours.put(time_s, Packet((flow, number), FRAME_BYTES, flow=flow))
    ours.serve(rows[-1][2] + 60)
    return came


def came_of(rows: list[Any], came: dict[tuple[int, int], float], chosen: Sequence[int] = (0, 1, 2)) -> Came:
    """What came of the datagrams of some flows, from when everything had settled to shortly before the end."""
    begin_s, end_s = rows[0][2] + SETTLED_S, rows[-1][2] - 1.0
    sent = [row for row in rows if row[0] in chosen and begin_s < row[2] < end_s]
    delays_s = [came[flow, number] - time_s for flow, number, time_s in sent if (flow, number) in came]
    arrived = sum(begin_s < time_s < end_s for (flow, _), time_s in came.items() if flow in chosen)
    throughput_bps = arrived * FRAME_BYTES * 8 / (end_s - begin_s)
    return Came(throughput_bps, statistics.fmean(delays_s), 1 - len(delays_s) / len(sent))


@pytest.mark.parametrize("name", DISCIPLINES)
def test_a_discipline_does_what_the_kernels_does(name: str) -> None:
    """Throughput, delay and loss: of all flows together, as who loses is chance; of each where each has its queue."""
    qdisc, queue = DISCIPLINES[name]
    rows, at_kernel = through_the_kernel(qdisc)
    at_relay = through_ours(queue, rows)
    for chosen in ((0, 1, 2), *([(0,), (1,), (2,)] if name == "fq_codel" else [])):
        kernel, relay = came_of(rows, at_kernel, chosen), came_of(rows, at_relay, chosen)
        print(f"{name} of flows {chosen}: kernel {kernel}, relay {relay}")
        assert relay.throughput_bps == pytest.approx(kernel.throughput_bps, rel=THROUGHPUT)
        assert relay.mean_delay_s == pytest.approx(kernel.mean_delay_s, rel=DELAY, abs=SLACK_S)
        assert relay.loss == pytest.approx(kernel.loss, abs=LOSS)
