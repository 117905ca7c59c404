"""Our collectives against gloo's all-reduce and OpenMPI's, of the same tensor on the same emulated link, in one run.

The limit is what a ring could do at best: ``2(N-1)/N * S/B`` with B = rate x 1448/1514 (headers of full TCP frames).
Ours and gloo take turns, so that a disturbance of the machine meets all; OpenMPI follows in processes of its own, where
it is installed. The slowest rank counts. Small payloads are there for their latency: six rounds or two.

With --rate it is one payload on one link of a given latency, queue, congestion control and number of nodes, with our
ring as it is told of its link and without: what queue, TCP and pacing make of an exchange (docs/links.md). --dilation
has it in slow motion, with the times of the link that was asked: more nodes and faster links (docs/slow-motion.md).

Usage: python benchmarks/collectives.py [--json FILE] [--quick]
       python benchmarks/collectives.py --rate '100 Mbit/s' [--payload 364000] [--queue '1 bdp'] [--control reno]
                                        [--nodes 8] [--runs 15] [--latency '2.5 ms'] [--dilation 4]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collectives_parts import mpi, ranks
from collectives_parts.setting import LATENCY, NODES, limit_s, link_of, payload_of_about

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import Link
from bwbench.network.network import open_network

SMALL_BYTES = (1_000, 8_000, 64_000)


def measure(
    link: Link,
    num_nodes: int,
    payloads: Sequence[int],
    collectives: Sequence[str],
    runs: int,
    with_mpi: bool,
    dilation: float = 1.0,
) -> list[dict[str, Any]]:
    """Rows for every payload and collective on one link."""
    rate_bps = link.base.up_bps
    with (
        tempfile.TemporaryDirectory() as folder,
        open_network(link, num_nodes, control_path=True, dilation=dilation) as network,
    ):
        times = ranks.times_of(network, collectives, payloads, runs, link, Path(folder), dilation)
        if with_mpi:
            times |= mpi.times_of(network, payloads, runs, Path(folder))
        setting = {
            "backend": network.backend,
            "nodes": num_nodes,
            "queue": str(link.queue),
            "dilation": dilation,
            "congestion_control": network.applied["tcp"]["tcp_congestion_control"],
        }
    rows = []
    for payload in payloads:
        for name in [*collectives, *(["mpi"] if with_mpi else [])]:
            runs_s = times[f"{name} {payload}"]
            median_s = statistics.median(runs_s)
            limit = limit_s(payload, rate_bps, num_nodes)
            row = {"collective": name, "rate_bps": rate_bps, "payload_bytes": payload, "median_s": median_s}
            row |= {"limit_s": limit, "efficiency": limit / median_s, "runs": runs, "runs_s": runs_s}
            rows.append({**row, **setting})
    return rows


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    return (
        f"{row['collective']:14} {row['rate_bps'] / 1e6:6.0f} Mbit/s {row['payload_bytes'] / 1e3:9.0f} kB  "
        f"median {row['median_s']:.4f} s ({min(row['runs_s']):.4f} to {max(row['runs_s']):.4f})  "
        f"limit {row['limit_s']:.4f} s  efficiency {row['efficiency']:.3f}  {row['nodes']} nodes, "
        f"queue {row['queue']}, {row['congestion_control']}"
        + (f", dilation {row['dilation']:g}" if row["dilation"] != 1 else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="ring and gloo, one payload at 10 and at 100 Mbit/s")
    parser.add_argument("--rate", type=BANDWIDTH.parse)
    parser.add_argument("--payload", type=int, default=364_000, help="bytes, of --rate")
    parser.add_argument("--queue", help="of --rate, as in YAML")
    parser.add_argument("--control", help="of --rate: cubic, reno")
    parser.add_argument("--nodes", type=int, default=NODES, help="of --rate")
    parser.add_argument("--runs", type=int, default=15, help="of --rate")
    parser.add_argument("--latency", default=LATENCY, help="of --rate, one way")
    parser.add_argument("--dilation", type=float, default=1.0, help="of --rate")
    options = parser.parse_args()
    rows = _of_one_link(options) if options.rate else _of_all(options)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def _of_one_link(options: argparse.Namespace) -> list[dict[str, Any]]:
    link = link_of(options.rate, options.queue, options.control, options.latency)
    names = ("ring", "ring-unpaced", "gloo")
    found = measure(
        link, options.nodes, [options.payload // 4 * 4], names, options.runs, with_mpi=False, dilation=options.dilation
    )
    print(*map(line, found), sep="\n", flush=True)
    return found


def _of_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    rates = [10e6, 100e6] if options.quick else [1e6, 10e6, 100e6, 1000e6]
    collectives = ("ring", "gloo") if options.quick else ("ring", "gloo", "scatter-gather")
    seconds, runs = (0.8, 5) if options.quick else (1.0, 7)
    small = () if options.quick else SMALL_BYTES
    without_mpi = "not in a quick run" if options.quick else mpi.missing()
    rows = []
    for rate_bps in rates:
        large = max(payload_of_about(seconds, rate_bps), 102_400)
        found = measure(link_of(rate_bps), NODES, [*small, large], collectives, runs, without_mpi is None)
        print(*map(line, found), sep="\n", flush=True)
        rows += found
    if without_mpi is not None:
        print(f"no rows of mpi: {without_mpi}")
    return rows


if __name__ == "__main__":
    main()
