"""The worker's line to the parent: events go up for display, phases are answered once the counters have been read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from bwbench.base.errors import WorkerError
from bwbench.base.messages import MessageReader
from bwbench.records import dump_line
from bwbench.records.schema import JsonObject

VARIABLE = "BWBENCH_CHANNEL_FD"
ANSWER_LIMIT_S = 300.0  # the parent waits until slow links have drained; if it is gone, so is this worker
AWAITED_PHASES = ("training", "checkpoint", "drained", "recorded")


class Channel:
    """A stream socket to the parent, JSON lines both ways; without one (a worker started by hand) nothing is sent."""

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection
        self.before_phase: Callable[[str], None] = lambda name: None  # called with each phase before it is reported
        if connection is not None:
            self._reader = MessageReader(connection.fileno())
            connection.settimeout(ANSWER_LIMIT_S)

    @classmethod
    def from_environment(cls) -> Channel:
        """The channel that ``BWBENCH_CHANNEL_FD`` names."""
        descriptor = os.environ.get(VARIABLE)
        return cls(socket.socket(fileno=int(descriptor)) if descriptor else None)

    def send(self, message: JsonObject) -> None:
        """Send a message, be it a copy of an event.

        A parent that is gone ends its workers by other means, so that is no error here.
        """
        if self._connection is None:
            return
        try:
            self._connection.sendall(dump_line(message).encode())
        except OSError:
            self._connection = None

    def phase(self, name: str) -> JsonObject:
        """Report a phase; waits for the parent's answer, and returns it, where it reads the wire counters in that
        moment.

        Raises WorkerError where no answer comes in time: counters read later would not belong to the training.
        """
        self.before_phase(name)
        message: JsonObject = {"event": "phase", "phase": name}
        if name not in AWAITED_PHASES:
            self.send(message)
            return {}
        answer = self.ask(message)
        if self._connection is not None and answer.get("ok") is not True:
            raise WorkerError(f"the parent did not agree to phase {name!r}")
        return answer

    def ask(self, message: JsonObject) -> JsonObject:
        """Send a message and wait for the answer; empty where there is nobody to answer.

        Raises WorkerError where none comes in time.
        """
        self.send(message)
        return {} if self._connection is None else self._answer()

    def _answer(self) -> JsonObject:
        try:
            answer = self._reader.receive(ANSWER_LIMIT_S)
        except TimeoutError:
            raise WorkerError(f"the parent has not answered for {ANSWER_LIMIT_S:.0f} s") from None
        if answer is None:
            raise WorkerError("the parent has closed the channel")
        return answer
