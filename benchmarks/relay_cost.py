"""What the relay costs and how much it carries: TCP from each node to the next one, all at once, as fast as it goes.

A row a ring: goodput against what the links allow, the relay's CPU time per frame (nodes' TCP included: it runs in the
relay's sends), wake-ups, how late frames left. CPU time moves with whatever else the machine does, so that each ring is
run several times and the cheapest run is told, beside cost and goodput of all of them. What TCP makes of a queue is not
what the relay carries: `8:100:1 bdp:reno` against `8:100:50 ms:cubic` shows the former (docs/links.md).

Usage: python benchmarks/relay_cost.py [--json FILE] [--quick] [--ring NODES:MBPS[:QUEUE[:CONGESTION CONTROL]]]…
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from link_accuracy_parts.tools import MeasurementError, Tool

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link
from bwbench.network.namespaces.backend import lateness_between
from bwbench.network.network import Network, open_network

LATENCY = "2.5 ms"
ACK_FRAME_BYTES = 66
PORT = 5201
SETTLED_S = 2.0  # slow start of all flows
START_LIMIT_S = 20.0
PATIENCE_S = 20.0

# Instead of iperf3 where there is none: one takes in bytes for so long and tells how many came, one sends for so long.
RECEIVE = """
import socket, sys, time
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
connection, total = server.accept()[0], 0
begin = time.monotonic() + float(sys.argv[3])
while data := connection.recv(1 << 17):
    now = time.monotonic()
    if begin <= now < begin + float(sys.argv[4]):
        total += len(data)
print("bytes", total, flush=True)
"""
SEND = """
import socket, sys, time
connection, end = socket.create_connection((sys.argv[1], int(sys.argv[2]))), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    connection.sendall(bytes(1 << 16))
"""


class Ring(NamedTuple):
    """So many nodes, each of which sends to the next one; queue and congestion control as in YAML, empty: default."""

    nodes: int
    rate_bps: float
    queue: str = ""
    control: str = ""

    @classmethod
    def parse(cls, text: str) -> Ring:
        """Of ``4:10``, ``4:1000:8 MB`` or ``8:100:1 bdp:reno``."""
        nodes, rate_mbps, *more = text.split(":")
        return cls(int(nodes), float(rate_mbps) * 1e6, *more)

    @property
    def link(self) -> Link:
        keys = {"bandwidth": BANDWIDTH.format(self.rate_bps), "latency": LATENCY, "backend": "relay"}
        tcp = {"congestion_control": self.control or None}
        return Link.model_validate({**keys, "queue": self.queue or None, "tcp": tcp})


RINGS = (
    Ring(4, 10e6),
    Ring(8, 10e6),
    Ring(32, 10e6),
    Ring(4, 100e6),
    Ring(8, 100e6),
    Ring(4, 200e6),
    Ring(4, 1e9),
    Ring(4, 1e9, "10 bdp"),
)
QUICK_RINGS = (Ring(4, 10e6), Ring(8, 100e6), Ring(4, 1e9))


def measure(ring: Ring, seconds: float) -> dict[str, Any]:
    """One run of a ring; figures of ``seconds`` in the middle of it."""
    with open_network(ring.link, ring.nodes) as network:
        flows = [Flow(network, node, seconds + 1.0) for node in range(ring.nodes)]
        try:
            for flow in flows:
                flow.start()
            time.sleep(SETTLED_S + 0.5)
            begun_s, health, counters = time.monotonic(), network.health(), network.counters()
            time.sleep(seconds)
            taken_s = time.monotonic() - begun_s
            later = network.health()
            wire = network.counters().minus(counters).total()
            goodput_bps = [flow.finish() for flow in flows]
        finally:
            for flow in flows:
                flow.stop()
        priority, control = network.applied.get("priority"), network.applied["tcp"]["tcp_congestion_control"]
    # Each uplink carries its node's own segments and, for every second one that it receives, an acknowledgement.
    full_bps = ring.rate_bps * TCP_PAYLOAD_BYTES / (ETHERNET_FRAME_BYTES + ACK_FRAME_BYTES / 2)
    lateness = lateness_between(health, later)

    def spent(name: str) -> float:
        return float(later[name] - health[name])

    return {
        "nodes": ring.nodes,
        "rate_bps": ring.rate_bps,
        "queue": str(ring.link.queue),
        "congestion_control": control,
        "tool": Flow.tool(),
        "asked_goodput_bps": full_bps,
        "goodput_bps": sum(goodput_bps) / ring.nodes,
        "goodput_of_slowest_bps": min(goodput_bps),
        "achieved": sum(goodput_bps) / ring.nodes / full_bps,
        "wire_share": wire.bytes * 8 / taken_s / ring.nodes / ring.rate_bps,
        "frames_per_s": wire.frames / taken_s,
        "cpu_share": spent("cpu_s") / taken_s,
        "us_per_frame": spent("cpu_s") / wire.frames * 1e6,
        "us_per_frame_user": spent("cpu_user_s") / wire.frames * 1e6,
        "us_per_frame_system": spent("cpu_system_s") / wire.frames * 1e6,
        "wake_ups_per_s": spent("wake_ups") / taken_s,
        "lateness_mean_s": later["lateness_mean_s"],
        "lateness_p50_s": lateness["p50_s"],
        "lateness_p99_s": lateness["p99_s"],
        "lateness_max_s": lateness["max_s"],
        "overruns": later["overruns"],
        "drops": wire.drops,
        "priority": priority,
    }


class Flow:
    """TCP from a node to the next one."""

    def __init__(self, network: Network, node: int, seconds: float) -> None:
        self._network, self._node, self._seconds = network, node, seconds
        self._dst = (node + 1) % len(network.nodes)
        self._address = network.nodes[self._dst].data_address
        if Flow.tool() == "iperf3":
            receive = ["iperf3", "-s", "-1", "-B", self._address, "-p", str(PORT), "--forceflush"]
        else:
            receive = [sys.executable, "-c", RECEIVE, self._address, str(PORT), str(SETTLED_S), str(seconds)]
        self._tools = [Tool(network, self._dst, receive)]

    @staticmethod
    def tool() -> str:
        """``iperf3`` where there is one."""
        return "iperf3" if shutil.which("iperf3") else "sockets"

    def start(self) -> None:
        """Begin to send."""
        self._tools[0].wait_for("listening", START_LIMIT_S)
        if Flow.tool() == "iperf3":
            send = ["iperf3", "-c", self._address, "-p", str(PORT), "-t", f"{self._seconds:g}", "-J"]
            send += ["-O", f"{SETTLED_S:g}", "--connect-timeout", "10000"]
        else:
            send = [sys.executable, "-c", SEND, self._address, str(PORT), str(SETTLED_S + self._seconds)]
        self._tools.append(Tool(self._network, self._node, send))

    def finish(self) -> float:
        """Goodput in bit/s, by the receiver's count without slow start."""
        receive, send = self._tools
        text = send.finish(SETTLED_S + self._seconds + PATIENCE_S)
        if Flow.tool() == "iperf3":
            return float(json.loads(text)["end"]["sum_received"]["bits_per_second"])
        return int(receive.finish(PATIENCE_S).split("bytes ")[1]) * 8 / self._seconds

    def stop(self) -> None:
        """End both sides, whatever they are doing."""
        for tool in self._tools:
            tool.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ring", action="append", type=Ring.parse, help="instead of the usual ones")
    options = parser.parse_args()
    runs, seconds = (1, 4.0) if options.quick else (3, 6.0)
    rows = []
    for ring in options.ring or (QUICK_RINGS if options.quick else RINGS):
        try:
            measured = [measure(ring, seconds) for _ in range(runs)]
        except MeasurementError as error:
            raise SystemExit(f"{ring.nodes} nodes at {BANDWIDTH.format(ring.rate_bps)}: {error}") from None
        costs = [round(run["us_per_frame"], 2) for run in measured]
        achieved = [round(run["achieved"], 4) for run in measured]
        row = min(measured, key=lambda run: run["us_per_frame"])
        row |= {"us_per_frame_of_runs": costs, "achieved_of_runs": achieved}
        rows.append(row)
        print(
            f"{row['nodes']:3} x {row['rate_bps'] / 1e6:5.0f} Mbit/s, queue {row['queue']:8} "
            f"{row['congestion_control']} achieved {row['achieved']:.3f} (all runs: {achieved})  "
            f"relay {row['cpu_share'] * 100:5.1f} % of a core, "
            f"{row['us_per_frame']:5.1f} us a frame ({row['us_per_frame_user']:.1f} user, "
            f"{row['us_per_frame_system']:.1f} system)  {row['frames_per_s']:7.0f} frames/s "
            f"{row['wake_ups_per_s']:5.0f} wake-ups/s  late {row['lateness_p50_s'] * 1e6:.0f} us (p50) "
            f"{row['lateness_p99_s'] * 1e6:.0f} us (p99) {row['lateness_max_s'] * 1e3:.1f} ms (max)  "
            f"overruns {row['overruns']}",
            flush=True,
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
