"""Run every trial that a search still needs; what has been trained before is not trained again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bwbench.base.errors import CellTakenError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Status
from bwbench.running.cell import CellObserver, run_cell, wall_limit_s
from bwbench.running.tuning.searches import Search
from bwbench.running.tuning.trials import Progress, planned, progress

_LOOK_AGAIN_S = 1.0  # at a trial that another process is at

RunCell = Callable[[PlannedCell, float, CellObserver], Status]


class TuningObserver(CellObserver, Protocol):
    """Told what happens while trials run; the command line shows it."""

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """A trial begins: the ``number``-th of the ``total`` that are known to be needed; there may come more."""

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """The trial has ended with this."""


def tune(
    searches: Sequence[Search],
    results: Path,
    predicted_s: Sequence[float],
    observer: TuningObserver,
    ended: Callable[[Search, Progress], None],
    retry: tuple[str, ...] = (),
    run: RunCell = run_cell,
) -> None:
    """Run the searches one after another.

    Args:
        results: trials lie in ``.tuning`` below it.
        predicted_s: how long a trial of each search should take at most, in the order of ``searches``.
        ended: told what each search came to, as soon as it has ended.
        retry: statuses of trials that shall run again, once each.
        run: runs one cell.

    Raises:
        UnfitMachineError: the machine cannot run nodes, or the disk is full.
        CellTakenError: another process has been at a trial for longer than it may take.
        KeyboardInterrupt: handed on; the trial that ran goes on next time.
    """
    found = [progress(search, results) for search in searches]
    for number, search in enumerate(searches):
        retried: set[float] = set()
        while (item := _next(search, found[number], results, retry, retried)) is not None:
            total = sum(len(one.state.tried) for one in found)
            waiting = sum(len(one.state.missing) for one in found)
            observer.cell_started(item, total - waiting + 1, total)
            status = _run(item, wall_limit_s(predicted_s[number]), observer, run)
            observer.cell_finished(item, status)
            found[number] = progress(search, results)
        ended(search, found[number])


def _next(
    search: Search, found: Progress, results: Path, retry: tuple[str, ...], retried: set[float]
) -> PlannedCell | None:
    """The next trial to run, if any; ``retried`` keeps those that have had their second chance."""
    for lr in found.state.missing:
        item = planned(search, lr, results, () if lr in retried else retry)
        if item.runs:
            retried.add(lr)
            return item
    return None


def _run(item: PlannedCell, limit_s: float, observer: CellObserver, run: RunCell) -> Status:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return run(item, limit_s, observer)
        except CellTakenError:
            if time.monotonic() > deadline:
                raise
            observer.cell_phase(item.cell, "waiting for another process that is at it")
            time.sleep(_LOOK_AGAIN_S)
