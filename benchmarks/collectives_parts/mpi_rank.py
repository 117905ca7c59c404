"""One rank of MPI: time MPI_Allreduce of fp32 sums; rank 0 writes the slowest rank's times. Needs mpi4py alone."""

from __future__ import annotations

import array
import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Payload by payload, as often as asked, after one run that is not counted."""
    from mpi4py import MPI

    out, payloads, runs = json.loads(sys.argv[1])
    world = MPI.COMM_WORLD
    times: dict[str, list[float]] = {}
    for payload in payloads:
        mine = array.array("f", [float(world.rank)]) * (payload // 4)
        total = array.array("f", [0.0]) * (payload // 4)
        for run in range(runs + 1):
            world.Barrier()
            started = time.perf_counter()
            world.Allreduce([mine, MPI.FLOAT], [total, MPI.FLOAT])
            elapsed = world.allreduce(time.perf_counter() - started, MPI.MAX)
            if run:
                times.setdefault(f"mpi {payload}", []).append(elapsed)
        if total[0] != sum(range(world.size)):
            raise SystemExit("MPI_Allreduce gave a wrong sum")
    if world.rank == 0:
        Path(out).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
