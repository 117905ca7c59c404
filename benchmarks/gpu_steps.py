"""Steps of training with ResNet-50's gradients (25.56 M parameters) by four ranks that share one GPU, on a shaped link.

Torch's DDP over gloo, with and without its fp16 hook, and methods of ours by ``bwbench.distribute``, all in the same
processes and in turn. The link is the project's own (namespaces, 1 Gbit/s); where it cannot be made here, loopback, and
the record says so. Loopback is measured in any case. Times are of the slowest rank, with the GPU's work done.

Usage: python benchmarks/gpu_steps.py [--json FILE] [--limit SECONDS] [--device cuda|cpu] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bwbench.base.errors import BwbenchError
from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import CONTROL_INTERFACE, control_address
from bwbench.network.network import open_network

RANKS = 4
ARMS = ("ddp", "ddp fp16 hook", "ring", "ring-fp16", "top-k", "bytegrad", "diloco")
LINK = {"bandwidth": "1 Gbit/s", "latency": "0.5 ms"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=100.0, help="seconds in all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a small model: does it run at all?")
    options = parser.parse_args()
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            print(f"no GPU: torch {torch.__version__} finds none here", file=sys.stderr)
            return 2
    began_s = time.monotonic()
    record: dict[str, Any] = {"ranks": RANKS, "asked": LINK, "links": {}}

    def keep() -> None:
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(record, indent=1) + "\n")

    for name, run, share in (("1 Gbit/s", on_link, 0.65), ("loopback", on_loopback, 0.65)):
        left_s = options.limit - (time.monotonic() - began_s)
        try:
            found = run([options.device, options.rounds, share * left_s, options.small], left_s)
        except (BwbenchError, OSError, RuntimeError) as error:
            record["links"][name] = {"problem": f"{type(error).__name__}: {error}"}
            print(f"{name}: {error}", file=sys.stderr)
        else:
            record["links"][name] = found
            print(f"{name}, {found['gpu']}, {found['model']}:")
            for arm, times in found["step_s"].items():
                print(f"  {arm:<14} {1e3 * statistics.median(times):8.1f} ms a step, {len(times)} rounds")
        sys.stdout.flush()
        keep()
    return 0


def on_link(asked: list[Any], limit_s: float) -> dict[str, Any]:
    """On the project's own link. Raises BwbenchError where it cannot be made here."""
    with open_network(Link.model_validate(LINK), RANKS, control_path=True) as network, results() as out:
        processes = [
            network.spawn(
                rank,
                command(out, asked),
                env=environment(rank, control_address(0), CONTROL_INTERFACE, node.data_interface),
                stdout=2,
                stderr=2,
            )
            for rank, node in enumerate(network.nodes)
        ]
        wait(processes, limit_s)
        return {**json.loads(out.read_text()), "backend": network.backend, "backend_reason": network.backend_reason}


def on_loopback(asked: list[Any], limit_s: float) -> dict[str, Any]:
    """On this machine's own, which nothing shapes."""
    with results() as out:
        processes = [
            subprocess.Popen(command(out, asked), env=environment(rank, "127.0.0.1", "lo", "lo"), stdout=2, stderr=2)
            for rank in range(RANKS)
        ]
        wait(processes, limit_s)
        return {**json.loads(out.read_text()), "backend": "none"}


class results:  # noqa: N801 (used like a function)
    """A file for what rank 0 finds, for as long as the block lasts."""

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        return Path(self._folder.name) / "steps.json"

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def command(out: Path, asked: list[Any]) -> list[str]:
    return [sys.executable, "-m", "gpu_parts.timed_steps", json.dumps([str(out), list(ARMS), *asked])]


def environment(rank: int, master: str, control: str, data: str) -> dict[str, str]:
    here = Path(__file__)
    paths = [str(here.parent), str(here.parents[1]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": master,
        "MASTER_PORT": "29531",
        "OMP_NUM_THREADS": "2",
        "CONTROL": control,
        "DATA": data,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def wait(processes: list[Any], limit_s: float) -> None:
    """Until all have ended. Raises RuntimeError where one fails or takes too long."""
    deadline = time.monotonic() + max(1.0, limit_s)
    try:
        ended = [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no end within {limit_s:.0f} s") from error
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if any(ended):
        raise RuntimeError(f"ranks ended with {ended}")


if __name__ == "__main__":
    sys.exit(main())
