"""How a group of workers ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path

from bwbench.records.schema import End, Ending, JsonObject, WireTraffic

LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class LaunchOutcome:
    """Status of the group with the reason, the ranks' end events, and the traffic counted where shaping happens.

    Attributes:
        lateness: of the emulator between the same two moments, see ``network/lateness.py``.
    """

    status: Ending
    reason: str
    ends: dict[int, End] = field(default_factory=dict)
    wire: WireTraffic | None = None
    lateness: JsonObject | None = None


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
