"""Programs in the nodes of a network: started, listened to line by line, and waited for with a limit."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence

from bwbench.network.network import Network

MORE_FOLDERS = ("/usr/sbin", "/sbin")  # where tc is, which an ordinary user's PATH may leave out
STOP_LIMIT_S = 5.0


class MeasurementError(Exception):
    """A tool failed, said something unexpected, or took too long; the text says which and what."""


class UnavailableError(Exception):
    """What a measurement needs is not here; the text says what. No fault of the link."""


def program(name: str) -> str:
    """Path of a program; raises UnavailableError where there is none of this name."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *MORE_FOLDERS)))
    if path is None:
        raise UnavailableError(f"there is no {name} on this machine")
    return path


class Tool:
    """A program that runs in a node; what it prints comes line by line, each with the time at which it came.

    Attributes:
        lines: (CLOCK_MONOTONIC in seconds, line), standard output and standard error together.
    """

    def __init__(self, network: Network, node: int, argv: Sequence[str]) -> None:
        self.lines: list[tuple[float, str]] = []
        self._name = os.path.basename(argv[0])
        self._changed = threading.Condition()
        self._ended = False
        read, write = os.pipe()
        try:
            self._process = network.spawn(node, argv, stdout=write, stderr=write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything that it has printed so far."""
        return "\n".join(line for _, line in list(self.lines))

    def wait_for(self, words: str, limit_s: float) -> float:
        """When a line with these words came; raises MeasurementError where none comes within ``limit_s``."""
        deadline_s = time.monotonic() + limit_s
        seen = 0
        with self._changed:
            while True:
                for came_s, line in self.lines[seen:]:
                    if words in line:
                        return came_s
                seen = len(self.lines)
                left_s = deadline_s - time.monotonic()
                if self._ended or left_s <= 0:
                    raise MeasurementError(f"{self._name} did not say {words!r}: {self._last_words()}")
                self._changed.wait(left_s)

    def finish(self, limit_s: float, allowed: Sequence[int] = (0,)) -> str:
        """Wait for its end and give all that it printed; raises MeasurementError where it fails or takes longer."""
        status = self._process.wait(limit_s)
        if status is None:
            self.stop()
            raise MeasurementError(f"{self._name} took longer than {limit_s:g} s: {self._last_words()}")
        self._reader.join(STOP_LIMIT_S)
        if status not in allowed:
            raise MeasurementError(f"{self._name} ended with status {status}: {self._last_words()}")
        return self.text

    def stop(self) -> None:
        """End it, whatever it is doing. Safe to call twice."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_LIMIT_S)
        self._reader.join(STOP_LIMIT_S)

    def cpu_s(self) -> float:
        """CPU time that it has used so far."""
        return self._process.cpu_time_s()

    def _read(self, fd: int) -> None:
        with open(fd, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                with self._changed:
                    self.lines.append((time.monotonic(), line.rstrip("\n")))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _last_words(self) -> str:
        return " / ".join(line.strip() for _, line in self.lines[-4:]) or "it printed nothing"


def run(network: Network, node: int, *argv: str, limit_s: float = 20.0) -> str:
    """What a program prints that ends by itself."""
    return Tool(network, node, argv).finish(limit_s)
