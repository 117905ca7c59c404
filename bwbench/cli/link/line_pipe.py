"""What nodes print, on its way to our own standard output and error: line by line, and never waited for too long."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import BinaryIO

LONGEST_LINE_BYTES = 65_536  # what is longer, or never ends its line, goes out in pieces
READ_BYTES = 65_536
MOST_READS = 16  # a pipe holds 64 kB, and 1 MB where somebody made it larger


class Outlet:
    """One of our own streams. Who reads it may stand still, as a pager does.

    Attributes:
        until_s: by ``time.monotonic``: what the reader has not taken by then is lost; None waits for it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.until_s: float | None = None
        self._poll = select.poll()
        self._poll.register(stream.fileno(), select.POLLOUT)

    def write(self, content: bytes) -> None:
        """All of it, or what is taken in time; raises OSError as writing does."""
        for begin in range(0, len(content), select.PIPE_BUF):  # so much never blocks once a pipe is said to have room
            left_s = None if self.until_s is None else max(0.0, self.until_s - time.monotonic())
            if not self._poll.poll(None if left_s is None else left_s * 1e3):
                return
            self.stream.write(content[begin : begin + select.PIPE_BUF])
            self.stream.flush()


class LinePipe:
    """A pipe into which a node writes, and out of which whole lines go to one of our own streams.

    Attributes:
        write_fd: the node's end; close ours once the node has it.
    """

    def __init__(self, out: Outlet, prefix: bytes, line_end: bytes = b"\n") -> None:
        self._out = out
        self._prefix = prefix
        self._line_end = line_end
        self._line = b""
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def fileno(self) -> int:
        """The end that is read."""
        return self._read_fd

    def pass_on(self) -> bool:
        """Pass on what is there; False at the end of the pipe."""
        try:
            data = os.read(self._read_fd, READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._line = (self._line + data).split(b"\n")
        while len(self._line) > LONGEST_LINE_BYTES:
            lines.append(self._line[:LONGEST_LINE_BYTES])
            self._line = self._line[LONGEST_LINE_BYTES:]
        self._write(lines)
        return bool(data)

    def finish(self) -> None:
        """Pass on what can be read at once, a last line without its end too, and close the pipe. Safe to call twice."""
        if self._read_fd < 0:
            return
        with contextlib.suppress(BlockingIOError):  # something left behind by the node's command holds the other end …
            for _ in range(MOST_READS):  # … and may write for ever
                data = os.read(self._read_fd, READ_BYTES)
                if not data:
                    break
                self._line += data
        lines = self._line.split(b"\n")
        self._line = b""
        os.close(self._read_fd)
        self._read_fd = -1
        self._write(lines if lines[-1] else lines[:-1])

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._out.write(b"".join(self._prefix + line + self._line_end for line in lines))
