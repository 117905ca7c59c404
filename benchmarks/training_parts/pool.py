"""Many short trainings one after the other by the same processes: importing torch once pays when a run takes seconds.

The workers are those of ``bwbench run`` in all but their start: same data, same loop, same algorithms, on loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bwbench.experiment.plan.cell import Cell

WORKER = Path(__file__).with_name("pool_worker.py")


class Pool:
    """``num_nodes`` workers on this machine; a failed or endless training costs them, and new ones are started."""

    def __init__(self, num_nodes: int, niceness: int = 0) -> None:
        self._num_nodes, self._niceness = num_nodes, niceness
        self._workers: list[subprocess.Popen[str]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="bwbench-pool-")

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, and leave nothing of theirs."""
        self.close()
        self._folder.cleanup()

    def train(self, cell: Cell, limit_s: float, events: Path | None = None) -> dict[str, Any]:
        """The end of one training: ``status``, ``reason``, ``evaluations`` and what rank 0's end event says.

        Args:
            events: folder that is to keep what every rank has recorded.
        """
        if not self._workers:
            self._start()
        job = json.dumps({"cell": cell.to_json(), "events": None if events is None else str(events)}) + "\n"
        for worker in self._workers:
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(job)
                worker.stdin.flush()
        deadline = time.monotonic() + limit_s
        answer = None
        while answer is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self._workers[0].stdout], [], [], 0.5)
            if ready:
                answer = self._workers[0].stdout.readline()  # type: ignore[union-attr]
            elif any(worker.poll() is not None for worker in self._workers):
                answer = ""
        if answer:
            found: dict[str, Any] = json.loads(answer)
            return found
        reason = f"no end within {limit_s:.0f} s" if answer is None else self._last_words()
        self.close()
        return {"status": "failed", "reason": reason, "evaluations": []}

    def close(self) -> None:
        """End the workers. The next training starts new ones."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            with worker:  # its pipes are closed, and it is waited for
                pass
        self._workers = []

    def _start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(self._num_nodes):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(self._num_nodes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "BWBENCH_DATA_INTERFACE": "lo",
                "BWBENCH_CONTROL_INTERFACE": "lo",
                "POOL_NICENESS": str(self._niceness),
            }
            log = (Path(self._folder.name) / f"rank{rank}.log").open("a")
            argv = [sys.executable, str(WORKER), self._folder.name]
            pipe = subprocess.PIPE
            self._workers.append(
                subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)
            )
            log.close()

    def _last_words(self) -> str:
        """What the ranks printed last, the first that failed with an error of its own first."""
        for rank in range(self._num_nodes):
            lines = (Path(self._folder.name) / f"rank{rank}.log").read_text(errors="replace").strip().splitlines()
            if lines and "Connection closed by peer" not in lines[-1]:
                return f"rank {rank}: {lines[-1]}"
        return "a worker ended without a word"
