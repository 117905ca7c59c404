"""TCP goodput against rate x 1448/1514, and beside it that of the kernel's own token bucket at the same rate."""

from __future__ import annotations

import math
import statistics
import sys
from functools import partial

from bwbench.network.backend_choice import super_packet_bytes
from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, UNSHAPED, Link
from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import Flow, run_flows
from link_accuracy_parts.rows import Row, not_measured, row
from link_accuracy_parts.tools import MeasurementError, UnavailableError, program, run

RATES_MBPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FASTEST_OF_NETEM_MBPS = 50  # in a user-mode kernel, which is a slow machine
LATENCY = "2.5 ms"
# Where the default queue is one bandwidth-delay product, reno halves its window to what the link just carries, or less
# where the machine adds to the round trip or super-packets are dropped whole. A longer queue tells what is TCP's from
# what is the link's.
LONG_FROM_MBPS = 100
LONG_QUEUE = "2 bdp"
OMITTED_ROUND_TRIPS = 6  # with a full queue: slow start, and what it lost is repaired
BURST_S = 0.002  # of the token bucket: what its timer may be late without losing rate
_OFFLOADS_OFF = "from bwbench.network.namespaces.wiring import set_offloads; set_offloads('data0', enabled=False)"


def cases(options: Options) -> list[Case]:
    """A case a rate, and one more with a long queue at high rates."""
    rates = [10, 100] if options.quick else list(RATES_MBPS)
    if options.backend == "netem":
        rates = [rate for rate in rates if rate <= FASTEST_OF_NETEM_MBPS]
    repeats, seconds, tbf_seconds = (1, 2.0, 1.0) if options.quick else (3, 10.0, 4.0)
    found = []
    for rate in rates:
        link = options.link(bandwidth=f"{rate} Mbit/s", latency=LATENCY)
        variants = [(f"{rate} Mbit/s", link, repeats, tbf_seconds)]
        if rate >= LONG_FROM_MBPS and not options.quick:
            longer = options.link(bandwidth=f"{rate} Mbit/s", latency=LATENCY, queue=LONG_QUEUE)
            variants.append((f"{rate} Mbit/s, queue {LONG_QUEUE}", longer, 1, 0.0))
        for setting, asked, runs, beside in variants:
            omit_s = _omit_s(asked)
            estimate_s = 2 + runs * (seconds + omit_s + 0.4 + (beside + omit_s + 0.4 if beside else 0))
            work = partial(_measure, setting, asked, runs, seconds, beside)
            found.append(Case(f"goodput {setting}", estimate_s, work))
    return found


def _measure(setting: str, link: Link, repeats: int, seconds: float, tbf_seconds: float) -> list[Row]:
    """Link and token bucket take turns, so that a disturbance of the machine meets both."""
    ours, tbf = [], []
    missing = ""
    with open_network(link, 2) as network, open_network(UNSHAPED, 2) as plain:
        try:
            _add_token_bucket(plain, link)
        except (MeasurementError, UnavailableError) as error:
            missing = str(error)
        for _ in range(repeats):
            ours += run_flows(network, [Flow(0, 1, seconds, omit_s=_omit_s(link))])
            if tbf_seconds and not missing:
                tbf += run_flows(plain, [Flow(0, 1, tbf_seconds, omit_s=_omit_s(link))])
        health = network.health()
    rate_bps = link.base.slowest_bps
    asked_bps = rate_bps * TCP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
    rows = []
    for backend, outcomes, tolerance in ((link.backend, ours, _tolerance(link)), ("tbf", tbf, None)):
        if outcomes:
            figures = [outcome.goodput_bps for outcome in outcomes]
            more = {"rate_bps": rate_bps, "repeats_bps": figures, "congestion": outcomes[0].congestion}
            more["lateness_p99_s"] = health.get("lateness_p99_s") if outcomes is ours else None
            measured_bps = statistics.median(figures)
            rows.append(row("goodput", setting, backend, "bit/s", asked_bps, measured_bps, tolerance, **more))
        elif tbf_seconds:
            rows.append(not_measured("goodput", setting, backend, missing, None))
    return rows


def _queue_bytes(link: Link) -> int:
    return min(link.base.up_queue_bytes, link.base.down_queue_bytes)


def _omit_s(link: Link) -> int:
    full_queue_s = _queue_bytes(link) * 8 / link.base.slowest_bps
    return math.ceil(OMITTED_ROUND_TRIPS * (link.rtt_s + full_queue_s))


def _tolerance(link: Link) -> float:
    if link.backend == "netem":
        return 0.02
    rate_bps = link.base.slowest_bps
    return 0.01 if rate_bps < 10e6 else 0.005 if rate_bps <= 200e6 else 0.02


def _add_token_bucket(network: Network, link: Link) -> None:
    """Shape what node 0 sends with the kernel's tbf: the same rate and queue, no latency (tbf has none)."""
    tc = program("tc")
    if super_packet_bytes(link, 2) is None:
        run(network, 0, sys.executable, "-c", _OFFLOADS_OFF)
    rate_bps = link.base.slowest_bps
    burst_bytes = max(2 * ETHERNET_FRAME_BYTES, int(rate_bps / 8 * BURST_S))
    bucket = ["rate", f"{rate_bps:.0f}bit", "burst", str(burst_bytes), "limit", str(_queue_bytes(link))]
    run(network, 0, tc, "qdisc", "add", "dev", network.nodes[0].data_interface, "root", "tbf", *bucket)
