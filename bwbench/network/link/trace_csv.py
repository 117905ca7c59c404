"""CSV traces: which column is the time, which the rate, and in which units; the header or the declaration says so."""

from __future__ import annotations

import difflib
import re

from bwbench.base.errors import ConfigError, Problem
from bwbench.network.link.trace_lines import Parsed, content_lines, hold, read_number

FASTEST_BPS = 1e12  # as of a link's rate
_TIME_UNITS = {
    1.0: ("s", "sec", "secs", "second", "seconds"),
    1e-3: ("ms", "msec", "millisecond", "milliseconds"),
    1e-6: ("us", "usec", "microsecond", "microseconds"),
    60.0: ("min", "minute", "minutes"),
}
_SECONDS = {name: factor for factor, names in _TIME_UNITS.items() for name in names}
_TIME_WORDS = {"time", "t", "timestamp", "elapsed", "at", "start", "since", "unix", "epoch"}
# Mbit/s, mbit_s, Mbps, kb/s, bits_per_second; B, as in MB/s and KBps, is bytes. MBPS could be either.
_RATE = re.compile(
    r"(?<![A-Za-z])(?P<prefix>[kKmMgG]?)(?P<what>(?i:bits?)|(?i:bytes?)|b|B)"
    r"(?:/s|/sec|/second|ps|[ _]?per[ _]?s(?:ec|econd)?|_s)(?![A-Za-z])"
)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_EXAMPLE = "name the columns with their units in the first line, such as 'time_s,rate_mbit_s'"


def parse_csv(text: str, file: str, column: str | None, unit: str | None) -> Parsed:
    """Rates in bit/s of a file with a header line; stamps must rise.

    Args:
        text: the file's content; columns are parted by comma, semicolon or tab.
        file: the name for messages.
        column: of the rate; None takes the only one that can be it.
        unit: of the rate; None takes what the header says.

    Raises:
        ConfigError: with the line, the value and what is allowed.
    """
    lines = content_lines(text)
    header_line, header = next(lines, (1, ""))
    delimiter = next((mark for mark in ";\t," if mark in header), ",")
    names = _fields(header, delimiter)
    if len(names) < 2 or not any(re.search("[A-Za-z]", name) for name in names):
        raise ConfigError(Problem(f"{header[:60]!r} is no header; {_EXAMPLE}", file, header_line))
    if not all(names):
        text = f"column {names.index('') + 1} of {header[:60]!r} has no name; {_EXAMPLE}"
        raise ConfigError(Problem(text, file, header_line))
    time_index, to_seconds = _time_column(names, file, header_line)
    rate_index, to_bps = _rate_column(names, time_index, column, unit, file, header_line)
    stamps_s, rates_bps = list[float](), list[float]()
    for number, line in lines:
        values = _fields(line, delimiter)
        if len(values) != len(names):
            raise ConfigError(Problem(f"{len(values)} column(s), the header names {len(names)}", file, number))
        stamp_s = to_seconds * read_number(values[time_index], names[time_index], file, number)
        if stamps_s and stamp_s <= stamps_s[-1]:
            shown = f"{names[time_index]} {values[time_index]}"
            raise ConfigError(Problem(f"{shown} does not rise above the line before; stamps must rise", file, number))
        stamps_s.append(stamp_s)
        high = FASTEST_BPS / to_bps
        rates_bps.append(to_bps * read_number(values[rate_index], names[rate_index], file, number, high))
    if not stamps_s:
        raise ConfigError(Problem("has a header and no values; a trace needs at least one line of them", file))
    return hold(stamps_s, rates_bps)


def _fields(line: str, delimiter: str) -> list[str]:
    return [field.strip().strip('"').strip() for field in line.split(delimiter)]


def _time_column(names: list[str], file: str, line: int) -> tuple[int, float]:
    without_unit = None
    for index, name in enumerate(names):
        words = re.findall(r"[a-z]+", name.lower())
        units = [word for word in words if word in _SECONDS]
        if not words or any(word not in _TIME_WORDS and word not in _SECONDS for word in words):
            continue
        if len(units) == 1:
            return index, _SECONDS[units[0]]
        without_unit = without_unit or name
    if without_unit is not None:
        text = f"column {without_unit!r} does not say its unit; name it 'time_s' or 'time_ms'"
    else:
        text = f"no column is a time (here: {', '.join(names)}); {_EXAMPLE}"
    raise ConfigError(Problem(text, file, line))


def _rate_column(
    names: list[str], time_index: int, column: str | None, unit: str | None, file: str, line: int
) -> tuple[int, float]:
    others = [index for index in range(len(names)) if index != time_index]
    with_unit = [index for index in others if _rate_unit(names[index]) is not None]
    if column is not None:
        candidates = [index for index in others if names[index] == column]
        if not candidates:
            near = difflib.get_close_matches(column, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            known = ", ".join(names[index] for index in others)
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
    match = _RATE.search(name)
    if match is None:
        return None
    bits = 8.0 if match["what"] == "B" or match["what"].lower().startswith("byte") else 1.0
    return _PREFIXES[match["prefix"].lower()] * bits
