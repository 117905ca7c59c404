"""A link with its traces looked at: absolute paths, checksums and mean rates, so that it means the same for ever."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError
from bwbench.network.link.link import Link
from bwbench.network.link.trace import Trace
from bwbench.network.link.trace_file import read_trace


def freeze_link(link: Link, folder: Path) -> Link:
    """The link with every trace, of overrides too, absolute against ``folder``, its checksum and mean filled in.

    Args:
        link: as asked; one without traces comes back as it is.
        folder: where the file that names the traces lies.

    Raises:
        ConfigError: for all trace files that cannot be read, are malformed, or are not those that were planned before.
    """
    traces = [link.trace, *(override.trace for override in link.overrides.values())]
    if not any(trace is not None for trace in traces):
        return link
    content = link.model_dump(by_alias=True)
    problems: list[ConfigError] = []
    sections = [content, *content["overrides"].values()]
    for section, trace in zip(sections, traces, strict=True):
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
    traces = [link.trace, *(override.trace for override in link.overrides.values())]
    declared = [trace for both in traces if both is not None for trace in (both.up, both.down) if trace is not None]
    return list(
        dict.fromkeys(f"{Path(trace.file).name}: {note}" for trace in declared for note in read_trace(trace).notes)
    )


def _frozen(trace: Trace | None, folder: Path, problems: list[ConfigError]) -> dict[str, Any] | None:
    if trace is None:
        return None
    path = os.path.abspath(folder / Path(trace.file).expanduser())
    absolute = trace.model_copy(update={"file": path})
    try:
        found = read_trace(absolute)
    except ConfigError as error:
        problems.append(error)
        return None
    known = {"sha256": found.sha256, "mean_bps": found.rates.mean_bps}
    return absolute.model_copy(update=known).model_dump(by_alias=True)
