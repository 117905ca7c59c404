"""Trace files: read, checked, turned into the rate of whole Ethernet frames over time, and frozen into a link."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import BANDWIDTH
from bwbench.network.link.data_file import FileKind, absolute_path, file_version, text_of
from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES
from bwbench.network.link.link import Link
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.link.sites import freeze_paths
from bwbench.network.link.trace_formats import Parsed, content_lines, parse_csv, parse_mahimahi, parse_wifi
from bwbench.network.link.variation import Measures, Trace

MAX_BYTES = 32 * 1024 * 1024  # four hours of packets at 4 Mbit/s; anything larger is no trace
MAX_DURATION_S = 31 * 86_400.0  # later than that, the unit of the time was taken for another
SLOWEST_MEAN_BPS, FASTEST_BPS = 1e3, 1e12  # as of a link's rate
MAHIMAHI_PACKET_BYTES = 1500  # "one packet" of the format: full IP packets
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_WIFI = re.compile(rf"\s*{_NUMBER}\s+\S+\s*")
_FORMATS = (
    "'seconds<TAB>Mbit/s' in each line (wifi), one millisecond in each (mahimahi), "
    "or names of columns in the first and values in the others (csv)"
)
_MEASURE_ONE = "Name one that is there, or measure one: 'bwbench link record'"
TRACE = FileKind("trace", _FORMATS, MAX_BYTES, _MEASURE_ONE, "cut a piece out of it")


@dataclass(frozen=True)
class TraceFile:
    """What a file turned out to hold.

    Attributes:
        rates: bit/s of Ethernet frames, from the start of the file.
        sha256: of the file as it lies on the disk.
        format, measures: as given, or as found.
        notes: what was decided where the file leaves something open, such as gaps.
    """

    rates: RateTrace
    sha256: str
    format: str
    measures: Measures
    notes: tuple[str, ...]


def load_trace(trace: Trace) -> RateTrace:
    """The rate over time that ``trace`` declares, in bit/s of Ethernet frames, begun at its ``start``, and dilated.

    Raises:
        ConfigError: the file cannot be read, is malformed (file, line, value), or is not the one whose ``sha256`` the
            declaration holds.
    """
    rates = read_trace(trace).rates
    return (rates if trace.dilation == 1 else rates.dilated(trace.dilation)).shifted(trace.start_s)


def read_trace(trace: Trace) -> TraceFile:
    """The file behind ``trace``, without regard to ``start``; raises ConfigError like ``load_trace``."""
    path = os.path.expanduser(trace.file)
    version = file_version(path, trace.file, TRACE)
    found = _read(path, version, trace.model_copy(update={"start_s": 0.0, "sha256": None, "mean_bps": None}))
    check_planned(trace.file, trace.sha256, found.sha256)
    return found


def check_planned(shown: str, planned_sha256: str | None, found_sha256: str) -> None:
    """Raises ConfigError where a trace file is no longer what it was when its experiment was planned."""
    if planned_sha256 is not None and planned_sha256 != found_sha256:
        raise ConfigError(
            f"trace {shown} has changed since it was planned (sha256 {planned_sha256[:12]}… then, "
            f"{found_sha256[:12]}… now); put the old file back, or plan anew"
        )


@lru_cache(maxsize=32)  # every cell of an experiment asks for the same few files
def _read(path: str, version: tuple[int, ...], trace: Trace) -> TraceFile:
    shown, measures = trace.file, trace.measures
    text, sha256 = text_of(path, shown, TRACE)
    kind = _detect(text, shown) if trace.format == "auto" else trace.format
    if kind == "csv":
        if measures is None:
            allowed = "'measures: link' (whole frames) or 'measures: tcp-goodput' (what TCP made of it)"
            raise ConfigError(Problem(f"a CSV trace has to say what it measures: {allowed}", shown))
    elif key := next((key for key in ("column", "unit", "columns") if getattr(trace, key) is not None), None):
        raise ConfigError(Problem(f"'{key}' belongs to CSV traces; this one is {kind}: leave it out", shown))
    if kind == "wifi":
        measures = measures or "tcp-goodput"
        parsed = parse_wifi(text, shown)
    elif kind == "mahimahi":
        measures = measures or "link"
        packet_bytes = ETHERNET_FRAME_BYTES if measures == "link" else MAHIMAHI_PACKET_BYTES
        parsed = parse_mahimahi(text, shown, packet_bytes)
    else:
        assert measures is not None
        parsed = parse_csv(text, shown, trace.column, trace.unit, trace.columns)
    scale = ETHERNET_FRAME_BYTES / TCP_PAYLOAD_BYTES if measures == "tcp-goodput" else 1.0
    rates = _checked(parsed, scale, shown)
    return TraceFile(rates, sha256, kind, measures, parsed.notes)


def _checked(parsed: Parsed, scale: float, shown: str) -> RateTrace:
    if not any(parsed.rates_bps):
        raise ConfigError(Problem("nothing ever gets through: every rate is 0", shown))
    if parsed.edges_s[-1] > MAX_DURATION_S:
        days = parsed.edges_s[-1] / 86_400
        raise ConfigError(Problem(f"lasts {days:.4g} days, at most 31; is the unit of the time right?", shown))
    rates = RateTrace(parsed.edges_s, [rate * scale for rate in parsed.rates_bps])
    if rates.mean_bps < SLOWEST_MEAN_BPS or rates.max_bps > FASTEST_BPS:
        what = f"carries {BANDWIDTH.show(rates.mean_bps, 3)} on average"
        raise ConfigError(Problem(f"{what}; a link has 1 kbit/s to 1 Tbit/s: is the unit of the rate right?", shown))
    return rates


def _detect(text: str, shown: str) -> str:
    """The format by the first line that says something."""
    number, line = next(content_lines(text), (1, ""))
    if line.isdecimal():
        return "mahimahi"
    if _WIFI.fullmatch(line):
        return "wifi"
    if re.search(r"[,;\t]", line):
        return "csv"
    raise ConfigError(Problem(f"{line[:60]!r} begins no trace that is known here: {_FORMATS}", shown, number))


def with_paths_read(link: Link, folder: Path) -> Link:
    """The link with the paths between its sites in it, where it names a file of them; raises ConfigError as that."""
    if link.paths is None or link.paths.file is None:
        return link
    paths = freeze_paths(link.paths, link.sites, folder)
    return Link.model_validate({**link.model_dump(by_alias=True), "paths": paths})


def freeze_link(link: Link, folder: Path) -> Link:
    """The link with the paths of its file in it, and with every trace, of overrides too, absolute against ``folder``,
    its checksum and mean filled in.

    Args:
        link: as asked; one that names no file comes back as it is.
        folder: where the file that names the traces lies.

    Raises:
        ConfigError: for paths, or for all trace files, that cannot be read, are malformed, or are not those that were
            planned before.
    """
    link = with_paths_read(link, folder)
    if not any(link.traces):
        return link
    content = link.model_dump(by_alias=True)
    problems: list[ConfigError] = []
    sections = [content, *content["overrides"].values()]
    for section, trace in zip(sections, link.traces, strict=True):
        if trace is not None:
            section["trace"] = {
                direction: _frozen(declared, folder, problems)
                for direction, declared in (("up", trace.up), ("down", trace.down))
            }
    if problems:
        found = [problem for error in problems for problem in error.problems]
        raise ConfigError(list(dict.fromkeys(found)))  # one file may drive both directions
    return Link.model_validate(content)


def trace_notes(link: Link) -> list[str]:
    """How gaps and odd time stamps of the link's traces were read, each once, with the name of the file."""
    declared = [trace for both in link.traces if both is not None for trace in (both.up, both.down) if trace]
    notes = (f"{Path(trace.file).name}: {note}" for trace in declared for note in read_trace(trace).notes)
    return list(dict.fromkeys(notes))


def _frozen(trace: Trace | None, folder: Path, problems: list[ConfigError]) -> JsonObject | None:
    if trace is None:
        return None
    path = absolute_path(trace.file, folder)
    absolute = trace.model_copy(update={"file": path})
    try:
        found = read_trace(absolute)
    except ConfigError as error:
        problems.append(error)
        return None
    known = {"sha256": found.sha256, "mean_bps": found.rates.mean_bps}
    return absolute.model_copy(update=known).model_dump(by_alias=True)
