"""What a rank records: events kept in memory while the clock runs, written while it stands still."""

from __future__ import annotations

import os
import time
from typing import Any

from bwbench.records import SCHEMA, EventWriter
from bwbench.training.loop.channel import Channel
from bwbench.training.loop.ledger import PARTS, StepLedger


def error_event(error: BaseException, message: str | None = None) -> dict[str, Any]:
    """What is recorded of an error; ``message`` says more than its own."""
    return {"event": "error", "type": type(error).__name__, "message": message or str(error) or type(error).__name__}


class Recorder:
    """Writes one rank's events and sends the parent a copy of those that it shows."""

    def __init__(self, writer: EventWriter, channel: Channel) -> None:
        self._writer, self._channel = writer, channel

    def start(self, facts: dict[str, Any], zero_mono_s: float) -> None:
        """The first event, at clock zero."""
        self._show(
            {
                "event": "start",
                "schema": SCHEMA,
                "pid": os.getpid(),
                "time_unix_s": time.time() - (time.monotonic() - zero_mono_s),
                "mono_s": zero_mono_s,
                **facts,
            }
        )

    def resume(self, facts: dict[str, Any], mono_s: float) -> None:
        """Training goes on from a checkpoint: the first event of this process, behind those up to there."""
        moment = {"time_unix_s": time.time() - (time.monotonic() - mono_s), "mono_s": mono_s}
        self._show({"event": "resume", "pid": os.getpid(), **moment, **facts})

    def step(self, facts: dict[str, Any], ledger: StepLedger) -> None:
        """One optimizer step; kept in memory until ``write``."""
        parts = {part: round(ledger.parts[part], 9) for part in PARTS}
        self._writer.write({"event": "step", **facts, "duration_s": round(ledger.duration_s, 9), "ledger": parts})

    def evaluation(self, facts: dict[str, Any]) -> None:
        """One evaluation."""
        self._show({"event": "eval", **facts})

    def write(self) -> None:
        """Hand everything to the operating system; only while the clock stands still."""
        self._writer.flush()

    def sync(self) -> None:
        """Hand everything to the disk."""
        self._writer.sync()

    def end(self, facts: dict[str, Any]) -> None:
        """The last event: on disk when this returns. It is what makes a trial count as ended."""
        event = {"event": "end", **facts}
        self._writer.write(event)
        self._writer.sync()
        self._channel.send(event)

    def error(self, error: BaseException, message: str | None = None) -> None:
        """Why this rank gives up. The parent comes first: it may be the disk that is full."""
        self._channel.send(error_event(error, message))
        self._writer.write(error_event(error, message))
        self._writer.sync()

    def _show(self, event: dict[str, Any]) -> None:
        self._writer.write(event)
        self._channel.send(event)
