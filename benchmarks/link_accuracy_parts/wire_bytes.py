"""Our count of what crosses the link against that of ``tc -s`` at the nodes' own ends."""

from __future__ import annotations

import re
from functools import partial

from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import Flow, run_flows
from link_accuracy_parts.rows import Row, row
from link_accuracy_parts.tools import program, run

RATES = ("10 Mbit/s", "500 Mbit/s")  # single frames, and super-packets, which count as the frames that they make
QUEUE = "16 MB"  # holds all that TCP sends ahead: what finds no room has left a node, but never entered the link
SECONDS = 6.0
TOLERANCE = 0.001
_SENT = re.compile(r"Sent (\d+) bytes (\d+) pkt")


def cases(options: Options) -> list[Case]:
    """A case a rate."""
    if options.quick:
        return []
    rates = RATES[:1] if options.backend == "netem" else RATES
    return [Case(f"bytes {rate}", 3 + SECONDS, partial(_measure, options, rate)) for rate in rates]


def _measure(options: Options, rate: str) -> list[Row]:
    link = options.link(bandwidth=rate, latency="2.5 ms", queue=QUEUE)
    with open_network(link, 2) as network:
        for node in (0, 1):  # a plain queue, which holds nothing here, for its statistics
            queue = ["root", "pfifo", "limit", "10000"]
            run(network, node, program("tc"), "qdisc", "add", "dev", network.nodes[node].data_interface, *queue)
        run_flows(network, [Flow(0, 1, SECONDS)])
        sent = [_sent(network, node) for node in (0, 1)]
        total = network.counters().total()
    frames, num_bytes = sum(number for _, number in sent), sum(size for size, _ in sent)
    more = {"tc_frames": frames, "our_frames": total.frames, "drops": total.drops}
    return [row("bytes", f"{rate}, as tc counts", options.backend, "B", num_bytes, total.bytes, TOLERANCE, **more)]


def _sent(network: Network, node: int) -> tuple[int, int]:
    """Bytes and frames that have left a node."""
    text = run(network, node, program("tc"), "-s", "qdisc", "show", "dev", network.nodes[node].data_interface)
    match = _SENT.search(text)
    assert match is not None, text
    return int(match[1]), int(match[2])
