"""What a trial came to, read from its folder: samples to the target, and the loss that decides where that does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bwbench.experiment.config.tuned_table import Trial
from bwbench.experiment.plan.assess import UNREADABLE, PlannedCell, assess
from bwbench.records import CellFolder
from bwbench.records.schema import Environment
from bwbench.results.analysis.trial import evaluations
from bwbench.running.tuning.search import State, search
from bwbench.running.tuning.searches import Search

JUDGED = ("done", "diverged")  # what says something about a rate; anything else says something about the machine
NOT_RUN = ("missing", "interrupted", UNREADABLE)

Cost = tuple[float, float]  # samples to the target, then validation loss; infinite where there is none


@dataclass(frozen=True)
class Progress:
    """A search as far as its trials have come.

    Attributes:
        state: what was tried, what is missing, what is best.
        trials: that have ended, by rising rate.
        failed: those of them that say nothing about their rate.
        environments: what the trials ran on, as recorded.
    """

    state: State
    trials: tuple[Trial, ...]
    failed: tuple[Trial, ...]
    environments: tuple[Environment, ...] = ()

    @property
    def best(self) -> Trial | None:
        """The trial of the best rate; None before the search has ended, and where every rate diverged."""
        found = next((trial for trial in self.trials if trial.lr == self.state.best), None)
        return found if found is not None and cost_of(found) != (math.inf, math.inf) else None


def progress(search_: Search, results: Path) -> Progress:
    """How far a search is by what lies below ``results``, and by the trials that its table holds."""
    seen: dict[float, Trial | None] = {}
    environments: dict[float, Environment] = {}

    def cost(lr: float) -> Cost | None:
        if lr not in seen:
            item = planned(search_, lr, results)
            found = trial_of(item, lr)
            if found is not None and (environment := CellFolder(item.folder).environment):
                environments[lr] = environment
            seen[lr] = _judged(found) or _judged(search_.known.get(item.cell.id)) or found
        return cost_of(judged) if (judged := _judged(seen[lr])) else None

    state = search(search_.grid, cost)
    ended = tuple(trial for lr in state.tried if (trial := seen[lr]) is not None)
    failed = tuple(trial for trial in ended if trial.status not in JUDGED)
    return Progress(state, ended, failed, tuple(environments.values()))


def _judged(trial: Trial | None) -> Trial | None:
    """The trial where it says something about its rate."""
    return trial if trial is not None and trial.status in JUDGED else None


def planned(search_: Search, lr: float, results: Path, retry: tuple[str, ...] = ()) -> PlannedCell:
    """The trial of one rate, and what is recorded of it."""
    (item,) = assess([search_.cell(lr)], results, retry)
    return item


def waiting(search_: Search, results: Path, retry: tuple[str, ...] = ()) -> list[PlannedCell]:
    """The trials that are to run now; which ones follow depends on what they come to."""
    needed = (planned(search_, lr, results, retry) for lr in progress(search_, results).state.missing)
    return [item for item in needed if item.runs]


def trial_of(item: PlannedCell, lr: float) -> Trial | None:
    """What a trial came to; None where it has not ended."""
    if item.status in NOT_RUN:
        return None
    folder = CellFolder(item.folder)
    samples = folder.status.samples_to_target if folder.status is not None else None
    return Trial(lr=lr, status=item.status, samples_to_target=samples, loss=_last_loss(folder), id=item.cell.id)


def cost_of(trial: Trial) -> Cost:
    """The fewer samples to the target the better; where they are equal, or none reaches it, the lower the loss.

    A trial that diverged is worth nothing, whatever it reached before.
    """
    if trial.status != "done":
        return math.inf, math.inf
    samples = math.inf if trial.samples_to_target is None else trial.samples_to_target
    return samples, math.inf if trial.loss is None else trial.loss


def _last_loss(folder: CellFolder) -> float | None:
    """Mean over the nodes, at the last evaluation on the validation split; None where it is not finite."""
    last = [found[-1] for rank in folder.ranks if (found := evaluations(folder.events(rank), "validation"))]
    return last[0].mean.get("loss") if last else None
