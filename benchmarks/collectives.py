"""Our ring all-reduce against gloo's, of the same tensor on the same emulated link, in one run.

The limit is what a ring could do at best: ``2(N-1)/N * S/B`` with B = rate x 1448/1514 (headers of full TCP frames).
Both take turns, so that a disturbance of the machine meets both; the slowest rank counts.

Usage: python benchmarks/collectives.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link
from bwbench.network.network import open_network
from bwbench.units import BANDWIDTH

NODES = 4
LATENCY = "2.5 ms"
COLLECTIVES = ("ring", "gloo")
TIME_LIMIT_S = 300.0


def limit_s(payload_bytes: int, rate_bps: float) -> float:
    """Seconds of a ring that never idles."""
    goodput_bytes_per_s = rate_bps / 8 * TCP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
    return 2 * (NODES - 1) / NODES * payload_bytes / goodput_bytes_per_s


def payload_of_about(seconds: float, rate_bps: float) -> int:
    """Bytes, a multiple of 4 kB, that take about so long at the limit."""
    return int(seconds / limit_s(1, rate_bps)) // 4096 * 4096


def measure(rate_bps: float, payloads: list[int], runs: int) -> list[dict[str, Any]]:
    """Rows for every payload at one rate."""
    with tempfile.TemporaryDirectory() as folder, open_network(link_of(rate_bps), NODES) as network:
        out = Path(folder) / "times.json"
        processes = []
        for rank, node in enumerate(network.nodes):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(NODES),
                "MASTER_ADDR": network.nodes[0].control_address,
                "MASTER_PORT": "29500",
                "OMP_NUM_THREADS": "1",
                "CONTROL": node.control_interface,
                "DATA": node.data_interface,
            }
            argv = [sys.executable, __file__, "--worker", str(out), str(runs), str(rate_bps), *map(str, payloads)]
            processes.append(network.spawn(rank, argv, env=environment, stdout=2, stderr=2))
        deadline = time.monotonic() + TIME_LIMIT_S
        for process in processes:
            if process.wait(max(0.0, deadline - time.monotonic())) != 0:
                raise SystemExit(f"a rank failed or took longer than {TIME_LIMIT_S} s at {rate_bps:.0f} bit/s")
        times = json.loads(out.read_text())
        backend = network.backend
    rows = []
    for payload in payloads:
        for name in COLLECTIVES:
            median_s = statistics.median(times[f"{name} {payload}"])
            limit = limit_s(payload, rate_bps)
            row = {"collective": name, "rate_bps": rate_bps, "payload_bytes": payload, "median_s": median_s}
            rows.append({**row, "limit_s": limit, "efficiency": limit / median_s, "runs": runs, "backend": backend})
    return rows


def link_of(rate_bps: float) -> Link:
    """The link that is measured on; the ring is told of it, as it is in training."""
    return Link.model_validate({"bandwidth": BANDWIDTH.format(rate_bps), "latency": LATENCY})


def worker(out: Path, runs: int, rate_bps: float, payloads: list[int]) -> None:
    """One rank: time both collectives in turn and let rank 0 write the slowest rank's times."""
    import torch
    import torch.distributed as dist

    from bwbench.collectives.ring import Ring
    from bwbench.compression.none import NoCompression

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["CONTROL"]
    dist.init_process_group("gloo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["DATA"]
    data = dist.new_group(backend="gloo")
    ring, codec = Ring(), NoCompression()
    ring.connect(data, link_of(rate_bps))
    times: dict[str, list[float]] = {}
    for payload in payloads:
        for run in range(runs + 1):
            for name in COLLECTIVES:
                tensor = torch.full((payload // 4,), float(dist.get_rank()))
                dist.barrier()
                started = time.perf_counter()
                if name == "ring":
                    ring.average(tensor, codec, 0)
                else:
                    dist.all_reduce(tensor, group=data)
                elapsed = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
                dist.all_reduce(elapsed, dist.ReduceOp.MAX)
                if run:  # the first one opens connections and grows TCP's window
                    times.setdefault(f"{name} {payload}", []).append(float(elapsed))
    if dist.get_rank() == 0:
        out.write_text(json.dumps(times))
    dist.barrier()
    os._exit(0)  # gloo's teardown aborts now and then


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        out, runs, rate_bps, *payloads = options.worker
        worker(Path(out), int(runs), float(rate_bps), [int(size) for size in payloads])
    rates = [10e6, 100e6] if options.quick else [1e6, 10e6, 100e6, 1000e6]
    seconds, runs = (0.5, 5) if options.quick else (1.0, 7)
    rows = []
    for rate_bps in rates:
        rows += measure(rate_bps, [max(payload_of_about(seconds, rate_bps), 102_400)], runs)
    for row in rows:
        print(
            f"{row['collective']:5} {row['rate_bps'] / 1e6:6.0f} Mbit/s {row['payload_bytes'] / 1e3:9.0f} kB  "
            f"median {row['median_s']:.3f} s  limit {row['limit_s']:.3f} s  efficiency {row['efficiency']:.3f}"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
