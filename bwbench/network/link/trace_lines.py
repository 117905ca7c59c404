"""The two formats of traces without a header: rates by the second (``wifi``) and packets by the millisecond (mahimahi).

What is between the time stamps of a trace is decided here, for CSV files too. A line counts from its stamp to the next
one. A stamp that is missing or late (up to 2.5 usual intervals) leaves the rate as it was; a longer silence counts as
an outage after one interval, because tools that log received bytes fall silent when nothing arrives. The last line
lasts one usual interval (the median).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from bwbench.base.errors import ConfigError, Problem

MAX_MBIT_S = 1e6  # 1 Tbit/s, as of a link's rate
LONGEST_HELD = 2.5  # usual intervals; one line missing, and the next one late
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


class Parsed(NamedTuple):
    """Rates between edges, in the unit of what the file measures (bit/s), and what was decided on the way."""

    edges_s: list[float]
    rates_bps: list[float]
    notes: tuple[str, ...] = ()


def content_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is neither blank nor a comment (``#``)."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield number, line


def read_number(text: str, what: str, file: str, line: int, high: float = math.inf, unit: str = "") -> float:
    """A finite number from 0 to ``high``; raises ConfigError that names the place, the value and what is allowed."""
    if not _NUMBER.fullmatch(text):
        if not text:
            reason = "leave the line out where nothing was measured"
        elif _NOT_FINITE.fullmatch(text):
            reason = "write a finite number, or leave the line out where nothing was measured"
        elif re.fullmatch(r"[-+]?\d+,\d+", text):
            reason = f"write a point before the decimals: {text.replace(',', '.')}"
        else:
            reason = "write it like 12.5"
        raise ConfigError(Problem(f"{what} {text[:40]!r} is not a number; {reason}", file, line))
    value = float(text)
    if not 0 <= value <= high or math.isinf(value):
        bounds = f"0 to {high:.15g} {unit}".rstrip() if math.isfinite(high) else "a finite number, 0 or more"
        raise ConfigError(Problem(f"{what} {text[:40]} is out of range: {bounds}", file, line))
    return value


def parse_wifi(text: str, file: str) -> Parsed:
    """``seconds<TAB>Mbit/s`` in each line. Where the stamps do not always rise, a line is one interval."""
    stamps_s, rates_bps = [], []
    for number, line in content_lines(text):
        fields = line.split()
        if len(fields) != 2:
            shown = repr(line[:60])
            raise ConfigError(Problem(f"{shown} is not 'seconds<TAB>Mbit/s': two numbers a line", file, number))
        stamps_s.append(read_number(fields[0], "time", file, number))
        rates_bps.append(1e6 * read_number(fields[1], "rate", file, number, MAX_MBIT_S, "Mbit/s"))
    if not stamps_s:
        raise ConfigError(Problem("holds comments only; a trace needs lines 'seconds<TAB>Mbit/s'", file))
    steps_s = [after - before for before, after in pairwise(stamps_s)]
    if all(step_s > 0 for step_s in steps_s):
        return hold(stamps_s, rates_bps)
    usual_s = median([step_s for step_s in steps_s if step_s > 0] or [1.0])
    edges_s = [index * usual_s for index in range(len(rates_bps) + 1)]
    return Parsed(edges_s, rates_bps, (f"time stamps do not always rise: each line counts as {usual_s:g} s",))


def hold(stamps_s: Sequence[float], rates_bps: Sequence[float]) -> Parsed:
    """Rates from rising stamps on, the first of which is time 0; long silences are outages (see above)."""
    steps_s = [after - before for before, after in pairwise(stamps_s)]
    usual_s = median(steps_s) if steps_s else 1.0
    edges_s, rates, silent_s = [0.0], [], []
    for stamp_s, rate_bps, step_s in zip(stamps_s, rates_bps, [*steps_s, usual_s], strict=True):
        since_s = stamp_s - stamps_s[0]
        if step_s > LONGEST_HELD * usual_s:
            silent_s.append(step_s - usual_s)
            edges_s.append(since_s + usual_s)
            rates.append(rate_bps)
            rate_bps = 0.0
        edges_s.append(since_s + step_s)
        rates.append(rate_bps)
    notes = ()
    if silent_s:
        text = f"{len(silent_s)} gap(s) without a measurement, {sum(silent_s):g} s in all, count as outages"
        return Parsed(edges_s, rates, (text,))
    return Parsed(edges_s, rates, notes)


def parse_mahimahi(text: str, file: str, packet_bytes: int) -> Parsed:
    """One millisecond in each line at which one packet may leave; the last stamp is the length, then it repeats.

    A packet that may leave at millisecond ``m`` is sent from ``m - 1`` to ``m``, so that a queue that never runs empty
    leaves at the file's own stamps.
    """
    stamps_ms = _milliseconds(text, file)
    length_ms = stamps_ms[-1]
    if length_ms == 0:
        raise ConfigError(Problem("all packets leave at 0 ms; the last stamp is the length of the trace", file))
    counts = {stamp_ms: len(list(same)) for stamp_ms, same in groupby(stamps_ms)}
    counts[length_ms] += counts.pop(0, 0)  # 0 of a round is the end of the one before
    edges_ms, rates_bps = [0], list[float]()

    def extend(to_ms: int, rate_bps: float) -> None:
        if rates_bps and rates_bps[-1] == rate_bps:
            edges_ms[-1] = to_ms
        else:
            edges_ms.append(to_ms)
            rates_bps.append(rate_bps)

    for stamp_ms, count in counts.items():
        if stamp_ms - 1 > edges_ms[-1]:
            extend(stamp_ms - 1, 0.0)
        extend(stamp_ms, count * packet_bytes * 8 * 1000.0)
    return Parsed([edge_ms / 1000 for edge_ms in edges_ms], rates_bps)


def _milliseconds(text: str, file: str) -> list[int]:
    try:
        stamps_ms = [] if "_" in text or "+" in text else list(map(int, text.split()))
    except ValueError:
        stamps_ms = []
    in_order = bool(stamps_ms) and stamps_ms[0] >= 0 and all(after >= before for before, after in pairwise(stamps_ms))
    if in_order and stamps_ms[-1] < 10**15 and len(stamps_ms) == len(text.strip().split("\n")):
        return stamps_ms
    stamps_ms = []  # comments, blank lines, or something wrong: line by line, to say where
    for number, line in content_lines(text):
        if not (line.isascii() and line.isdecimal() and len(line) <= 15):
            shown = repr(line[:40])
            raise ConfigError(Problem(f"{shown} is not a whole number of milliseconds; one a line", file, number))
        if stamps_ms and int(line) < stamps_ms[-1]:
            raise ConfigError(Problem(f"{line} ms is before {stamps_ms[-1]} ms; stamps never fall", file, number))
        stamps_ms.append(int(line))
    if not stamps_ms:
        raise ConfigError(Problem("holds comments only; a trace needs a millisecond in each line", file))
    return stamps_ms
