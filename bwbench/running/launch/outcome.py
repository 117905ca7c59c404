"""How a group of workers ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["done", "failed", "timeout", "diverged", "invalid", "interrupted"]
LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class WireTraffic:
    """What crossed the data network between the starting barrier and the drain after the last step.

    Where training has gone on from a checkpoint: what had crossed it up to there, and what crossed it from there on.
    """

    bytes: int
    ack_bytes: int | None
    frames: int
    ack_frames: int | None
    drops: int

    def plus(self, other: WireTraffic) -> WireTraffic:
        """The sum of both."""
        return WireTraffic(
            self.bytes + other.bytes,
            None if self.ack_bytes is None or other.ack_bytes is None else self.ack_bytes + other.ack_bytes,
            self.frames + other.frames,
            None if self.ack_frames is None or other.ack_frames is None else self.ack_frames + other.ack_frames,
            self.drops + other.drops,
        )


@dataclass(frozen=True)
class LaunchOutcome:
    """Status of the group with the reason, the ranks' end events, and the traffic counted where shaping happens.

    Attributes:
        lateness: of the emulator between the same two moments, see ``network/namespaces/backend.py``.
    """

    status: Status
    reason: str
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    wire: WireTraffic | None = None
    lateness: dict[str, Any] | None = None


def describe_exit(returncode: int) -> str:
    """Words for an exit status: ``was killed by SIGKILL`` or ``exited with status 1``."""
    if returncode < 0:
        try:
            return f"was killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"was killed by signal {-returncode}"
    return f"exited with status {returncode}"


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a rank's log; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16384))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])
