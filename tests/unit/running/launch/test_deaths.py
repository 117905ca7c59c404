"""Words for what has ended a process."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from bwbench.records.files import worker_met_limit
from bwbench.running.launch import deaths
from bwbench.running.launch.deaths import MemoryKills, describe_exit, foreign_returncode


def test_a_kill_by_the_kernel_for_memory_is_told_from_one_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    monkeypatch.setattr(deaths, "_own_counts", lambda: [tmp_path / "missing", events])
    kills = MemoryKills()
    assert "from outside: not by" in kills.cause(-signal.SIGKILL)
    events.write_text("low 0\noom 2\noom_kill 2\n")
    assert "by the kernel, for want of memory" in kills.cause(-signal.SIGKILL)
    assert kills.cause(-signal.SIGSEGV) == kills.cause(1) == ""


def test_where_nobody_counts_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "_own_counts", list)
    monkeypatch.setattr(deaths, "_OF_THE_MACHINE", Path("/missing"))
    assert "most often for want of memory" in MemoryKills().cause(-signal.SIGKILL)


@pytest.mark.parametrize(("end", "status"), [("kill -KILL $$", -9), ("kill -SEGV $$", -11), ("exit 3", 3)])
def test_how_a_process_of_others_ended_is_known_until_they_ask(end: str, status: int) -> None:
    with subprocess.Popen(["sh", "-c", end]) as process:
        assert foreign_returncode(process.pid, limit_s=20) == status
    assert foreign_returncode(process.pid) is None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert foreign_returncode(process.pid, limit_s=0.01) is None


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (f"rank 0 {describe_exit(-signal.SIGXCPU)}", "ulimit -t"),
        (f"rank 0 {describe_exit(-signal.SIGXFSZ)}", "ulimit -f"),
        ("rank 1 exited with status 1: [Errno 27] File too large", "ulimit -f"),
        ("spawn failed: [Errno 24] Too many open files", "ulimit -n"),
        (f"rank 0 {describe_exit(-signal.SIGKILL)}", None),
    ],
)
def test_a_limit_is_the_machines_fault(tmp_path: Path, reason: str, remedy: str | None) -> None:
    found = worker_met_limit(tmp_path, reason)
    assert found is None if remedy is None else remedy in (found or "")


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    assert "was removed" in (worker_met_limit(tmp_path / "gone", "rank 0 exited with status 1") or "")
