"""A process in a node with the interface of ``subprocess.Popen``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, TimeoutExpired
from types import TracebackType
from typing import IO, Any

from bwbench.network.network import Network

LOOK_S = 0.1  # how long a wait keeps other threads from looking

Stream = int | IO[Any] | None  # as subprocess takes them: PIPE, DEVNULL, a descriptor, an open file; None is ours


class NodePopen:
    """What ``subprocess.Popen`` is, for a process in a node; it ends with the network at the latest.

    Two things differ: standard input is /dev/null unless it is given, and signals reach the process's whole group, so
    that ``kill`` takes the children of a shell too.

    Attributes:
        args: program and arguments.
        pid: process id as we see it.
        stdin, stdout, stderr: file objects where ``PIPE`` was given, else None.
    """

    def __init__(
        self,
        network: Network,
        node: int,
        args: Sequence[str | os.PathLike[str]],
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        self.args = [os.fspath(word) for word in args]
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        self._text = text
        self._threads: list[threading.Thread] = []
        self._read: dict[str, Any] = {}
        with contextlib.ExitStack() as opened, contextlib.ExitStack() as theirs:
            fds: dict[int, int] = {}
            for number, (name, stream) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
                fd = self._descriptor(number, name, stream, fds, opened, theirs)
                if fd is not None:
                    fds[number] = fd
            self._process = network.spawn(node, self.args, env, cwd, pass_fds=fds)
            opened.pop_all()  # they stay open: it has started
        self.pid = self._process.pid

    def _descriptor(
        self,
        number: int,
        name: str,
        stream: Stream,
        fds: Mapping[int, int],
        opened: contextlib.ExitStack,
        theirs: contextlib.ExitStack,
    ) -> int | None:
        """What the process finds under ``number``; None is /dev/null."""
        if stream is None:
            if number:
                (sys.stdout if number == 1 else sys.stderr).flush()
            return number or None
        if stream == DEVNULL:
            return None
        if stream == STDOUT:
            return fds.get(1)
        if stream != PIPE:
            return stream if isinstance(stream, int) else stream.fileno()
        read, write = os.pipe()
        ours, given = (read, write) if number else (write, read)
        theirs.callback(os.close, given)
        mode = ("r" if number else "w") + ("" if self._text else "b")
        setattr(self, name, opened.enter_context(os.fdopen(ours, mode)))
        return given

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for the signal that ended it; None until ``poll`` or ``wait`` has seen the end."""
        return self._process.returncode

    def poll(self) -> int | None:
        """The return code; None while the process runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """The return code once the process has ended; raises ``subprocess.TimeoutExpired``."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = LOOK_S if until_s is None else until_s - time.monotonic()
            returncode = self._process.wait(max(0.0, min(left_s, LOOK_S)))
            if returncode is not None:
                return returncode
            if left_s <= 0:
                raise TimeoutExpired(self.args, timeout or 0.0)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Send ``input``, read both outputs to their ends, wait; what came from ``PIPE``s, else None.

        Raises ``subprocess.TimeoutExpired``; nothing is lost, and it can be called again.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        if not self._threads:
            work = [partial(self._collect, name) for name in ("stdout", "stderr") if getattr(self, name) is not None]
            if self.stdin is not None:
                work.append(partial(self._feed, input))
            self._threads = [threading.Thread(target=target, daemon=True) for target in work]
            for thread in self._threads:
                thread.start()
        for thread in self._threads:
            thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                raise TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return self._read.get("stdout"), self._read.get("stderr")

    def _collect(self, name: str) -> None:
        with getattr(self, name) as file:
            self._read[name] = file.read()

    def _feed(self, content: Any) -> None:
        assert self.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.stdin:  # it need not read all of it
            if content:
                self.stdin.write(content)

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process and its group; nothing happens where it has ended."""
        self._process.send_signal(sig)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> NodePopen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the pipes and wait, as subprocess does."""
        for file in (self.stdout, self.stderr, self.stdin):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
        self.wait()
