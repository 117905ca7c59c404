"""Whether every path between sites is what was asked, and whether the nodes of a site share its line fairly.

Three regions of a cloud with two nodes each (``regions: [oregon, virginia, tokyo]``): rate and round trip of every pair
of nodes, in both directions, by the probe; and the round trip by ``ping``. Then two offices of four nodes: all four
nodes of one send to the other at the same time (iperf3), over the line of 100 Mbit/s that they share: 40 Mbit/s each by
UDP, and by TCP as fast as it goes.

Usage: python benchmarks/paths.py [--json FILE] [--quick] [--dilation K] [--what paths,sharing]

Exit status 1 where a rate is off by more than 1 %, a round trip by more than 0.5 ms (of emulated time), or the line
that is shared carries less than 95 % of what full frames leave, or is shared with an index of Jain's below 0.9.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

from link_accuracy_parts.iperf import Flow, run_flows
from link_accuracy_parts.tools import program, run

from bwbench.network.link import Link
from bwbench.network.network import Network, open_network
from bwbench.network.probe.probe_plan import pairs_between
from bwbench.network.probe.verification import verify

REGIONS = {"bandwidth": "1 Gbit/s", "latency": "0.1 ms", "regions": ["oregon", "virginia", "tokyo"], "backend": "relay"}
OFFICES = {
    "bandwidth": "200 Mbit/s",
    "latency": "0.1 ms",
    "sites": {
        "bern": {"bandwidth": "100 Mbit/s", "latency": "10 ms", "queue": "20 ms"},
        "oslo": {"bandwidth": "1 Gbit/s", "latency": "10 ms"},
    },
    "backend": "relay",
    # The line is asked, not TCP: with cubic and a queue of 50 ms it takes minutes until the first one is not ahead.
    "tcp": {"congestion_control": "reno"},
}
RATE_TOLERANCE, RTT_TOLERANCE_S = 0.01, 0.5e-3
LEAST_SHARE, LEAST_FAIRNESS = 0.95, 0.9
PINGS = 11
OFFERED_BPS = 40e6  # of each node by UDP, frames
SETTLE_S = 20  # of TCP: on a drop-tail queue flows need that to come to equal shares
PING_FRAME_BYTES, PROBE_FRAME_BYTES = 98, 74
_SUMMARY = re.compile(r"= [\d.]+/([\d.]+)/[\d.]+/[\d.]+ ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="pairs of neighbours, and ten seconds of sharing")
    parser.add_argument("--dilation", type=float, default=1.0)
    parser.add_argument("--what", default="paths,sharing")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": platform.release(), "dilation": options.dilation}
    ok = True
    if "paths" in options.what:
        found["paths"] = measured_paths(options.dilation, quick=options.quick)
        ok = print_paths(found["paths"]) and ok
    if "sharing" in options.what:
        seconds = 10.0 if options.quick else 60.0
        found["sharing"] = [measured_sharing(options.dilation, seconds, protocol) for protocol in ("UDP", "TCP")]
        fair = [print_sharing(one) for one in found["sharing"]]
        ok = all(fair) and ok
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if ok else 1


def measured_paths(dilation: float, *, quick: bool) -> dict[str, Any]:
    """Every pair of six nodes in emulated time, and how late the relay was meanwhile."""
    link = Link.model_validate(REGIONS)
    ends = [(0, 2), (2, 4), (4, 0), (0, 1)] if quick else list(combinations(range(6), 2))
    made = link.dilated(dilation)
    rows = []
    with open_network(link, 6, dilation=dilation) as network:
        measured = verify(network, made, 6, rounds=[[(src, dst), (dst, src)] for src, dst in ends]).emulated(dilation)
        for src, dst in ends:
            address = network.nodes[dst].data_address
            rows.append((src, dst, statistics.median(_ping_s(network, src, address) for _ in range(PINGS)) / dilation))
        health = network.health()
    by_ping = {(src, dst): rtt_s for src, dst, rtt_s in rows}
    pairs = []
    for pair in measured.pairs:
        (asked,) = pairs_between(link, 6, [(pair.src, pair.dst)])
        pinged_s = by_ping.get((pair.src, pair.dst))
        longer_s = (asked.rtt_s - 2 * asked.latency_s) * (PING_FRAME_BYTES / PROBE_FRAME_BYTES - 1)
        pairs.append(
            {
                "src": pair.src,
                "dst": pair.dst,
                "asked_bps": pair.asked_goodput_bps,
                "achieved_bps": pair.achieved_goodput_bps,
                "asked_rtt_s": pair.asked_rtt_s,
                "achieved_rtt_s": pair.achieved_rtt_s,
                "ping_asked_s": asked.rtt_s + longer_s,
                "ping_s": pinged_s,
            }
        )
    late = {key: health[key] for key in ("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "overruns", "unsent")}
    return {"link": link.model_dump(mode="json", by_alias=True, exclude_defaults=True), "pairs": pairs, "relay": late}


def _ping_s(network: Network, src: int, address: str) -> float:
    """One round trip: ping gives microseconds in its summary alone."""
    text = run(network, src, program("ping"), "-q", "-c", "1", "-W", "9", address)
    match = _SUMMARY.search(text)
    assert match is not None, text
    return float(match[1]) / 1e3


def print_paths(found: dict[str, Any]) -> bool:
    """A line a pair; whether all are as asked."""
    worst_rate, worst_s = 0.0, 0.0
    print("pair    asked Mbit/s  achieved      error   asked RTT  achieved     error   ping     error")
    for row in found["pairs"]:
        error = row["achieved_bps"] / row["asked_bps"] - 1
        rtt_error_s = row["achieved_rtt_s"] - row["asked_rtt_s"]
        worst_rate, worst_s = max(worst_rate, abs(error)), max(worst_s, abs(rtt_error_s))
        pinged = ""
        if row["ping_s"] is not None:
            ping_error_s = row["ping_s"] - row["ping_asked_s"]
            worst_s = max(worst_s, abs(ping_error_s))
            pinged = f"{row['ping_s'] * 1e3:8.2f} {ping_error_s * 1e3:+7.3f} ms"
        print(
            f"{row['src']} > {row['dst']}  {row['asked_bps'] / 1e6:12.2f}  {row['achieved_bps'] / 1e6:8.2f}"
            f"  {error:+8.2%}  {row['asked_rtt_s'] * 1e3:9.3f}  {row['achieved_rtt_s'] * 1e3:8.3f}"
            f"  {rtt_error_s * 1e3:+7.3f}  {pinged}"
        )
    print(f"worst: rate {worst_rate:.2%} (allowed {RATE_TOLERANCE:.0%}), round trip {worst_s * 1e3:.3f} ms (0.5 ms)")
    return worst_rate <= RATE_TOLERANCE and worst_s <= RTT_TOLERANCE_S


def measured_sharing(dilation: float, seconds: float, protocol: str) -> dict[str, Any]:
    """Goodput of four flows out of one site, in emulated time."""
    link = Link.model_validate(OFFICES)
    full, is_udp = link.full_frame, protocol == "UDP"
    udp_bps = OFFERED_BPS / dilation * full.udp_payload_bytes / full.num_bytes if is_udp else None
    omit_s = 0 if is_udp else round(SETTLE_S * dilation)
    flows = [Flow(node, node + 4, seconds * dilation, udp_bps, omit_s) for node in range(4)]
    with open_network(link, 8, dilation=dilation) as network:
        outcomes = run_flows(network, flows)
    rates_bps = [outcome.goodput_bps * dilation for outcome in outcomes]
    asked = Link.model_validate(OFFICES).site_network(8)
    assert asked is not None and asked.up[0] is not None
    payload_bytes = full.udp_payload_bytes if is_udp else full.tcp_payload_bytes
    limit_bps = asked.up[0].rate_bps * payload_bytes / full.num_bytes
    return {
        "protocol": protocol,
        "link": link.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "seconds": seconds,
        "congestion_control": outcomes[0].congestion,
        "limit_bps": limit_bps,
        "rates_bps": rates_bps,
        "share_of_limit": sum(rates_bps) / limit_bps,
        "jain": sum(rates_bps) ** 2 / len(rates_bps) / sum(rate_bps**2 for rate_bps in rates_bps),
    }


def print_sharing(found: dict[str, Any]) -> bool:
    """What each node got; whether that is fair."""
    rates = ", ".join(f"{rate_bps / 1e6:.2f}" for rate_bps in found["rates_bps"])
    print(
        f"four nodes on a line of 100 Mbit/s, {found['protocol']} {found['congestion_control']}, "
        f"{found['seconds']:g} s: {rates} Mbit/s; "
        f"together {found['share_of_limit']:.1%} of the limit, Jain's index {found['jain']:.3f}"
    )
    return bool(found["share_of_limit"] >= LEAST_SHARE and found["jain"] >= LEAST_FAIRNESS)


if __name__ == "__main__":
    raise SystemExit(main())
