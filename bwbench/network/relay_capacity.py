"""What the relay carries on this machine, measured: every node sends to the next one over TCP as fast as it goes."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

from bwbench.base.units import BANDWIDTH
from bwbench.network.lateness import lateness_between
from bwbench.network.link import Link
from bwbench.network.network import open_network

NUM_NODES = 4
LATE_S = 0.001  # the 99th percentile of lateness up to which the relay keeps up
# All nodes together, in the order of trying: from the middle up while it goes well, else down.
_SINGLE_BPS = (50e6, 100e6, 200e6, 400e6, 800e6)
_SUPER_BPS = (1e9, 2e9, 4e9, 8e9)
LIGHTEST_BPS = _SINGLE_BPS[0]
_LATENCY, _QUEUE = "1 ms", "50 bdp"  # so long that TCP needs not recover from losses meanwhile
_SINGLY = {"loss": 1e-9}  # packets go one by one where each could be lost by itself
_RAMP_S, _MEASURED_S = 0.7, 0.8
_TRAFFIC = """
import os, socket, sys, time
server = socket.create_server((sys.argv[1], 5001))
if os.fork() == 0:
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((sys.argv[2], 5001), 10)
            break
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(1)
            time.sleep(0.01)
    data = bytes(1 << 17)
    while True:
        connection.sendall(data)
connection, buffer = server.accept()[0], bytearray(1 << 17)
while connection.recv_into(buffer):
    pass
"""


class Load(NamedTuple):
    """What one load made of the relay: bits and Ethernet frames carried a second, and the 99th percentile of lateness.

    Super-packets count as the frames that their segments make.
    """

    wire_bps: float
    frames_per_s: float
    late_s: float
    lost: int
    priority: str

    @property
    def kept_up(self) -> bool:
        """Whether the frames left when the link says, and all of them did."""
        return self.late_s <= LATE_S and not self.lost


def relay_capacity() -> dict[str, Any]:
    """The most that the relay carries here while 99 % of the frames leave within 1 ms of their time; takes some 10 s.

    Returns ``{"single_bps", "single_frames_per_s", "super_bps", "priority"}``: of all nodes together, packet by packet
    and as super-packets, acknowledgements included; 0 where it does not keep up with the least that is tried. Raises a
    BwbenchError where no network can be opened.
    """
    single = _most(_SINGLE_BPS, _SINGLY)
    super_packets = _most(_SUPER_BPS, {})
    return {
        "single_bps": single.wire_bps if single.kept_up else 0.0,
        "single_frames_per_s": single.frames_per_s if single.kept_up else 0.0,
        "super_bps": super_packets.wire_bps if super_packets.kept_up else 0.0,
        "priority": single.priority,
    }


def _most(ladder_bps: tuple[float, ...], keys: dict[str, Any]) -> Load:
    """The heaviest load of the ladder with which the relay kept up; the lightest where it kept up with none."""
    step = len(ladder_bps) // 2
    best = _try(ladder_bps[step], keys)
    if best.kept_up:
        for total_bps in ladder_bps[step + 1 :]:
            load = _try(total_bps, keys)
            if not load.kept_up:
                break
            best = max(best, load)
        return best
    for total_bps in ladder_bps[:step][::-1]:
        best = _try(total_bps, keys)
        if best.kept_up:
            break
    return best


def _try(total_bps: float, keys: dict[str, Any]) -> Load:
    """A load, twice where the relay did not keep up at first: something else on the machine may have disturbed it."""
    load = _load(total_bps, keys)
    return load if load.kept_up else _load(total_bps, keys)


def _load(total_bps: float, keys: dict[str, Any]) -> Load:
    rate = BANDWIDTH.format(total_bps / NUM_NODES)
    asked = {"bandwidth": rate, "latency": _LATENCY, "queue": _QUEUE, "backend": "relay", **keys}
    with open_network(Link.model_validate(asked), NUM_NODES) as network:
        for node in range(NUM_NODES):
            own, following = (network.nodes[number % NUM_NODES].data_address for number in (node, node + 1))
            network.spawn(node, [sys.executable, "-SEc", _TRAFFIC, own, following])
        time.sleep(_RAMP_S)
        begun_s, before, counters = time.monotonic(), network.health(), network.counters()
        time.sleep(_MEASURED_S)
        taken_s = time.monotonic() - begun_s
        after, wire = network.health(), network.counters().minus(counters).total()
        lateness = lateness_between(before, after)
        return Load(
            wire_bps=wire.bytes * 8 / taken_s,
            frames_per_s=wire.frames / taken_s,
            late_s=lateness["p99_s"] or 0.0,
            lost=sum(after[name] - before[name] for name in ("overruns", "unsent")),
            priority=str(network.applied["priority"]),
        )
