"""Round trips by ping: of an idle link, and behind the queue that a saturating flow fills."""

from __future__ import annotations

import re
import statistics
import time
from functools import partial

from bwbench.network.link import ETHERNET_FRAME_BYTES, UDP_PAYLOAD_BYTES, Link
from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import FIRST_PORT, Flow, RunningFlow, wait_for_intervals
from link_accuracy_parts.rows import Row, row
from link_accuracy_parts.tools import MeasurementError, Tool, program

PING_FRAME_BYTES = 98  # Ethernet 14, IPv4 20, ICMP 8, and 56 that ping adds by default
CROSSINGS = 4  # both links of either direction
LATENCIES_MS = (0.5, 2.5, 10, 50, 150)
IDLE_TOLERANCE_S = 0.0003
QUEUES = (("10 Mbit/s", None), ("10 Mbit/s", "30 packets"), ("20 Mbit/s", "4 bdp"))
QUEUE_LATENCY = "10 ms"
QUEUE_TOLERANCE = 0.10
OVERLOAD = 1.3
_SUMMARY = re.compile(r"= ([\d.]+)/[\d.]+/[\d.]+/[\d.]+ ms")
_REPLY = re.compile(r"time=([\d.]+) ms")
# ping says a single round trip to three digits, which is 1 ms of 300; its summary says microseconds. So every ping is a
# run of its own. $1 ping, $2 address, $3 how many, $4 seconds between two.
_SINGLE_PINGS = 'i=0; while [ $i -lt $3 ]; do "$1" -q -c 1 -W 5 "$2" & i=$((i + 1)); sleep "$4"; done; wait'


def cases(options: Options) -> list[Case]:
    """A case a latency, a case a queue."""
    latencies = LATENCIES_MS[1:2] if options.quick else LATENCIES_MS
    queues = QUEUES[:1] if options.quick else QUEUES
    num_pings, seconds = (20, 5.0) if options.quick else (100, 12.0)
    found = [
        Case(f"delay idle {latency} ms", 2 + num_pings * 0.06, partial(_idle, options, latency, num_pings))
        for latency in latencies
    ]
    for rate, queue in queues:
        link = options.link(bandwidth=rate, latency=QUEUE_LATENCY, **({"queue": queue} if queue else {}))
        setting = f"queue of {queue or 'default'} at {rate}"
        found.append(Case(f"delay {setting}", 4 + seconds, partial(_behind_queue, setting, link, seconds)))
    return found


def _idle(options: Options, latency_ms: float, num_pings: int) -> list[Row]:
    link = options.link(bandwidth="10 Mbit/s", latency=f"{latency_ms} ms")
    with open_network(link, 2) as network:
        round_trips_s = _single_pings(network, num_pings)
    asked_s = link.rtt_s + _serialisation_s(link)
    median_s = statistics.median(round_trips_s)
    more = {"latency_s": link.latency_s, "pings": len(round_trips_s), "worst_s": max(round_trips_s)}
    setting = f"idle, {latency_ms} ms one way"
    return [row("delay", setting, link.backend, "s", asked_s, median_s, IDLE_TOLERANCE_S, absolute=True, **more)]


def _behind_queue(setting: str, link: Link, seconds: float) -> list[Row]:
    """What the queue of a saturated uplink adds to the round trip of the node that saturates it."""
    offered_bps = OVERLOAD * link.base.up_bps * UDP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
    with open_network(link, 2) as network:
        idle_s = statistics.median(_single_pings(network, 20))
        flow = RunningFlow(network, Flow(0, 1, seconds, udp_bps=offered_bps), FIRST_PORT)
        try:
            flow.start()
            wait_for_intervals([flow], 1, 10.0)
            count, pause_s = 100, (seconds - 3) / 100
            argv = [program("ping"), "-i", f"{pause_s:.3f}", "-c", str(count), "-W", "5", network.nodes[1].data_address]
            text = Tool(network, 0, argv).finish(seconds + 10, allowed=(0, 1))
            lost = flow.finish().lost
        finally:
            flow.stop()
    if not lost:
        raise MeasurementError("the queue was never full: iperf3 did not send as fast as it was told")
    loaded_s = [float(value) / 1e3 for value in _REPLY.findall(text)]
    if len(loaded_s) < count / 4:
        raise MeasurementError(f"only {len(loaded_s)} of {count} pings came back through the full queue")
    asked_s = link.base.up_queue_bytes * 8 / link.base.up_bps
    added_s = statistics.median(loaded_s) - idle_s
    more = {"queue_bytes": link.base.up_queue_bytes, "pings": len(loaded_s), "idle_s": idle_s}
    return [row("delay", setting, link.backend, "s", asked_s, added_s, QUEUE_TOLERANCE, **more)]


def _serialisation_s(link: Link) -> float:
    return CROSSINGS * PING_FRAME_BYTES * 8 / link.base.slowest_bps


def _single_pings(network: Network, count: int) -> list[float]:
    """Round-trip times in seconds; the first ones wake everything up and do not count."""
    ping, address = program("ping"), network.nodes[1].data_address
    Tool(network, 0, [ping, "-q", "-c", "3", "-i", "0.2", address]).finish(15.0, allowed=(0, 1))
    started_s = time.monotonic()
    argv = [program("sh"), "-c", _SINGLE_PINGS, "sh", ping, address, str(count), "0.05"]
    text = Tool(network, 0, argv).finish(30.0 + 0.2 * count)
    found = [float(value) / 1e3 for value in _SUMMARY.findall(text)]
    if len(found) < count * 0.9:
        took_s = time.monotonic() - started_s
        raise MeasurementError(f"only {len(found)} of {count} pings came back within {took_s:.0f} s: {text[-200:]}")
    return found
