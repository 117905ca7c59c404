"""JSON lines over a unix socket, with file descriptors beside them: how the parent and the agent talk."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

MAX_FDS = 32  # more than any request carries


class ControlSocket:
    """One end of the connection. A message is one JSON object; its descriptors arrive with its first byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""
        self._fds: list[int] = []

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message; raises OSError (TimeoutError where the socket has a time limit)."""
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self.connection, [data], list(fds)) if fds else 0
        self.connection.sendall(data[sent:])

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message with its descriptors (not inheritable; the caller's to close); None at the end of file."""
        while b"\n" not in self._buffer:
            data, fds, _, _ = socket.recv_fds(self.connection, 65536, MAX_FDS)
            for fd in fds:
                os.set_inheritable(fd, False)
            self._fds += fds
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        fds, self._fds = self._fds, []
        return json.loads(line), fds

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self.connection.close()
