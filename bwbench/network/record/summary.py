"""What a recording came to, and the files that it leaves: traces in the ``wifi`` format with remarks on top."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bwbench.base.errors import ConfigError
from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.network.record.record_session import MAX_SECONDS

Direction = Literal["up", "down", "both"]
DIRECTIONS = ("up", "down", "both")
OnSecond = Callable[[str, int, float], None]
"""Called as each second is over: direction, number of the second from 0 on, goodput in bit/s."""


@dataclass(frozen=True)
class Recorded:
    """One direction.

    Attributes:
        direction: ``up`` from this host to the other one, ``down`` from there to here.
        path: the trace file.
        goodput_bps: TCP goodput of each second.
    """

    direction: str
    path: Path
    goodput_bps: tuple[float, ...]

    @property
    def mean_bps(self) -> float:
        """Mean goodput."""
        return statistics.fmean(self.goodput_bps)

    @property
    def coefficient_of_variation(self) -> float:
        """Standard deviation over mean of the seconds; 0 where nothing came through."""
        return statistics.pstdev(self.goodput_bps) / self.mean_bps if self.mean_bps else 0.0


@dataclass(frozen=True)
class RecordSummary:
    """All that was measured.

    Attributes:
        to: the other side, as host:port.
        recorded: the directions, in the order in which they were measured, one after the other.
        idle_rtt_s: round trips of small messages before any load.
        loaded_rtt_s: the same during the load; what they have more is the queue on the way.
        congestion_control: of this host's TCP.
    """

    to: str
    recorded: tuple[Recorded, ...]
    idle_rtt_s: tuple[float, ...] = ()
    loaded_rtt_s: tuple[float, ...] = ()
    congestion_control: str = ""

    def link(self) -> dict[str, object]:
        """Keys of a link that behaves like this: the traces, and half of the idle round trip as its latency."""
        traces = {one.direction: {"file": str(one.path)} for one in self.recorded}
        link: dict[str, object] = {"trace": traces}
        if len(self.recorded) == 1:
            link["trace"] = {"file": str(self.recorded[0].path)}
        if self.idle_rtt_s:
            link["latency"] = DURATION.format(round(statistics.median(self.idle_rtt_s) / 2, 6))
        return link


def rtt_words(samples_s: Sequence[float]) -> str:
    """``median 2.1 ms, 95 % below 4 ms (20 samples)``, or that there is none."""
    if not samples_s:
        return "not measured"
    ordered = sorted(samples_s)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    middle_ms, high_ms = statistics.median(ordered) * 1e3, high * 1e3
    return f"median {middle_ms:.3g} ms, 95 % below {high_ms:.3g} ms ({len(ordered)} samples)"


def whole_seconds(duration_s: float) -> int:
    """The seconds of a recording; raises ConfigError where they are not whole, none, or more than a day."""
    if not (1 <= duration_s <= MAX_SECONDS and duration_s == int(duration_s)):
        raise ConfigError(f"duration: {duration_s:g} s is out of range: whole seconds, 1 to {MAX_SECONDS}")
    return int(duration_s)


def trace_paths(out_path: Path, direction: str) -> dict[str, Path]:
    """File of each direction: ``out_path``, or for both ``home.up.tsv`` and ``home.down.tsv``.

    Raises:
        ConfigError: the direction is unknown, the folder is not there, or a file is there already.
    """
    if direction not in DIRECTIONS:
        raise ConfigError(f"direction: {direction!r} is not allowed; allowed: {', '.join(DIRECTIONS)}")
    if direction == "both":
        paths = {one: out_path.with_name(f"{out_path.stem}.{one}{out_path.suffix}") for one in ("down", "up")}
    else:
        paths = {direction: out_path}
    for path in paths.values():
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}; make it first")
        if path.exists():
            raise ConfigError(f"{path} is there already; name another file, a recording is never overwritten")
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"{path}: no right to write in {path.parent}; name a file elsewhere")
    return paths


def write_trace(summary: RecordSummary, started: str, how: str) -> None:
    """The file of what was recorded last: ``seconds<TAB>Mbit/s`` lines behind ``# key: value`` lines.

    It is complete or not there. Raises ConfigError.

    Args:
        started: when.
        how: by what, or how much of it.
    """
    last = summary.recorded[-1]
    sense = "from this host to the other" if last.direction == "up" else "from the other host to this one"
    remarks = {
        "recorded": f"{started} by bwbench link record, {how}",
        "direction": f"{last.direction} ({sense}: {summary.to})",
        "measures": f"TCP goodput of each second, {summary.congestion_control or 'unknown congestion control'}",
        "mean": BANDWIDTH.show(last.mean_bps, 4),
        "idle round trip": rtt_words(summary.idle_rtt_s),
        "round trip under load": rtt_words(summary.loaded_rtt_s),
    }
    lines = [f"# {key}: {value}\n" for key, value in remarks.items()]
    lines += [f"{second}.0\t{value / 1e6:.6g}\n" for second, value in enumerate(last.goodput_bps)]
    path = last.path
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text("".join(lines))
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
