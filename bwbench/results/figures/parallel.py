"""The album of many cells, drawn by as many processes as there are cores: what is read is read once, before them."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results
from bwbench.results.figures.album import Drawn, draw_album
from bwbench.results.figures.save import FORMATS
from bwbench.results.figures.style import PAGE_IN

MANY_CELLS = 30  # with fewer a second process saves little: a picture takes half a second


@dataclass(frozen=True)
class _Part:
    """What one process draws at a time: figures of one experiment that group its cells alike."""

    results: tuple[Results, ...]
    out: Path
    names: tuple[str, ...]
    width_in: float
    at: tuple[str, ...]
    formats: tuple[str, ...]


def draw_albums(
    results: Sequence[Results],
    out: Path,
    names: Sequence[str] | None = None,
    width_in: float = PAGE_IN,
    at: Sequence[str] = (),
    folders: bool = False,
    formats: Sequence[str] = FORMATS,
    jobs: int | None = None,
) -> Drawn:
    """Draw what ``draw_album`` draws, experiment by experiment, in several processes where there are many cells.

    Args:
        at, formats: see ``draw_album``.
        folders: a folder for each experiment even where there is only one.
        jobs: processes; by default the cores that this one may use, or one where there are few cells.
    """
    by_experiment: dict[str, list[Results]] = {}
    for group in results:
        by_experiment.setdefault(group.experiment, []).append(group)
    several = folders or len(by_experiment) > 1
    parts = [
        _Part(tuple(groups), out / experiment if several else out, tuple(alike), width_in, tuple(at), tuple(formats))
        for experiment, groups in by_experiment.items()
        for alike in _by_grouping(names or FIGURES.names())
    ]
    num_cells = sum(len(group.folders) for group in results)
    jobs = jobs or (len(os.sched_getaffinity(0)) if num_cells >= MANY_CELLS else 1)
    if min(jobs, len(parts)) < 2:
        return _joined(map(_draw, parts))
    for group in results:  # before there are other processes, which then all have it
        _ = group.cells, group.curves, group.ledger
    global _parts
    _parts = parts
    gc.freeze()  # what was read stays: no process looks through it for garbage
    try:
        # An executor and not a Pool, which waits for ever for what a killed process was to draw.
        with ProcessPoolExecutor(min(jobs, len(parts)), mp_context=multiprocessing.get_context("fork")) as pool:
            return _joined(pool.map(_draw_number, range(len(parts))))
    except BrokenProcessPool:
        raise RecordError(
            "a process that drew figures was killed, by lack of memory perhaps; run the same command again"
        ) from None
    finally:
        gc.unfreeze()
        _parts = []


_parts: list[_Part] = []  # for the processes that are forked, which get a number alone


def _draw_number(number: int) -> Drawn:
    gc.disable()  # subsetting a font makes so many objects that looking for garbage took a sixth of all time
    try:
        return _draw(_parts[number])
    finally:
        gc.collect()


def _draw(part: _Part) -> Drawn:
    return draw_album(part.results, part.out, part.names, part.width_in, part.at, part.formats)


def _by_grouping(names: Sequence[str]) -> list[list[str]]:
    """Figures that span the same settings stay together: they share tables that are made once."""
    alike: dict[frozenset[str], list[str]] = {}
    for name in names:
        alike.setdefault(FIGURES.load(name).compares, []).append(name)
    return list(alike.values())


def _joined(drawn: Iterable[Drawn]) -> Drawn:
    whole = Drawn()
    for one in drawn:
        whole.paths.extend(one.paths)
        whole.skipped.extend(one.skipped)
        whole.notes.extend(note for note in one.notes if note not in whole.notes)
    return whole
