"""A process in a node, as seen from outside: much like ``subprocess.Popen``."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable

from bwbench.base.errors import LinkError


class NodeProcess:
    """A started process. Its methods may be called from any thread.

    Attributes:
        pid: process id as we see it (the process itself sees another one).
        returncode: exit status, negative for the signal that ended it; None while it runs.
    """

    def __init__(self, pid: int, exit_pipe: int, send_signal: Callable[[int], None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._exit_pipe = exit_pipe
        self._send_signal = send_signal
        self._lock = threading.Lock()
        self._cpu_time_s = 0.0

    def fileno(self) -> int:
        """Becomes readable when the process has ended: for ``select``, until ``poll`` has returned a status."""
        return self._exit_pipe

    def poll(self) -> int | None:
        """The return code; None while the process runs."""
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> int | None:
        """The return code once the process has ended; None where that takes longer than ``timeout_s``."""
        with self._lock:
            if self.returncode is None:
                waiter = select.poll()  # select.select refuses descriptors from 1024 on
                waiter.register(self._exit_pipe, select.POLLIN)
                if waiter.poll(max(0.0, timeout_s) * 1e3):
                    line = os.read(self._exit_pipe, 64)
                    self.returncode = int(line) if line else -signal.SIGKILL  # the network ended, and it too
                    os.close(self._exit_pipe)
            return self.returncode

    def kill(self) -> None:
        """SIGKILL to the process and the children in its group; nothing happens where it has ended."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process and its group; nothing happens where it has ended."""
        if self.returncode is None:
            with contextlib.suppress(LinkError):  # the network is closed: so is the process
                self._send_signal(number)

    def cpu_time_s(self) -> float:
        """CPU time that the process has used so far (the last figure known once it has ended)."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{self.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            self._cpu_time_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return self._cpu_time_s

    def __del__(self) -> None:
        if getattr(self, "returncode", 0) is None:
            with contextlib.suppress(OSError):
                os.close(self._exit_pipe)
