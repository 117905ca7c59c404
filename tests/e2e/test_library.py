"""distribute() in real processes: groups, peers that die or say nothing, and how a script ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "library_script.py"
LIMIT_S = 110.0


def run(num_processes: int, case: str) -> list[tuple[int, dict[str, Any], str]]:
    """Exit status, report and standard error of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), case],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_processes)
    ]
    found = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=LIMIT_S)
            lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
            found.append((process.returncode, lines[0] if lines else {}, errors))
    finally:
        for process in processes:
            process.kill()
    return found


def test_replicas_begin_and_end_equal_and_processes_end_well() -> None:
    found = run(3, "plain")
    assert [status for status, _, _ in found] == [0, 0, 0], found[0][2]
    assert len({report["begun"] for _, report, _ in found}) == 1
    assert len({report["ended"] for _, report, _ in found}) == 1
    assert all(report["payload_bytes"] > 0 for _, report, _ in found)


def test_groups_of_the_script_train_by_themselves() -> None:
    reports = [report for _, report, _ in run(4, "subgroups")]
    ends = [report["ended"] for report in reports]
    assert ends[0] == ends[1] != ends[2] == ends[3]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("unequal-shapes", "rank 1: parameter 'weight' has shape [12, 40], rank 0 has [40, 12]"),
        ("unequal-sizes", "rank 1: parameter 'weight' has shape [41, 12], rank 0 has [40, 12]"),
        ("unequal-methods", "rank 1: compression 0 has name 'fp16', rank 0 has 'none'"),
        ("unequal-wrapping", "rank 1: the model is a DataParallel"),
    ],
)
def test_ranks_that_differ_all_say_so_at_once(case: str, text: str) -> None:
    found = run(2, case)
    assert [status for status, _, _ in found] == [0, 0], found[0][2]
    for _, report, errors in found:
        assert report["error"].startswith(text), errors
        assert report["waited_s"] < 10
        assert report["left"]


def test_a_dead_peer_ends_training_at_once() -> None:
    found = run(3, "death")
    assert found[1][0] == 9
    for _, report, errors in (found[0], found[2]):
        assert "communication failed" in report["error"], errors
        assert report["waited_s"] < 20


def test_a_silent_peer_ends_training_after_the_timeout() -> None:
    _, report, errors = run(2, "silence")[0]
    assert "communication failed" in report["error"], errors
    assert 2 < report["waited_s"] < 10
