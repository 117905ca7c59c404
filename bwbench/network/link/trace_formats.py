"""The formats of traces: rates by the second (``wifi``), packets by the millisecond (mahimahi), and columns (CSV).

Of a CSV file the header or the declaration says which column is the time, which the rate, and in which units.

What is between the time stamps of a trace is decided here, for all of them. A line counts from its stamp to the next
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
from bwbench.base.explain import nearest

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
    note = f"{len(silent_s)} gap(s) without a measurement, {sum(silent_s):g} s in all, count as outages"
    return Parsed(edges_s, rates, (note,) if silent_s else ())


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


FASTEST_BPS = 1e12  # as of a link's rate
_TIME_UNITS = {
    1.0: ("s", "sec", "secs", "second", "seconds"),
    1e-3: ("ms", "msec", "millisecond", "milliseconds"),
    1e-6: ("us", "usec", "microsecond", "microseconds"),
    60.0: ("min", "minute", "minutes"),
}
_SECONDS = {name: factor for factor, names in _TIME_UNITS.items() for name in names}
_TIME_WORDS = {"time", "t", "timestamp", "elapsed", "at", "in", "start", "since", "unix", "epoch"}
# Mbit/s, mbit_s, Mbps, kb/s, bits_per_second; B, as in MB/s and KBps, is bytes. MBPS could be either.
_RATE = re.compile(
    r"(?<![A-Za-z])(?P<prefix>(?i:kilo|mega|giga)|[kKmMgG]?)(?P<what>(?i:bits?)|(?i:bytes?)|b|B)"
    r"(?:/s|/sec|/second|ps|[ _]?(?i:per[ _]?s(?:ec|econd)?)|_s)(?![A-Za-z])"
)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "kilo": 1e3, "mega": 1e6, "giga": 1e9}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of timeInSeconds and BytesPerSecond
_EXAMPLE = "name the columns with their units in the first line, such as 'time_s,rate_mbit_s'"


def parse_csv(
    text: str, file: str, column: str | None = None, unit: str | None = None, columns: str | None = None
) -> Parsed:
    """Rates in bit/s of a file whose columns have names; stamps must rise.

    Args:
        text: the file's content; columns are parted by comma, semicolon or tab.
        file: the name for messages.
        column: of the rate; None takes the only one that can be it.
        unit: of the rate; None takes what its name says.
        columns: their names, instead of a header, which is passed over where there is one; None takes the header's.

    Raises:
        ConfigError: with the line, the value and what is allowed.
    """
    lines = list(content_lines(text))
    header_line, first = lines[0] if lines else (1, "")
    delimiter = delimiter_of(first)
    has_header = not any(map(_NUMBER.fullmatch, fields_of(first, delimiter)))
    if columns is None and not has_header:
        text = f"{first[:60]!r} names no columns: say what they are, such as columns: 'time_s,bytes_per_s' (--columns)"
        raise ConfigError(Problem(text, file, header_line))
    header = first if columns is None else columns
    names = fields_of(header, delimiter_of(header))
    if not all(names):
        text = f"column {names.index('') + 1} of {header[:60]!r} has no name; {_EXAMPLE}"
        raise ConfigError(Problem(text, file, header_line))
    if len(names) < 2:
        raise ConfigError(Problem(f"{header[:60]!r} does not name two columns or more; {_EXAMPLE}", file, header_line))
    time_index, to_seconds = time_column(names, file, header_line)
    rate_index, to_bps = _rate_column(names, time_index, column, unit, file, header_line)
    stamps_s, rates_bps = list[float](), list[float]()
    for number, line in lines[1:] if has_header else lines:
        values = fields_of(line, delimiter)
        if len(values) != len(names):
            raise ConfigError(Problem(f"{len(values)} column(s), {len(names)} have a name", file, number))
        stamp_s = to_seconds * read_number(values[time_index], names[time_index], file, number)
        if stamps_s and stamp_s <= stamps_s[-1]:
            shown = f"{names[time_index]} {values[time_index]}"
            raise ConfigError(Problem(f"{shown} does not rise above the line before; stamps must rise", file, number))
        stamps_s.append(stamp_s)
        high = FASTEST_BPS / to_bps
        rates_bps.append(to_bps * read_number(values[rate_index], names[rate_index], file, number, high))
    if not stamps_s:
        raise ConfigError(Problem("has names of columns and no values; a trace needs at least one line of them", file))
    return hold(stamps_s, rates_bps)


def delimiter_of(line: str) -> str:
    """What parts the columns of a line: semicolon, tab or comma."""
    return next((mark for mark in ";\t," if mark in line), ",")


def fields_of(line: str, delimiter: str) -> list[str]:
    """The columns of a line, without blanks and quotes around them."""
    return [field.strip().strip('"').strip() for field in line.split(delimiter)]


def words_of(name: str) -> list[str]:
    """The words in a column's name: time, in, seconds of timeInSeconds."""
    return re.findall(r"[a-z]+", _HUMP.sub(" ", name).lower())


def seconds_of(name: str) -> float | None:
    """Seconds in one of the unit of time that a column's name says; None where it says none, or several."""
    units = [_SECONDS[word] for word in words_of(name) if word in _SECONDS]
    return units[0] if len(units) == 1 else None


def time_column(names: list[str], file: str, line: int, example: str = _EXAMPLE) -> tuple[int, float]:
    """Which column is the time, and how many seconds one of its units has.

    Raises ConfigError where none is; ``example`` shows a header.
    """
    without_unit = None
    for index, name in enumerate(names):
        words = words_of(name)
        if not words or any(word not in _TIME_WORDS and word not in _SECONDS for word in words):
            continue
        if (seconds := seconds_of(name)) is not None:
            return index, seconds
        without_unit = without_unit or name
    if without_unit is not None:
        text = f"column {without_unit!r} does not say its unit; name it 'time_s' or 'time_ms'"
    else:
        text = f"no column is a time (here: {', '.join(names)}); {example}"
    raise ConfigError(Problem(text, file, line))


def _rate_column(
    names: list[str], time_index: int, column: str | None, unit: str | None, file: str, line: int
) -> tuple[int, float]:
    others = [index for index in range(len(names)) if index != time_index]
    with_unit = [index for index in others if _rate_unit(names[index]) is not None]
    if column is not None:
        candidates = [index for index in others if names[index] == column]
        if not candidates:
            known = ", ".join(names[index] for index in others)
            hint = nearest(column, names)
            raise ConfigError(Problem(f"no column {column!r}.{hint} Columns of rates: {known}", file, line))
    else:
        candidates = with_unit or (others if unit is not None else [])
    if not candidates:
        known = ", ".join(names[index] for index in others)
        text = f"no column says its unit of rate (here: {known}); name it like 'rate_mbit_s', or give 'unit: Mbit/s'"
        raise ConfigError(Problem(text, file, line))
    if len(candidates) > 1:
        known = ", ".join(names[index] for index in candidates)
        raise ConfigError(Problem(f"more than one column may be the rate: {known}; choose with 'column:'", file, line))
    name = names[candidates[0]]
    said, asked = _rate_unit(name), None if unit is None else _rate_unit(unit)
    if said is not None and asked is not None and said != asked:
        text = f"column {name!r} names another unit than 'unit: {unit}'; leave 'unit' out"
        raise ConfigError(Problem(text, file, line))
    factor = said or asked
    if factor is None:
        text = f"column {name!r} does not say its unit; give 'unit: Mbit/s' (or bit/s, kbit/s, Gbit/s, B/s, kB/s, MB/s)"
        raise ConfigError(Problem(text, file, line))
    return candidates[0], factor


def _rate_unit(name: str) -> float | None:
    """Bits per second in one of what a column's name says; None where it says no unit."""
    match = _RATE.search(name) or _RATE.search(_HUMP.sub(" ", name))
    if match is None:
        return None
    bits = 8.0 if match["what"] == "B" or match["what"].lower().startswith("byte") else 1.0
    return _PREFIXES[match["prefix"].lower()] * bits
