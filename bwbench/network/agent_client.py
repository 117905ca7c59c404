"""Starts the agent process and sends it requests, each with a time limit."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bwbench
from bwbench.base.errors import BwbenchError, ConfigError, LaunchError, LinkError, UnfitMachineError
from bwbench.network.control_socket import ControlSocket

CLOSE_LIMIT_S = 5.0
_ERRORS: dict[str, type[BwbenchError]] = {
    "ConfigError": ConfigError,
    "LaunchError": LaunchError,
    "LinkError": LinkError,
    "UnfitMachineError": UnfitMachineError,
}


class AgentClient:
    """A running agent. Requests may come from any thread, one at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._control = ControlSocket(ours)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._errors_fd = os.memfd_create("agent-stderr")  # not a pipe: nobody has to read it; no disk that can be full
        arguments = ["--socket-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())]
        if threading.current_thread() is not threading.main_thread():
            arguments.append("--no-death-signal")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bwbench.network.agent", *arguments],
                # -m looks here first: finds this very package, and none of the user's files that are called like
                # a module of the standard library
                cwd=Path(bwbench.__file__).parent.parent,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors_fd,
                start_new_session=True,  # Ctrl-C in the terminal is for us to handle, not for it
            )
        except BaseException:
            self._control.close()
            os.close(self._errors_fd)
            raise
        finally:
            theirs.close()

    def request(self, operation: str, limit_s: float, fds: Sequence[int] = (), **content: Any) -> dict[str, Any]:
        """Have the agent do something, and return its reply.

        Raises the error that the agent reports; LinkError where it is gone or takes longer than ``limit_s``.
        """
        with self._lock:
            number = next(self._numbers)
            try:
                self._control.connection.settimeout(limit_s)
                self._control.send({"id": number, "op": operation, **content}, fds)
                while True:
                    message = self._control.receive()
                    if message is None:
                        raise ConnectionError
                    if message[0].get("id", number) == number:  # else: the reply to a request that was interrupted
                        break
            except TimeoutError as error:
                raise LinkError(f"the network's agent did not answer {operation!r} within {limit_s:.0f} s") from error
            except OSError as error:
                raise LinkError(
                    f"the network's agent is gone ({operation!r} was asked of it){self._last_words()}"
                ) from error
        reply, _ = message
        if "error" in reply:
            raise _ERRORS.get(reply["error"], LinkError)(reply["message"])
        return reply

    def close(self) -> None:
        """End the agent and everything that it holds. Safe to call twice."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                self._control.connection.settimeout(CLOSE_LIMIT_S)
                self._control.send({"id": 0, "op": "close"})
            self._control.close()
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(CLOSE_LIMIT_S)
            finally:  # interrupted or not
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait(CLOSE_LIMIT_S)
            with contextlib.suppress(OSError):
                os.close(self._errors_fd)

    def _last_words(self) -> str:
        """The end of what the agent wrote to stderr."""
        with contextlib.suppress(OSError):
            text = os.pread(self._errors_fd, 1 << 20, 0).decode(errors="replace").strip()
            if text:
                return ":\n" + "\n".join(text.splitlines()[-8:])
        return ""
