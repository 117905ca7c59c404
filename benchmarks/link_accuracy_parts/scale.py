"""Many nodes sending to their neighbours at once: how much of what is asked gets through, and what the relay takes."""

from __future__ import annotations

import time
from functools import partial

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES
from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import FIRST_PORT, Flow, RunningFlow, wait_for_intervals
from link_accuracy_parts.rows import Row, row

LATENCY = "2.5 ms"
RINGS = ((4, 10e6), (32, 10e6), (8, 100e6), (4, 1e9))
FASTEST_UDP_BPS = 100e6  # beyond it iperf3 cannot send that many single datagrams
CHEAP_RING, LARGEST_SHARE = (4, 10e6), 0.10  # of a core: what the relay may take there
OVERLOAD = 1.05
ACK_FRAME_BYTES = 66
SECONDS = 10.0
SETTLED_S = 2  # slow start of all flows
OPEN_S = 0.1  # a node, roughly


def cases(options: Options) -> list[Case]:
    """A case a ring: with TCP, whose goodput is also TCP's own doing, and with UDP where that can saturate it."""
    if options.backend == "netem":
        return []
    seconds = 3.0 if options.quick else SECONDS
    found = []
    for nodes, rate_bps in RINGS[:1] if options.quick else RINGS:
        for protocol in ("TCP",) if options.quick or rate_bps > FASTEST_UDP_BPS else ("TCP", "UDP"):
            setting = f"{nodes} x {BANDWIDTH.format(rate_bps)} {protocol}"
            work = partial(_measure, options, setting, nodes, rate_bps, protocol == "UDP", seconds)
            found.append(Case(f"scale {setting}", 3 + SETTLED_S + seconds + OPEN_S * nodes, work))
    return found


def _measure(options: Options, setting: str, nodes: int, rate_bps: float, udp: bool, seconds: float) -> list[Row]:
    link = options.link(bandwidth=BANDWIDTH.format(rate_bps), latency=LATENCY)
    # With TCP every node's uplink carries its own segments and, for each second one that it receives, an ack.
    full_bps = rate_bps * TCP_PAYLOAD_BYTES / (ETHERNET_FRAME_BYTES + ACK_FRAME_BYTES / 2)
    if udp:
        full_bps = rate_bps * UDP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
    with open_network(link, nodes) as network:
        flows = []
        for node in range(nodes):
            flow = Flow(node, (node + 1) % nodes, seconds + 1, OVERLOAD * full_bps if udp else None, SETTLED_S)
            flows.append(RunningFlow(network, flow, FIRST_PORT))
        try:
            for running in flows:
                running.start()
            wait_for_intervals(flows, 1, 30.0)
            share = _cpu_share(network, seconds - 2)
            goodput_bps = sum(running.finish().goodput_bps for running in flows)
        finally:
            for running in flows:
                running.stop()
        health, total = network.health(), network.counters().total()
    more = {"nodes": nodes, "rate_bps": rate_bps, "cpu_share": share, "frames": total.frames, "drops": total.drops}
    more |= {key: health.get(key) for key in ("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "overruns")}
    cheap = (nodes, rate_bps) == CHEAP_RING
    asked = LARGEST_SHARE if cheap else 1.0
    figure = partial(row, "scale", backend=options.backend, absolute=True)
    return [
        row("scale", f"{setting}, goodput", options.backend, "bit/s", nodes * full_bps, goodput_bps, **more),
        figure(f"{setting}, cores", unit="1", asked=asked, measured=share, ok=share <= asked if cheap else None),
        figure(f"{setting}, late (p99)", unit="s", asked=0.0, measured=health.get("lateness_p99_s") or 0.0),
    ]


def _cpu_share(network: Network, seconds: float) -> float:
    """Cores that the relay takes, over some time in the middle."""
    begun_s, used_s = time.monotonic(), network.health()["cpu_s"]
    time.sleep(seconds)
    return float((network.health()["cpu_s"] - used_s) / (time.monotonic() - begun_s))
