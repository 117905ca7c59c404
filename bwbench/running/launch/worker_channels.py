"""The parent's end of the workers' channels: events come in as JSON lines, answers to phases go out."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Sequence

from bwbench.records.schema import JsonObject

MAX_LINE_BYTES = 1 << 20  # an event is a few hundred bytes; a worker that sends more than this is broken


class Channels:
    """One stream socket a rank. Safe to close twice."""

    def __init__(self, parent_ends: Sequence[socket.socket], worker_ends: Sequence[socket.socket] = ()) -> None:
        self._selector = selectors.DefaultSelector()
        self._parent_ends, self.worker_ends = parent_ends, worker_ends
        self._buffers = [b""] * len(parent_ends)
        for rank, parent_end in enumerate(parent_ends):
            parent_end.setblocking(False)
            self._selector.register(parent_end, selectors.EVENT_READ, rank)

    @classmethod
    def to_start(cls, num_ranks: int) -> Channels:
        """Channels to workers that are yet to get their ends."""
        pairs = [socket.socketpair() for _ in range(num_ranks)]
        return cls([parent for parent, _ in pairs], [worker for _, worker in pairs])

    @property
    def is_open(self) -> bool:
        """Whether any worker may still say something."""
        return bool(self._selector.get_map())

    def close_worker_ends(self) -> None:
        """Close the ends that the workers have by now, so that a dead worker is seen as end of file."""
        for end in self.worker_ends:
            end.close()

    def poll(self, timeout_s: float, handle: Callable[[int, JsonObject], None]) -> None:
        """Wait up to ``timeout_s`` and call ``handle(rank, message)`` for every message that has arrived."""
        for key, _ in self._selector.select(timeout_s):
            rank = key.data
            try:
                received = self._parent_ends[rank].recv(65536)
            except (BlockingIOError, ConnectionResetError):
                received = b""
            if not received:
                self._selector.unregister(self._parent_ends[rank])
                continue
            *lines, rest = (self._buffers[rank] + received).split(b"\n")
            self._buffers[rank] = rest if len(rest) <= MAX_LINE_BYTES else b""
            for line in lines:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict):
                    handle(rank, message)

    def answer(self, rank: int, content: JsonObject) -> None:
        """Send one line to a worker; a worker that is gone is noticed elsewhere."""
        try:
            self._parent_ends[rank].sendall(json.dumps(content).encode() + b"\n")
        except OSError:
            pass

    def close(self) -> None:
        """Close everything."""
        self._selector.close()
        for end in [*self._parent_ends, *self.worker_ends]:
            end.close()
