"""Messages between processes: one JSON object a line, over a stream socket or a pipe.

Whoever waits for several of them gives a reader to ``select`` (it has a ``fileno``) and takes what is ready; whoever
waits for one says for how long. Nothing is kept back that ``select`` cannot see but the beginning of a line.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_LINE_BYTES = 1 << 20  # a message is a few hundred bytes; whoever sends more than this is broken
_READ_BYTES = 65_536


def encode(message: Mapping[str, object]) -> bytes:
    """The line that says ``message``."""
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The message of a line; None where it is no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # nested without end
        return None
    return message if isinstance(message, dict) else None


class LineBuffer:
    """Pieces of a stream in, whole lines out.

    Args:
        most_bytes: a line that is longer is dropped, so that a sender gone wild fills no memory; None allows any.

    Attributes:
        has_dropped: whether a line has been too long.
    """

    def __init__(self, most_bytes: int | None = MAX_LINE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._begun = b""
        self.has_dropped = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without their ends."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        if self._most_bytes is not None and len(self._begun) > self._most_bytes:
            self._begun, self.has_dropped = b"", True
        return lines


class MessageReader:
    """The messages that come in at a descriptor, be it a pipe's or a socket's, blocking or not.

    Lines that are no JSON object are passed over.

    Args:
        descriptor: stays the caller's, who alone closes it; nobody else reads from it.

    Attributes:
        has_ended: whether the other side has closed its end. What has come until then can still be taken.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = LineBuffer()
        self._messages: deque[dict[str, Any]] = deque()
        self.has_ended = False

    def fileno(self) -> int:
        """For ``select``: readable when there is something to take in, or the end."""
        return self._descriptor

    def ready(self, limit_s: float = 0.0) -> list[dict[str, Any]]:
        """What one read brings, waited for no longer than ``limit_s``; empty also where no line is complete yet."""
        if not self._messages and self._is_readable(limit_s):
            self._read()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def all_ready(self, limit_s: float = 0.0) -> list[dict[str, Any]]:
        """All that there is to read; for its beginning no longer is waited than ``limit_s``."""
        while self._is_readable(limit_s):
            self._read()
            limit_s = 0.0
        return self.ready()

    def receive(self, limit_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None where the other side has closed. Raises TimeoutError after ``limit_s``."""
        deadline_s = math.inf if limit_s is None else time.monotonic() + limit_s
        while not self._messages:
            if self.has_ended:
                return None
            if not self._is_readable(deadline_s - time.monotonic()):
                raise TimeoutError(f"no message within {limit_s:g} s")
            self._read()
        return self._messages.popleft()

    def _is_readable(self, limit_s: float) -> bool:
        return not self.has_ended and _is_readable(self._descriptor, limit_s)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:  # it closed without having read what we sent
            data = b""
        self.has_ended = not data
        self._messages.extend(message for line in self._buffer.feed(data) if (message := decode(line)) is not None)


def first_line(descriptor: int, limit_s: float | None = None, most_bytes: int = MAX_LINE_BYTES) -> bytes:
    """One line with its end, and not a byte more: what follows is no message, or for somebody else to wait for.

    What came instead, without an end, where the other side has closed or the line is longer than ``most_bytes``. Raises
    TimeoutError after ``limit_s``.
    """
    line = bytearray()
    deadline_s = math.inf if limit_s is None else time.monotonic() + limit_s
    while not line.endswith(b"\n") and len(line) < most_bytes:
        if not _is_readable(descriptor, deadline_s - time.monotonic()):
            raise TimeoutError(f"no line within {limit_s:g} s")
        try:
            byte = os.read(descriptor, 1)
        except BlockingIOError:
            continue
        if not byte:
            break
        line += byte
    return bytes(line)


def _is_readable(descriptor: int, limit_s: float) -> bool:
    waiter = select.poll()  # select.select refuses descriptors from 1024 on
    waiter.register(descriptor, select.POLLIN)
    return bool(waiter.poll(None if math.isinf(limit_s) else max(0.0, limit_s) * 1e3))
