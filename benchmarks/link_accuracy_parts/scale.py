"""Many nodes sending to their neighbours at once: how much of what is asked gets through, and what the relay takes."""

from __future__ import annotations

import time
from functools import partial

from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES
from bwbench.network.network import Network, open_network
from bwbench.units import BANDWIDTH
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import FIRST_PORT, Flow, RunningFlow, wait_for_intervals
from link_accuracy_parts.rows import Row, row

LATENCY = "2.5 ms"
RINGS = ((4, 10e6), (32, 10e6), (8, 100e6), (4, 1e9))
CHEAP_RING, LARGEST_SHARE = (4, 10e6), 0.10  # of a core: what the relay may take there
ACK_FRAME_BYTES = 66
SECONDS = 10.0
SETTLED_S = 2  # slow start of all flows
OPEN_S = 0.25  # a node, roughly


def cases(options: Options) -> list[Case]:
    """A case a ring."""
    if options.backend == "netem":
        return []
    rings = RINGS[:1] if options.quick else RINGS
    seconds = 3.0 if options.quick else SECONDS
    return [
        Case(
            f"scale {nodes} x {BANDWIDTH.format(rate_bps)}",
            4 + SETTLED_S + seconds + OPEN_S * nodes,
            partial(_measure, options, nodes, rate_bps, seconds),
        )
        for nodes, rate_bps in rings
    ]


def _measure(options: Options, nodes: int, rate_bps: float, seconds: float) -> list[Row]:
    link = options.link(bandwidth=BANDWIDTH.format(rate_bps), latency=LATENCY)
    with open_network(link, nodes) as network:
        flows = [
            RunningFlow(network, Flow(node, (node + 1) % nodes, seconds + 1, omit_s=SETTLED_S), FIRST_PORT)
            for node in range(nodes)
        ]
        try:
            for flow in flows:
                flow.start()
            wait_for_intervals(flows, 1, 30.0)
            share = _cpu_share(network, seconds - 2)
            goodput_bps = sum(flow.finish().goodput_bps for flow in flows)
        finally:
            for flow in flows:
                flow.stop()
        health = network.health()
    # Every node's uplink carries its own segments and, for each second one that it receives, an acknowledgement.
    full_bps = rate_bps * TCP_PAYLOAD_BYTES / (ETHERNET_FRAME_BYTES + ACK_FRAME_BYTES / 2)
    more = {"nodes": nodes, "rate_bps": rate_bps, "cpu_share": share}
    more |= {key: health.get(key) for key in ("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "overruns")}
    setting = f"{nodes} x {BANDWIDTH.format(rate_bps)}"
    rows = [row("scale", f"{setting}, all sending", options.backend, "bit/s", nodes * full_bps, goodput_bps, **more)]
    cheap = (nodes, rate_bps) == CHEAP_RING
    ok = share <= LARGEST_SHARE if cheap else None
    asked = LARGEST_SHARE if cheap else 1.0
    rows.append(row("scale", f"{setting}, cores taken", options.backend, "1", asked, share, absolute=True, ok=ok))
    late_s = health.get("lateness_p99_s") or 0.0
    rows.append(row("scale", f"{setting}, late (p99)", options.backend, "s", 0.0, late_s, absolute=True))
    return rows


def _cpu_share(network: Network, seconds: float) -> float:
    """Cores that the relay takes, over some time in the middle."""
    begun_s, used_s = time.monotonic(), network.health()["cpu_s"]
    time.sleep(seconds)
    return float((network.health()["cpu_s"] - used_s) / (time.monotonic() - begun_s))
