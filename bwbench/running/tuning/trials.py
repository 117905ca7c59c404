"""Trials of a search: what they came to, read from their folders, and running those that are still needed.

A rate is judged by samples to the target, and by the loss where these say nothing. What has been trained before is not
trained again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bwbench.base.errors import CellTakenError
from bwbench.experiment.config.tuned_table import RateTrial
from bwbench.experiment.plan.assess import UNREADABLE, PlannedCell, assess
from bwbench.records import CellFolder
from bwbench.records.schema import Environment, Status
from bwbench.results.analysis.trial import evaluations
from bwbench.running.run_cell import CellObserver, RunCell, run_cell, wall_limit_s
from bwbench.running.tuning.search import Search, State, search_grid

JUDGED = ("done", "diverged")  # what says something about a rate; anything else says something about the machine
NOT_RUN = ("missing", "interrupted", UNREADABLE)
_LOOK_AGAIN_S = 1.0  # at a trial that another process is at

Cost = tuple[float, float]  # samples to the target, then validation loss; infinite where there is none


@dataclass(frozen=True)
class SearchProgress:
    """A search as far as its trials have come.

    Attributes:
        state: what was tried, what is missing, what is best.
        trials: that have ended, by rising rate.
        failed: those of them that say nothing about their rate.
        environments: what the trials ran on, as recorded.
    """

    state: State
    trials: tuple[RateTrial, ...]
    failed: tuple[RateTrial, ...]
    environments: tuple[Environment, ...] = ()

    @property
    def best(self) -> RateTrial | None:
        """The trial of the best rate; None before the search has ended, and where every rate diverged."""
        found = next((trial for trial in self.trials if trial.lr == self.state.best), None)
        return found if found is not None and cost_of(found) != (math.inf, math.inf) else None


def progress(search: Search, results: Path) -> SearchProgress:
    """How far a search is by what lies below ``results``, and by the trials that its table holds."""
    seen: dict[float, RateTrial | None] = {}
    environments: dict[float, Environment] = {}

    def cost(lr: float) -> Cost | None:
        if lr not in seen:
            item = planned(search, lr, results)
            found = trial_of(item, lr)
            if found is not None and (environment := CellFolder(item.folder).environment):
                environments[lr] = environment
            seen[lr] = _judged(found) or _judged(search.known.get(item.cell.id)) or found
        return cost_of(judged) if (judged := _judged(seen[lr])) else None

    state = search_grid(search.grid, cost)
    ended = tuple(trial for lr in state.tried if (trial := seen[lr]) is not None)
    failed = tuple(trial for trial in ended if trial.status not in JUDGED)
    return SearchProgress(state, ended, failed, tuple(environments.values()))


def _judged(trial: RateTrial | None) -> RateTrial | None:
    """The trial where it says something about its rate."""
    return trial if trial is not None and trial.status in JUDGED else None


def planned(search: Search, lr: float, results: Path, retry: tuple[str, ...] = ()) -> PlannedCell:
    """The trial of one rate, and what is recorded of it."""
    (item,) = assess([search.cell(lr)], results, retry)
    return item


def waiting(search: Search, results: Path, retry: tuple[str, ...] = ()) -> list[PlannedCell]:
    """The trials that are to run now; which ones follow depends on what they come to."""
    needed = (planned(search, lr, results, retry) for lr in progress(search, results).state.missing)
    return [item for item in needed if item.runs]


def trial_of(item: PlannedCell, lr: float) -> RateTrial | None:
    """What a trial came to; None where it has not ended."""
    if item.status in NOT_RUN:
        return None
    folder = CellFolder(item.folder)
    samples = folder.status.samples_to_target if folder.status is not None else None
    last = [found[-1] for events in folder.events().values() if (found := evaluations(events, "validation"))]
    loss = last[0].mean.get("loss") if last else None  # over the nodes; None where it is not finite
    return RateTrial(lr=lr, status=item.status, samples_to_target=samples, loss=loss, id=item.cell.id)


def cost_of(trial: RateTrial) -> Cost:
    """The fewer samples to the target the better; where they are equal, or none reaches it, the lower the loss.

    A trial that diverged is worth nothing, whatever it reached before.
    """
    if trial.status != "done":
        return math.inf, math.inf
    samples = math.inf if trial.samples_to_target is None else trial.samples_to_target
    return samples, math.inf if trial.loss is None else trial.loss


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
    ended: Callable[[Search, SearchProgress], None],
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
    search: Search, found: SearchProgress, results: Path, retry: tuple[str, ...], retried: set[float]
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
