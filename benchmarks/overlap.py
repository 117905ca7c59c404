"""How much of a ring's time hides behind a backward pass of equal length: waiting with overlap over waiting without.

Four nodes, 2.5 ms, a gradient that takes about a second, in eight buckets. The backward pass sleeps, so that no
processor is short. Perfect overlap would leave the last bucket, an eighth, and what latency adds.

Usage: python benchmarks/overlap.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from collectives_parts.ranks import run_module
from collectives_parts.setting import NODES, link_of, payload_of_about

from bwbench.network.network import open_network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="10 Mbit/s alone, half a second, 3 runs")
    options = parser.parse_args()
    rates, seconds, runs = ([10e6], 0.5, 3) if options.quick else ([10e6, 100e6], 1.0, 7)
    rows = []
    for rate_bps in rates:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_network(link_of(rate_bps), NODES, control_path=True) as network,
        ):
            out, payload = Path(folder) / "waits.json", payload_of_about(seconds, rate_bps)
            run_module(network, "collectives_parts.overlapped_step", json.dumps([str(out), rate_bps, payload, runs]))
            waits = json.loads(out.read_text())
        rows.append(
            {
                "rate_bps": rate_bps,
                "payload_bytes": payload,
                "wait_without_overlap_s": waits["behind"],
                "wait_with_overlap_s": waits["beside"],
                "share": waits["beside"] / waits["behind"],
                "runs": runs,
            }
        )
        print(
            f"{rate_bps / 1e6:6.0f} Mbit/s {payload / 1e3:8.0f} kB  waiting without overlap {waits['behind']:.3f} s, "
            f"with {waits['beside']:.3f} s: {100 * rows[-1]['share']:.0f} %",
            flush=True,
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
