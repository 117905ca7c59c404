"""Searches for learning rates: which rates one tries, which searches an experiment needs, the cells of their trials.

A search tries the middle three of a grid, then goes outwards while the best is outermost. Nobody gets more tries than
another: what is tried follows from the costs alone, and every arm has the same grid.

A rate is judged by samples to the target, and by the loss where these say nothing. What has been trained before is not
trained again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bwbench.base.errors import CellTakenError, ConfigError
from bwbench.base.plain_data import canonical
from bwbench.base.registry import OPTIMIZERS
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.config.tuned import with_rate
from bwbench.experiment.config.tuned_table import RateTrial, Row, setting_of
from bwbench.experiment.plan.assess import UNREADABLE, PlannedCell, assess
from bwbench.experiment.plan.cell import MAX_SLUG, UNSAFE, Cell
from bwbench.network.link import UNSHAPED
from bwbench.records import CellFolder
from bwbench.records.cell_identity import identity
from bwbench.records.schema import Environment, Status
from bwbench.results.analysis.trial import evaluations
from bwbench.running.run_cell import CellObserver, RunCell, RunObserver, run_cell, wall_limit_s

START = 3  # rates that are tried in any case
FOLDER = ".tuning"  # below the results: shared by all experiments, and skipped by what lists them
JUDGED = ("done", "diverged")  # what says something about a rate; anything else says something about the machine
NOT_RUN = ("missing", "interrupted", UNREADABLE)
_LOOK_AGAIN_S = 1.0  # at a trial that another process is at


@dataclass(frozen=True)
class State:
    """How far a search is.

    Attributes:
        tried: the rates that are needed so far, rising; those without a cost yet included.
        missing: those without a cost; empty once the search has ended.
        best: the rate of least cost, of equal ones the lowest; None until the search has ended.
    """

    tried: tuple[float, ...]
    missing: tuple[float, ...]
    best: float | None


def search_grid(grid: Sequence[float], cost: Callable[[float], Any]) -> State:
    """Follow the search as far as costs are known.

    Args:
        grid: learning rates, rising, ``START`` or more.
        cost: of a rate, anything that can be compared; None where it is not known yet. A function that finds it out
            makes this the whole search.
    """
    first = (len(grid) - START) // 2
    tried = list(grid[first : first + START])
    while True:
        costs = {rate: cost(rate) for rate in tried}
        missing = tuple(rate for rate in tried if costs[rate] is None)
        if missing:
            return State(tuple(tried), missing, None)
        best = min(tried, key=lambda rate: costs[rate])
        position = list(grid).index(best)
        around = [grid[index] for index in (position - 1, position + 1) if 0 <= index < len(grid)]
        new = [rate for rate in around if rate not in costs]
        if not new:
            return State(tuple(tried), (), best)
        tried = sorted([*tried, *new])


def widened(grid: Sequence[float], steps: int) -> tuple[float, ...]:
    """The grid with ``steps`` more powers of two at both ends."""
    below = [grid[0] / 2.0**power for power in range(steps, 0, -1)]
    return (*below, *grid, *(grid[-1] * 2.0**power for power in range(1, steps + 1)))


def on_edge(grid: Sequence[float], rate: float) -> bool:
    """Whether a better rate may lie beyond the grid."""
    return rate in (grid[0], grid[-1])


@dataclass(frozen=True)
class Search:
    """The search for one arm on one workload.

    Attributes:
        arm: display name of the method.
        config: of a trial, but for its learning rate: an unshaped link, full speed, the seed of the tuning.
        grid: learning rates to choose from.
        notes: what the experiment has several values of, and the search one.
        known: trials that a table holds, by the id of their cell: they count where their records are not here.
    """

    arm: str
    config: CellConfig
    grid: tuple[float, ...]
    notes: tuple[str, ...] = ()
    known: Mapping[str, RateTrial] = field(default_factory=dict)

    def cell(self, lr: float) -> Cell:
        """The trial of one learning rate: an ordinary cell."""
        config = self.config.model_copy(update={"optimizer": with_rate(self.config.optimizer, lr)})
        parts = (self.arm, config.model.name, config.dataset.source.name, f"n{config.nodes}", f"lr{lr:g}")
        name = "-".join(UNSAFE.sub("-", part).strip("-._") for part in parts)[:MAX_SLUG].rstrip("-._")
        return Cell(identity(config), f"{name}-s{config.seed}", FOLDER, self.arm, 0, config)

    @property
    def words(self) -> str:
        """Arm and workload for messages."""
        config = self.config
        return f"{self.arm} ({config.model.name} on {config.dataset.source.name}, {config.nodes} node(s))"


def searches_of(experiment: Experiment, seed: int, widen: int = 0, rows: Sequence[Row] = ()) -> list[Search]:
    """Every search once, in the order of the experiment; what differs in the link alone shares one.

    Args:
        seed: of all trials; not one that the experiment reports.
        widen: powers of two that are added to both ends of every grid.
        rows: of the table; a trial in it is not trained again on another machine.

    Raises:
        ConfigError: the seed is one of the experiment's.
    """
    reported = sorted(
        {point.config.seed + repeat for point in experiment.points for repeat in range(experiment.most_repeats)}
    )
    if seed in reported:
        shown = ", ".join(map(str, reported[:5])) + (", …" if len(reported) > 5 else "")
        text = f"--seed {seed} is one of the seeds that {experiment.file} reports ({shown})"
        raise ConfigError(f"{text}; rates chosen by it would be flattered, so choose another")
    found: dict[tuple[str, ...], list[CellConfig]] = {}
    for point in experiment.points:
        config = _trial_config(point.config, seed)
        options = config.optimizer.options.model_dump_json(exclude={"lr"})
        key = (canonical(setting_of(config)), config.optimizer.name, options)
        found.setdefault(key, []).append(config)
    known = {trial.id: trial for row in rows for trial in row.entry.trials}
    return [replace(_search(configs, widen), known=known) for configs in found.values()]


def widening(rows: Sequence[Row]) -> int:
    """By how many powers of two the grids of a table have been widened: it stays so, for all arms alike."""
    found = [0]
    for row in rows:
        usual = getattr(OPTIMIZERS.load(row.optimizer.name), "rates", ())
        found.append((len(row.entry.grid) - len(usual)) // 2)
    return max(found)


def _search(configs: Sequence[CellConfig], widen: int) -> Search:
    """The one search for cells that share a rate; it trains like the first of them."""
    first = configs[0]
    search = Search(arm_name(first), first, _grid(first, widen))
    notes = []
    for key, value in (
        ("evaluate.every", lambda config: f"{config.evaluate.every_samples:g} samples"),
        ("limit.samples", lambda config: str(config.limit.samples)),
    ):
        values = list(dict.fromkeys(map(value, configs)))
        if len(values) > 1:
            text = f"{key} has the values {', '.join(values)}, and cells that differ in it share one search"
            notes.append(f"{search.words}: {text}: it takes {values[0]}")
    return replace(search, notes=tuple(notes))


def _trial_config(config: CellConfig, seed: int) -> CellConfig:
    return config.model_copy(
        update={
            "link": UNSHAPED,
            "launcher": "local",
            "compute": config.compute.model_copy(update={"step_time_s": None}),
            "limit": config.limit.model_copy(update={"time_s": None}),  # samples count, on whatever machine
            "stop": "limit" if config.target is None else "target",
            "seed": seed,
        }
    )


def _grid(config: CellConfig, widen: int) -> tuple[float, ...]:
    name = config.optimizer.name
    grid: Sequence[float] = getattr(OPTIMIZERS.load(name), "rates", ())
    if len(grid) < START or list(grid) != sorted(set(grid)) or grid[0] <= 0:
        raise ConfigError(f"optimizer {name!r} has no grid of learning rates: 'rates' takes {START} or more, rising")
    if "lr" not in type(config.optimizer.options).model_fields:
        raise ConfigError(f"optimizer {name!r} has no option 'lr', so there is nothing to tune")
    return widened(grid, widen)


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


def tune(
    searches: Sequence[Search],
    results: Path,
    predicted_s: Sequence[float],
    observer: RunObserver,
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
