"""The ranks of a benchmark on the hosts of an emulated network: the same script is started for each, as torchrun would.

A script measures in one function, which asks for its ranks, and trains in another one, which each of them calls:

    if __name__ == "__main__":
        run_script(main, train)
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bwbench.network.emulate import emulate
from bwbench.network.link import Link

Asked = dict[str, Any]  # by the script of its ranks
Told = dict[str, Any]  # by a rank of what it measured
AS_RANK, OUT, PORT = "--as-rank", "out", "29500"
POLL_S = 0.1
KILLED_S = 30.0  # for a process to be gone


def run_script(main: Callable[[], None], train: Callable[[Asked], None]) -> None:
    """The one or the other, by how the script was called."""
    if sys.argv[1:2] == [AS_RANK]:
        train(json.loads(sys.argv[2]))
    else:
        main()


def ask_ranks(
    script: str, link: Link | None, num_hosts: int, asked: Asked, limit_s: float, per_host: int = 1
) -> list[Told]:
    """Run all ranks to their end, and return what each of them told, by rank.

    Args:
        script: its file; what its ``train`` is called with is ``asked``, and where to ``tell``.
        link: between the hosts; None for ordinary processes on this machine's loopback.
        limit_s: for all of them together.
        per_host: ranks of a host, whose numbers are consecutive.

    Raises:
        SystemExit: one failed, or they took longer.
    """
    num_ranks = num_hosts * per_host
    on_link = contextlib.nullcontext([]) if link is None else emulate(link, num_hosts)
    port = str(_free_port())
    with tempfile.TemporaryDirectory() as folder, on_link as nodes:
        words = [sys.executable, script, AS_RANK, json.dumps({**asked, OUT: folder})]
        processes: list[Any] = []
        try:
            for rank in range(num_ranks):
                node = nodes[rank // per_host] if nodes else None
                environment = {
                    **os.environ,
                    **(node.environment if node else {"GLOO_SOCKET_IFNAME": "lo"}),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(num_ranks),
                    "LOCAL_WORLD_SIZE": str(per_host),
                    "LOCAL_RANK": str(rank % per_host),
                    "MASTER_ADDR": nodes[0].address if nodes else "127.0.0.1",
                    "MASTER_PORT": PORT if nodes else port,
                    "OMP_NUM_THREADS": "1",
                    "INTERFACE": node.interface if node else "lo",
                }
                start = node.popen if node else subprocess.Popen
                processes.append(start(words, env=environment))
            _wait(processes, limit_s)
        finally:
            for process in processes:
                process.kill()
                process.wait(KILLED_S)
        return [json.loads(_file_of(rank, folder).read_text()) for rank in range(num_ranks)]


def _wait(processes: list[Any], limit_s: float) -> None:
    """Until all have ended well. Raises SystemExit as soon as one fails, or where they take longer."""
    deadline = time.monotonic() + limit_s
    while (codes := [process.poll() for process in processes]) != [0] * len(processes):
        for rank, code in enumerate(codes):
            if code:
                raise SystemExit(f"rank {rank} failed: it ended with {code}")
        if time.monotonic() > deadline:
            raise SystemExit(f"the ranks took longer than {limit_s:.0f} s")
        time.sleep(POLL_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def tell(asked: Asked, told: Told) -> None:
    """From a rank, at its end: hand over what it measured."""
    _file_of(int(os.environ["RANK"]), asked[OUT]).write_text(json.dumps(told))


def _file_of(rank: int, folder: str) -> Path:
    return Path(folder, f"rank{rank}.json")
