"""What a rank records: events kept in memory while the clock runs, written while it stands still."""

from __future__ import annotations

import time

from bwbench.records import EventWriter
from bwbench.records.schema import End, Event, RankError, Resume, Start, Step
from bwbench.training.loop.channel import Channel


def error_event(error: BaseException, message: str | None = None) -> RankError:
    """What is recorded of an error; ``message`` says more than its own."""
    return RankError(type=type(error).__name__, message=message or str(error) or type(error).__name__)


class Recorder:
    """Writes one rank's events and sends the parent a copy of those that it shows."""

    def __init__(self, writer: EventWriter, channel: Channel) -> None:
        self._writer, self._channel = writer, channel

    def begin(self, facts: Start | Resume, mono_s: float) -> None:
        """The first event of this process: at clock zero, or behind those up to the checkpoint that it goes on from."""
        both_clocks = {"time_unix_s": time.time() - (time.monotonic() - mono_s), "mono_s": mono_s}
        self.show(facts.model_copy(update=both_clocks))

    def step(self, event: Step) -> None:
        """One optimizer step; kept in memory until ``write``."""
        self._writer.write(event)

    def show(self, event: Event) -> None:
        """One event that is shown as well, such as an evaluation."""
        self._writer.write(event)
        self._channel.send(event.to_json())

    def write(self) -> None:
        """Hand everything to the operating system; only while the clock stands still."""
        self._writer.flush()

    def sync(self) -> None:
        """Hand everything to the disk."""
        self._writer.sync()

    def end(self, event: End) -> None:
        """The last event: on disk when this returns. It is what makes a trial count as ended."""
        self._writer.write(event)
        self._writer.sync()
        self._channel.send(event.to_json())

    def error(self, error: BaseException, message: str | None = None) -> None:
        """Why this rank gives up. The parent comes first: it may be the disk that is full."""
        event = error_event(error, message)
        self._channel.send(event.to_json())
        self._writer.write(event)
        self._writer.sync()
