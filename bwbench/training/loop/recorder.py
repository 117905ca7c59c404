"""What a rank says: to disk, events kept in memory while the clock runs and written while it stands still; to its
parent, events for display, and phases, which are answered once the counters have been read."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from bwbench.base import emulated_time
from bwbench.base.errors import WorkerError
from bwbench.base.messages import MessageReader
from bwbench.records import EventWriter, dump_line
from bwbench.records.schema import Chosen, End, Event, JsonObject, LedgerParts, RankError, Resume, Start, Step

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

    @property
    def is_open(self) -> bool:
        """Whether there is somebody to answer."""
        return self._connection is not None

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
        if self.is_open and answer.get("ok") is not True:
            raise WorkerError(f"the parent did not agree to phase {name!r}")
        return answer

    def ask(self, message: JsonObject) -> JsonObject:
        """Send a message and wait for the answer; empty where there is nobody to answer.

        Raises WorkerError where none comes in time.
        """
        self.send(message)
        return self.answer()

    def answer(self) -> JsonObject:
        """The next answer; raises WorkerError as ``ask``."""
        if self._connection is None:
            return {}
        try:
            answer = self._reader.receive(ANSWER_LIMIT_S)
        except TimeoutError:
            raise WorkerError(f"the parent has not answered for {ANSWER_LIMIT_S:.0f} s") from None
        if answer is None:
            raise WorkerError("the parent has closed the channel")
        return answer


def error_event(error: BaseException, message: str | None = None) -> RankError:
    """What is recorded of an error; ``message`` says more than its own."""
    return RankError(type=type(error).__name__, message=message or str(error) or type(error).__name__)


class Recorder:
    """Writes one rank's events and sends the parent a copy of those that it shows.

    ``writer`` takes those that are not shown, and is to be flushed only while the clock stands still.
    """

    def __init__(self, writer: EventWriter, channel: Channel) -> None:
        self.writer, self._channel = writer, channel
        # Pydantic makes a model when it is first used, which would be on the clock.
        for kind in (Step, LedgerParts, Chosen):
            kind.model_rebuild()

    def begin(self, facts: Start | Resume, mono_s: float) -> None:
        """The first event of this process: at clock zero, or behind those up to the checkpoint that it goes on from."""
        since_s = emulated_time.machine_s(emulated_time.monotonic() - mono_s)
        both_clocks = {"time_unix_s": time.time() - since_s, "mono_s": mono_s}
        self.show(facts.model_copy(update=both_clocks))

    def show(self, event: Event) -> None:
        """One event that is shown as well, such as an evaluation."""
        self.writer.write(event)
        self._channel.send(event.to_json())

    def end(self, event: End) -> None:
        """The last event: on disk when this returns. It is what makes a trial count as ended."""
        self.writer.write(event)
        self.writer.sync()
        self._channel.send(event.to_json())

    def error(self, error: BaseException, message: str | None = None) -> None:
        """Why this rank gives up. The parent comes first: it may be the disk that is full."""
        event = error_event(error, message)
        self._channel.send(event.to_json())
        self.writer.write(event)
        self.writer.sync()
