"""Whether /proc shows the processes that this one's numbers mean."""

from __future__ import annotations

import os

import psutil

PROBLEM = "/proc shows the processes of another PID namespace, so that none can be watched: mount its own proc there"


def proc_is_own() -> bool:
    """False in a container or namespace that sees the /proc of its host: signals would go to the wrong processes."""
    try:
        return bool(psutil.Process(os.getpid()).ppid() == os.getppid() and psutil.pid_exists(os.getppid()))
    except psutil.Error:
        return False
