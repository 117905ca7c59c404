"""Traces of step times: a device that gets hot and slow, measured once and played in every training.

A CSV file with a header: seconds of training, and the time that a step takes from then on. It is stepwise: a line
counts from its stamp to the next one, and a step follows the line in which it begins. The first stamp is the start of
the training. The last line holds to the end of the training, since a device that is hot stays hot.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.step_time import SteadyStepTime, StepTimeTrace
from bwbench.experiment.config.cell_config import CellConfig, ComputeConfig
from bwbench.network.link.data_file import absolute_path, file_version, text_of
from bwbench.network.link.trace_file import MAX_DURATION_S, TRACE, check_planned
from bwbench.network.link.trace_formats import (
    content_lines,
    delimiter_of,
    fields_of,
    read_number,
    seconds_of,
    time_column,
)

LONGEST_STEP_S = 86_400.0
_EXAMPLE = "name the columns with their units in the first line: 'time_s,step_time_ms'"
_FORM = f"seconds of training and step times in columns (CSV): {_EXAMPLE}"
_KIND = replace(TRACE, forms=_FORM)


@dataclass(frozen=True)
class StepTimeCurve:
    """Step times over the seconds of training.

    Attributes:
        stamps_s: from when on each holds, rising from 0.
        step_times_s: as many.
        sha256: of the file.
    """

    stamps_s: tuple[float, ...]
    step_times_s: tuple[float, ...]
    sha256: str

    def at_s(self, clock_s: float) -> float:
        """What a step takes that begins at this training second."""
        return self.step_times_s[max(0, bisect_right(self.stamps_s, clock_s) - 1)]


def read_step_trace(trace: StepTimeTrace) -> StepTimeCurve:
    """What is in the file. Raises ConfigError where it cannot be read, is malformed, or is not the one of the plan."""
    path = os.path.expanduser(trace.file)
    found = _read(path, file_version(path, trace.file, _KIND), trace.file)
    check_planned(trace.file, trace.sha256, found.sha256)
    return found


@lru_cache(maxsize=32)  # every cell of an experiment asks for the same few files
def _read(path: str, version: tuple[int, ...], shown: str) -> StepTimeCurve:
    text, sha256 = text_of(path, shown, _KIND)
    lines = list(content_lines(text))
    if not lines:
        raise ConfigError(Problem(f"holds comments only; a trace of step times has {_FORM}", shown))
    header_line, header = lines[0]
    delimiter = delimiter_of(header)
    names = fields_of(header, delimiter)
    if len(names) != 2:
        raise ConfigError(Problem(f"{header[:60]!r} does not name two columns; {_EXAMPLE}", shown, header_line))
    time_index, to_seconds = time_column(names, shown, header_line, _EXAMPLE)
    name = names[1 - time_index]
    step_to_seconds = seconds_of(name)
    if step_to_seconds is None:
        raise ConfigError(Problem(f"column {name!r} does not say its unit of time; {_EXAMPLE}", shown, header_line))
    stamps_s, step_times_s = list[float](), list[float]()
    for number, line in lines[1:]:
        values = fields_of(line, delimiter)
        if len(values) != 2:
            raise ConfigError(Problem(f"{len(values)} column(s), 2 have a name", shown, number))
        stamp_s = to_seconds * read_number(values[time_index], names[time_index], shown, number)
        if stamps_s and stamp_s <= stamps_s[-1]:
            what = f"{names[time_index]} {values[time_index]}"
            raise ConfigError(Problem(f"{what} does not rise above the line before; stamps must rise", shown, number))
        step_s = step_to_seconds * read_number(values[1 - time_index], name, shown, number)
        if not 0 < step_s <= LONGEST_STEP_S:
            bounds = "more than 0, at most a day"
            raise ConfigError(Problem(f"{name} {values[1 - time_index]} is out of range: {bounds}", shown, number))
        stamps_s.append(stamp_s)
        step_times_s.append(step_s)
    if not stamps_s:
        raise ConfigError(Problem("has names of columns and no values; a trace needs at least one line", shown))
    if stamps_s[-1] - stamps_s[0] > MAX_DURATION_S:
        raise ConfigError(Problem("lasts more than 31 days; is the unit of the time right?", shown))
    return StepTimeCurve(tuple(stamp_s - stamps_s[0] for stamp_s in stamps_s), tuple(step_times_s), sha256)


def freeze_compute(compute: ComputeConfig, folder: Path) -> ComputeConfig:
    """The same with the file of every trace absolute against ``folder``, and its checksum filled in.

    Raises ConfigError for all files that cannot be read, are malformed, or are not those that were planned before.
    """
    if not any(isinstance(one, StepTimeTrace) for one in compute.declared):
        return compute
    problems: list[ConfigError] = []

    def frozen(declared: SteadyStepTime | StepTimeTrace | None) -> SteadyStepTime | StepTimeTrace | None:
        if not isinstance(declared, StepTimeTrace):
            return declared
        absolute = replace(declared, file=absolute_path(declared.file, folder))
        try:
            return replace(absolute, sha256=read_step_trace(absolute).sha256)
        except ConfigError as error:
            problems.append(error)
            return declared

    overrides = {
        node: own.model_copy(update={"step_time": frozen(own.step_time)}) for node, own in compute.overrides.items()
    }
    found = compute.model_copy(update={"step_time": frozen(compute.step_time), "overrides": overrides})
    if problems:
        raise ConfigError(list(dict.fromkeys(problem for error in problems for problem in error.problems)))
    return found


Asked = Callable[[int, float], float]  # seconds, by the number of a step and the training second in which it begins


def asked_of(config: CellConfig, rank: int) -> Asked | None:
    """What each step of a rank is asked to take; None where no step time is declared.

    Raises ConfigError where the file of a trace is not there, or has changed.
    """
    declared = config.compute.step_time_of(rank)
    if declared is None:
        return None
    if isinstance(declared, StepTimeTrace):
        curve = read_step_trace(declared)
        return lambda step, clock_s: curve.at_s(clock_s)
    return lambda step, clock_s: declared.drawn_s(config.seed, rank, step)


def longest_asked_s(compute: ComputeConfig, steps: int = 1) -> float:
    """So many steps of hardly any node are ever asked to take longer; 0 where no step time is declared."""
    return max((_longest_s(declared, steps) for declared in compute.declared), default=0.0)


HARDLY_EVER = 1e-9  # of the steps


def _longest_s(declared: SteadyStepTime | StepTimeTrace, steps: int) -> float:
    if isinstance(declared, StepTimeTrace):
        return steps * max(read_step_trace(declared).step_times_s)
    return steps * declared.mean_of(steps).quantile_s(1 - HARDLY_EVER)


def steady_stretches(
    times: Sequence[SteadyStepTime | StepTimeTrace],
) -> Iterator[tuple[float, tuple[SteadyStepTime, ...]]]:
    """From which training second on the nodes' step times are which: one stretch where no node follows a trace.

    Raises ConfigError where the file of a trace is not there, or has changed.
    """
    curves = [read_step_trace(one) if isinstance(one, StepTimeTrace) else None for one in times]
    edges = sorted({0.0, *(stamp_s for curve in curves if curve is not None for stamp_s in curve.stamps_s)})
    for edge_s in edges:
        steady = list[SteadyStepTime]()
        for declared, curve in zip(times, curves, strict=True):
            if isinstance(declared, SteadyStepTime):
                steady.append(declared)
            elif curve is not None:
                steady.append(SteadyStepTime(curve.at_s(edge_s)))
        yield edge_s, tuple(steady)
