"""Who owns a process that this program starts: the process that started it, as the kernel knows it.

The environment of what must not outlive its owner has the owner's pid, the time at which it began, and the PID
namespace in which that number means something. So it can be told afterwards whether the owner is gone, whatever either
of them is called. What has no such record belongs to somebody else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

OWNER = "BWBENCH_OWNER"
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat after the name
_ENDED = "ZX"


def owned(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment (None: ours) for a process that belongs to this one."""
    record = f"{os.getpid()}:{_started(os.getpid())}:{_pid_namespace()}"
    return {**(os.environ if environment is None else environment), OWNER: record}


def owned_by_nobody() -> dict[str, str]:
    """Our environment for a process that goes on without us."""
    return {name: value for name, value in os.environ.items() if name != OWNER}


def is_orphan(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment had an owner that has ended.

    False where there is no record, or none that could be judged from this PID namespace.
    """
    pid, _, rest = environment.get(OWNER, "").partition(":")
    started, _, namespace = rest.partition(":")
    if not (pid.isdecimal() and started.isdecimal() and namespace == _pid_namespace()):
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; nothing where it is not there or has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[_STATE] not in _ENDED:
            return fields[_STARTED]
    return ""


def _pid_namespace() -> str:
    """Nothing where /proc is that of other processes than ours."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self") == str(os.getpid()):
            return os.readlink("/proc/self/ns/pid")
    return "unknown"
