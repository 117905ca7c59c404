"""The parent's end of the workers' channels: events come in as JSON lines, answers to phases go out."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Sequence

from bwbench.base.messages import MessageReader, encode
from bwbench.records.schema import JsonObject


class Channels:
    """One stream socket a rank. Safe to close twice."""

    def __init__(self, parent_ends: Sequence[socket.socket], worker_ends: Sequence[socket.socket] = ()) -> None:
        self._selector = selectors.DefaultSelector()
        self._parent_ends, self.worker_ends = parent_ends, worker_ends
        self._readers = [MessageReader(end.fileno()) for end in parent_ends]
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

    def poll(self, timeout_s: float, handle: Callable[[int, JsonObject], None]) -> None:
        """Wait up to ``timeout_s`` and call ``handle(rank, message)`` for every message that has arrived."""
        for key, _ in self._selector.select(timeout_s):
            rank = key.data
            for message in self._readers[rank].ready():
                handle(rank, message)
            if self._readers[rank].has_ended:
                self._selector.unregister(self._parent_ends[rank])

    def answer(self, rank: int, content: JsonObject) -> None:
        """Send one line to a worker; a worker that is gone is noticed elsewhere."""
        try:
            self._parent_ends[rank].sendall(encode(content))
        except OSError:
            pass

    def close(self) -> None:
        """Close everything."""
        self._selector.close()
        for end in [*self._parent_ends, *self.worker_ends]:
            end.close()
