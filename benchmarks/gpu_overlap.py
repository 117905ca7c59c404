"""Whether copies to pinned host memory run while a backward pass goes on: what a GPU did when, recorded and drawn.

One process trains on one GPU with ``bwbench.distribute``, beside one or more others that share it. torch.profiler says
when kernels and copies ran. A picture shows a step; the record says which share of the time of all copies lay inside
the backward pass and beside a kernel.

Without a GPU: ``--draw FILE`` draws a record that is there.

Usage: python benchmarks/gpu_overlap.py [--json FILE] [--picture FILE] [--method NAME] [--ranks N] [--draw FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_parts.timeline import draw, summary

LIMIT_S = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--method", default="ring-fp16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--draw", type=Path, help="a record made earlier")
    options = parser.parse_args()
    if options.draw is not None:
        record: dict[str, Any] = json.loads(options.draw.read_text())
    else:
        import torch

        if not torch.cuda.is_available():
            print(f"no GPU: torch {torch.__version__} finds none here", file=sys.stderr)
            return 2
        record = recorded(options.method, options.ranks)
    record["summary"] = summary(record["events"])
    print(json.dumps({key: value for key, value in record.items() if key != "events"}, indent=1))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record) + "\n")
    if options.picture:
        draw(record, options.picture)
    return 0


def recorded(method: str, ranks: int) -> dict[str, Any]:
    """Train on all ranks, and read what rank 0 has recorded. SystemExit where a rank fails or takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "events.json"
        processes = []
        for rank in range(ranks):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "OMP_NUM_THREADS": "2",
                "GLOO_SOCKET_IFNAME": "lo",
                "PYTHONPATH": os.pathsep.join([*sys.path[:1], str(Path(__file__).parents[1]), *_given()]),
            }
            command = [sys.executable, "-m", "gpu_parts.overlapped_steps", str(out), method, f"{folder}/meet"]
            processes.append(subprocess.Popen(command, env=environment))
        try:
            ended = [process.wait(LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(ended):
            raise SystemExit(f"a rank failed: {ended}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def _given() -> list[str]:
    return [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []


if __name__ == "__main__":
    sys.exit(main())
