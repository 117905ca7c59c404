"""What ended a process that no fault of its own has ended: a limit of the machine, the kernel for want of memory, or
somebody else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_COUNTS = ("memory.events", "memory.oom_control")  # of cgroups v2, which count their children too, and v1
_OF_THE_MACHINE = Path("/proc/vmstat")
_POLL_S = 0.002  # between two looks at a process whose parent may take its status away at any moment
_LIMITS = {
    signal.SIGXCPU: "its limit of processor time, ulimit -t",
    signal.SIGXFSZ: "its limit of the size of files, ulimit -f",
}


def describe_exit(returncode: int) -> str:
    """Words for an exit status: ``was killed by SIGKILL`` or ``exited with status 1``."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        found = signal.Signals(-returncode)
    except ValueError:
        return f"was killed by signal {-returncode}"
    limit = _LIMITS.get(found)
    return f"was killed by {found.name}" + (f" ({limit})" if limit else "")


def foreign_returncode(pid: int, limit_s: float = 1.0) -> int | None:
    """How a process ends that is no child of ours, as ``subprocess`` says it; None where nobody can tell any more.

    It can be told until its parent has asked for it.
    """
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if fields[0] == "Z":
            return os.waitstatus_to_exitcode(int(fields[-1])) or None  # 0 is also what is shown where one may not look
        time.sleep(_POLL_S)
    return None


class MemoryKills:
    """Whether the kernel has killed for want of memory since this began to count."""

    def __init__(self) -> None:
        self._before = _killed()

    def cause(self, returncode: int) -> str:
        """What there is to add to a death by SIGKILL that nobody here has sent; empty for any other."""
        if returncode != -signal.SIGKILL:
            return ""
        now = _killed()
        if now is None or self._before is None:
            return " (from outside, most often for want of memory: the kernel here does not tell)"
        if now > self._before:
            return " (by the kernel, for want of memory: give it more, or train a smaller model or batch)"
        return " (from outside: not by bwbench, and not by the kernel for want of memory)"


def _killed() -> int | None:
    """Processes that were killed for want of memory so far: in our cgroup, else on the machine; None: nobody tells."""
    for path in (*_own_counts(), _OF_THE_MACHINE):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        if found := [line.split()[1] for line in lines if line.startswith("oom_kill ")]:
            return int(found[0])
    return None


def _own_counts() -> list[Path]:
    """Files that may count for our cgroup: at the place that the kernel names, or at the root of a container's view."""
    found: list[Path] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for _, controllers, place in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):
            for root in (_CGROUPS, _CGROUPS / "unified") if not controllers else (_CGROUPS / controllers,):
                found += [root / place.lstrip("/") / name for name in _COUNTS]
                found += [root / name for name in _COUNTS]
    return found
