"""The searches that an experiment needs, the cells of their trainings, how far each is, and running them.

Kin share one search: what computes the same mean up to rounding learns alike, so that the first of them trains for
all. Which trainings there are follows from what those before came to (``trainings``), so that a search goes on wherever
it was left. What has been trained before is not trained again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from bwbench.base.errors import CellTakenError, ConfigError
from bwbench.base.plain_data import Json, JsonObject, canonical
from bwbench.base.registry import ALGORITHMS, OPTIMIZERS
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.combinations import needs_workers
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.config.tune_block import TuneBlock, as_searched, tuned_options, variants_of, with_options
from bwbench.experiment.config.tuned import with_rate
from bwbench.experiment.config.tuned_table import RateTrial, Row, middle_target, search_key
from bwbench.experiment.plan.assess import UNREADABLE, PlannedCell, assess
from bwbench.experiment.plan.cell import MAX_SLUG, UNSAFE, Cell
from bwbench.network.link import UNSHAPED
from bwbench.records import CellFolder
from bwbench.records.cell_identity import identity
from bwbench.records.schema import Environment
from bwbench.results.analysis.arrival import FIT, Budget, arrival_on
from bwbench.results.analysis.trial import curve_of
from bwbench.running.executor import Executor, Finished, Report
from bwbench.running.run_cell import RunObserver, wall_limit_s
from bwbench.running.tuning.trainings import (
    GROWTH,
    LEAST,
    Judgement,
    Known,
    State,
    Training,
    budget_of,
    follow,
    grown,
    outermost,
)

FOLDER = ".tuning"  # below the results: shared by all experiments, and skipped by what lists them
JUDGED = ("done", "diverged")  # what says something about a rate; anything else says something about the machine
NOT_RUN = ("missing", "interrupted", UNREADABLE)
LAST = 3  # evaluations whose mean loss counts: one alone flickers
POLL_S = 0.5  # at trainings, where none of them says anything
_LOOK_AGAIN_S = 1.0  # at a training that another process is at


@dataclass(frozen=True)
class Search:
    """The search for arms that learn alike, on one workload.

    Attributes:
        arm: display name of the arm that trains; arms: of all that share the search, that one first.
        config: of a training, but for its learning rate: an unshaped link, full speed, the first seed of the tuning.
        grid: learning rates to choose from.
        budget: trainings, the same for all searches of an experiment.
        options: of the method that are tuned beside the rate, with the values to try; variants: sets of them, the first
            being what the experiment gives, which says nothing.
        notes: what the experiment has several values of, and the search one.
        known: trainings that a table holds, by the id of their cell: they count where their records are not here.
    """

    arm: str
    config: CellConfig
    grid: tuple[float, ...]
    budget: int
    arms: tuple[str, ...] = ()
    options: dict[str, list[Json]] = field(default_factory=dict)
    variants: tuple[JsonObject, ...] = ({},)
    notes: tuple[str, ...] = ()
    known: Mapping[str, RateTrial] = field(default_factory=dict)

    def cell(self, training: Training) -> Cell:
        """One training: an ordinary cell."""
        optimizer = with_rate(self.config.optimizer, training.rate)
        seed = self.config.seed + training.number
        config = self.config.model_copy(update={"optimizer": optimizer, "seed": seed})
        config = with_options(config, self.variants[training.variant])
        source, lr = config.dataset.source.name, f"lr{training.rate:g}"
        parts = (arm_name(config), config.model.name, source, f"n{config.nodes}", lr)
        name = "-".join(UNSAFE.sub("-", part).strip("-._") for part in parts)[:MAX_SLUG].rstrip("-._")
        return Cell(identity(config), f"{name}-s{config.seed}", FOLDER, self.arm, training.number, config)

    @property
    def words(self) -> str:
        """Arm and workload for messages."""
        config = self.config
        return f"{self.arm} ({config.model.name} on {config.dataset.source.name}, {config.nodes} node(s))"

    @property
    def rates_key(self) -> str:
        """Searches with the same one share a grid, and grow it together."""
        return canonical([self.config.optimizer.name, list(_rates_of(self.config))])


def searches_of(experiment: Experiment, seed: int, widen: int = 0, rows: Sequence[Row] = ()) -> list[Search]:
    """Every search once, in the order of the experiment; kin, and what differs in the link alone, share one.

    Args:
        seed: of the first training at each rate, others follow it; none that the experiment reports.
        widen: powers of two that are added to both ends of every grid, before it grows by itself.
        rows: of the table. A training in it is not done again on another machine, nor by kin of what trained: arms
            that share a row's search train by its method. With another limit or other evaluations those are others.

    Raises:
        ConfigError: a seed is one of the experiment's.
    """
    found: dict[str, list[_Asked]] = {}
    trained = {row.key: row for row in rows if not row.one_seed and row.entry.lr is not None}
    for point in experiment.points_to_tune:
        config, options = _trial_config(point.config, seed), tuned_options(experiment.tune, point.config)
        key = search_key(config, options)
        if (row := trained.get(key)) is not None:
            config = _trial_config(row.as_trained(point.config), seed)
        found.setdefault(key, []).append(_Asked(arm_name(point.config), config, options))
    searches = [_search(asked, experiment.tune, widen) for asked in found.values()]
    most = max(len(search.variants) for search in searches)
    searches = [replace(search, budget=budget_of(len(search.grid), most)) for search in searches]
    _refuse_reported(experiment, seed, max(most_seeds(search) for search in searches))
    known = {trial.id: trial for row in rows if not row.one_seed for trial in row.entry.trials}
    return [replace(search, known=known) for search in searches]


def most_seeds(search: Search) -> int:
    """No training of a search has another seed than so many from its first on."""
    return 1 + search.budget - len(search.grid)  # where training diverges at all rates but one


def _refuse_reported(experiment: Experiment, seed: int, seeds: int) -> None:
    reported = sorted(
        {point.config.seed + repeat for point in experiment.points for repeat in range(experiment.most_repeats)}
    )
    if not set(range(seed, seed + seeds)) & set(reported):
        return
    shown = ", ".join(map(str, reported[:5])) + (", …" if len(reported) > 5 else "")
    own = f"--seed {seed}" + (f" (to {seed + seeds - 1})" if seeds > 1 else "")
    text = f"{own} is one of the seeds that {experiment.file} reports ({shown})"
    raise ConfigError(f"{text}; rates chosen by it would be flattered, so choose another")


def widening(rows: Sequence[Row]) -> int:
    """By how many powers of two the grids of a table have been widened at both ends: it stays so, for all arms."""
    found = [0]
    for row in rows:
        usual: Sequence[float] = getattr(OPTIMIZERS.load(row.optimizer.name), "rates", ())
        if usual and not row.one_seed:
            below = sum(rate < usual[0] * 0.99 for rate in row.entry.grid)
            above = sum(rate > usual[-1] * 1.01 for rate in row.entry.grid)
            found.append(min(below, above))
    return max(found)


@dataclass(frozen=True)
class _Asked:
    """A cell that wants a rate: its arm, a training for it, and the options that are tuned beside the rate."""

    arm: str
    config: CellConfig
    options: dict[str, list[Json]]


def _search(asked: Sequence[_Asked], tune: TuneBlock, widen: int) -> Search:
    """The one search for cells that share a rate; it trains like the first of them. Its budget is still to be set."""
    configs, options = [one.config for one in asked], asked[0].options
    first, grid = configs[0], _grid(configs[0], tune, widen)
    arms = tuple(dict.fromkeys((arm_name(first), *(one.arm for one in asked))))
    variants = tuple(variants_of(tune, first)) if options else ({},)
    search = Search(arms[0], first, grid, 0, arms, options, variants)
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
    """A training of an arm; its nodes are virtual where the method allows it, since nobody asks for its times."""
    config = as_searched(config).model_copy(
        update={
            "link": UNSHAPED,
            "launcher": "local",
            "compute": config.compute.model_copy(update={"step_time": None, "overrides": {}}),
            "dilation": 1.0,
            "limit": config.limit.model_copy(update={"time_s": None}),  # samples count, on whatever machine
            "target": middle_target(config),
            "targets": (),
            "stop": "limit",  # arrival is known from what comes after it
            "evaluate": config.evaluate.tested_at_end(),
            "seed": seed,
        }
    )
    virtual = needs_workers(config) is None
    return config.model_copy(update={"compute": config.compute.model_copy(update={"virtual": virtual})})


def _rates_of(config: CellConfig) -> Sequence[float]:
    """That a search begins with: those of the method, where it has its own, else the optimizer's."""
    own: Sequence[float] = getattr(ALGORITHMS.load(config.algorithm.name), "rates", ())
    usual: Sequence[float] = getattr(OPTIMIZERS.load(config.optimizer.name), "rates", ())
    return own or usual


def _grid(config: CellConfig, tune: TuneBlock, widen: int) -> tuple[float, ...]:
    name = config.optimizer.name
    grid = tune.rates or _rates_of(config)
    if len(grid) < LEAST or list(grid) != sorted(set(grid)) or grid[0] <= 0:
        raise ConfigError(f"optimizer {name!r} has no grid of learning rates: 'rates' takes {LEAST} or more, rising")
    if "lr" not in type(config.optimizer.options).model_fields:
        raise ConfigError(f"optimizer {name!r} has no option 'lr', so there is nothing to tune")
    return grown(grid, widen, widen)


@dataclass(frozen=True)
class SearchProgress:
    """A search as far as its trainings have come.

    Attributes:
        state: what was trained, what is missing, what is best.
        trials: that have ended, in the order in which they were asked for.
        failed: those of them that say nothing about their rate.
        environments: what they ran on, as recorded.
    """

    state: State
    trials: tuple[RateTrial, ...]
    failed: tuple[RateTrial, ...]
    environments: tuple[Environment, ...] = ()


class _Lookup:
    """What the trainings of a search came to, each looked up once: below ``results``, else in its table."""

    def __init__(self, search: Search, results: Path) -> None:
        self._search, self._results = search, results
        self.trials: dict[Training, RateTrial | None] = {}
        self.environments: dict[Training, Environment] = {}

    def __call__(self, training: Training) -> Judgement | None:
        """The judgement of one; None where there is none yet, or none about its rate."""
        if training not in self.trials:
            item = planned(self._search, training, self._results)
            found = trial_of(item, training, self._search.variants[training.variant])
            if found is not None and (environment := CellFolder(item.folder).environment):
                self.environments[training] = environment
            self.trials[training] = _judged(found) or _judged(self._known(item.cell)) or found
        trial = _judged(self.trials[training])
        if trial is None:
            return None
        return Judgement(trial.samples_to_target, trial.loss, diverged=trial.status != "done")

    def _known(self, cell: Cell) -> RateTrial | None:
        """What the table holds of a training; tables of before hold some that looked at the test split oftener."""
        known, oftener = self._search.known, cell.config.evaluate.without_test_curve()
        return known.get(cell.id) or known.get(identity(cell.config.model_copy(update={"evaluate": oftener})))


def progress(search: Search, results: Path) -> SearchProgress:
    """How far a search is by what lies below ``results``, and by the trainings that its table holds."""
    known = _Lookup(search, results)
    state = _followed(search, known)
    ended = tuple(trial for training in state.trainings if (trial := known.trials[training]) is not None)
    failed = tuple(trial for trial in ended if trial.status not in JUDGED)
    return SearchProgress(state, ended, failed, tuple(known.environments.values()))


def _followed(search: Search, known: Known) -> State:
    return follow(search.grid, len(search.variants), search.budget, search.config.limit.samples, known)


def with_common_grids(searches: Sequence[Search], results: Path) -> list[Search]:
    """The searches with their grids as they have grown so far: all of one optimizer alike, each with as many trainings.

    A grid grows at the end at which the best rate lies, for any of the searches, by one seed or by several, up to
    ``GROWTH`` times.
    """
    found = list(searches)
    for key in dict.fromkeys(search.rates_key for search in searches):
        low = high = 0
        while True:
            alike = [search for search in found if search.rates_key == key]
            edges = {_end_of_best(search, results) for search in alike}
            more = (int(-1 in edges and low < GROWTH), int(1 in edges and high < GROWTH))
            if more == (0, 0):
                break
            low, high = low + more[0], high + more[1]
            found = [_grown(search, *more) if search.rates_key == key else search for search in found]
    return found


def _end_of_best(search: Search, results: Path) -> int:
    """-1 or 1 where the best rate lies at that end of the grid; 0 inside, or where that is not known yet."""
    known = _Lookup(search, results)
    if (end := outermost(search.grid, known)) != 0:
        return end
    best = _followed(search, known).best
    if best is None or not best.on_edge:
        return 0
    return -1 if best.rate < search.grid[1] else 1


def _grown(search: Search, low: int, high: int) -> Search:
    return replace(search, grid=grown(search.grid, low, high), budget=search.budget + low + high)


def _judged(trial: RateTrial | None) -> RateTrial | None:
    """The trial where it says something about its rate."""
    return trial if trial is not None and trial.status in JUDGED else None


def planned(search: Search, training: Training, results: Path, retry: tuple[str, ...] = ()) -> PlannedCell:
    """One training, and what is recorded of it."""
    (item,) = assess([search.cell(training)], results, retry)
    return item


def waiting(search: Search, results: Path, retry: tuple[str, ...] = ()) -> list[PlannedCell]:
    """The trainings that are to run now; which ones follow depends on what they come to."""
    needed = (planned(search, training, results, retry) for training in progress(search, results).state.missing)
    return [item for item in needed if item.runs]


def trial_of(item: PlannedCell, training: Training, options: JsonObject) -> RateTrial | None:
    """What a training came to, which had these options; None where it has not ended."""
    if item.status in NOT_RUN:
        return None
    config = item.cell.config
    aim = None if config.target is None else (config.target.metric, config.target.value)
    ended_ns = (item.folder / "status.json").stat().st_mtime_ns
    samples, loss = _outcome(item.folder, ended_ns, aim, config.limit.samples)
    return RateTrial(
        lr=training.rate,
        options=options,
        seed=config.seed,
        status=item.status,
        samples_to_target=samples,
        loss=loss,
        id=item.cell.id,
    )


@lru_cache(maxsize=4096)  # a search is followed anew for every training
def _outcome(
    folder: Path, ended_ns: int, aim: tuple[str, float] | None, limit_samples: int
) -> tuple[int | None, float | None]:
    """Samples until the target was reached, and the mean loss of the last evaluations; None where there is none."""
    curve, samples = curve_of(CellFolder(folder).events()), None
    if aim is not None:
        arrival = arrival_on(curve, *aim, Budget(samples=limit_samples), went_on=True)
        samples = round(arrival.samples) if arrival.kind == FIT and arrival.samples is not None else None
    losses = [loss for point in curve[-LAST:] if (loss := point.metrics.get("loss")) is not None]
    return samples, fmean(losses) if len(losses) == len(curve[-LAST:]) > 0 else None


def tune(
    searches: Sequence[Search],
    results: Path,
    predicted_s: Sequence[float],
    observer: RunObserver,
    ended: Callable[[Search, SearchProgress], None],
    executor: Executor,
    retry: tuple[str, ...] = (),
) -> None:
    """Run the searches: every rate of all of them first, which says how far the grids grow, then what follows from it.

    As many trainings at a time as the executor takes: those of the first search, while there are any, then others'.

    Args:
        results: trainings lie in ``.tuning`` below it.
        predicted_s: how long a training of each search should take at most, in the order of ``searches``.
        ended: told what each search came to, as soon as it has ended, and once more where its grid has grown since.
        executor: with one machine, which has the results.
        retry: statuses of trainings that shall run again, once each.

    Raises:
        UnfitMachineError: the machine cannot run nodes, or the disk is full.
        CellTakenError: another process has been at a training for longer than it may take.
        KeyboardInterrupt: handed on; the trainings that ran go on next time, once the executor is closed.
    """
    races = _Races(results, [wall_limit_s(one_s) for one_s in predicted_s], observer, executor, retry)
    common: list[Search] = []
    while common != (found := with_common_grids(searches, results)):
        common = found
        races.train(common, grids=True)
        if common != with_common_grids(searches, results):
            continue
        races.train(common, ended=ended)


@dataclass
class _Running:
    """A training at work; ``of`` is the number of its search."""

    of: int
    item: PlannedCell


class _Races:
    """Trains what searches lack, several trainings at a time where the executor takes them."""

    def __init__(
        self,
        results: Path,
        limits_s: Sequence[float],
        observer: RunObserver,
        executor: Executor,
        retry: tuple[str, ...],
    ) -> None:
        self._results, self._limits_s, self._observer = results, limits_s, observer
        self._executor, self._retry = executor, retry
        self._retried: set[str] = set()  # ids of those that have had their second chance
        self._running: dict[int, _Running] = {}
        self._taken_mono_s: dict[str, float] = {}  # ids of those that another process is at, and since when

    def train(
        self,
        searches: Sequence[Search],
        *,
        grids: bool = False,
        ended: Callable[[Search, SearchProgress], None] = lambda *_: None,
    ) -> None:
        """Until nothing more can be trained.

        Args:
            grids: only what every search begins with, each rate once.
            ended: as of ``tune``.
        """
        self._searches, self._grids = searches, grids
        found = [progress(search, self._results) for search in searches]
        waiting = [self._missing(of, one) for of, one in enumerate(found)]
        open_ = set(range(len(searches)))
        while open_:
            for of in sorted(open_):
                if not waiting[of] and not any(one.of == of for one in self._running.values()):
                    open_.discard(of)
                    ended(searches[of], found[of])
            self._fill(waiting, found)
            for report in self._executor.reports(POLL_S) if self._running else ():
                of = self._note(report)
                found[of] = progress(searches[of], self._results)
                waiting[of] = self._missing(of, found[of])

    def _missing(self, of: int, found: SearchProgress) -> list[PlannedCell]:
        """What a search still has to train, but for what is being trained."""
        search, at_work = self._searches[of], {one.item.cell.id for one in self._running.values()}
        items = []
        for training in found.state.missing:
            retry = () if (cell_id := search.cell(training).id) in self._retried else self._retry
            item = planned(search, training, self._results, retry)
            is_asked = not self._grids or training in map(Training, search.grid)
            if item.runs and is_asked and cell_id not in at_work:
                items.append(item)
        return items

    def _fill(self, waiting: Sequence[list[PlannedCell]], found: Sequence[SearchProgress]) -> None:
        """Begin what the machine takes, in the order of the searches."""
        (machine,) = self._executor.machines()
        for of, items in enumerate(waiting):
            while items:
                item, running = items[0], [one.item for one in self._running.values()]
                if len(running) >= self._executor.cells_per_machine or not self._executor.takes(item, running):
                    return
                del items[0]
                self._retried.add(item.cell.id)
                behind = sum(len(one.trials) - len(one.failed) for one in found)
                total = sum(search.budget for search in self._searches)
                self._observer.cell_started(item, behind + len(running) + 1, total)
                key = self._executor.start(machine, item, self._limits_s[of], self._observer)
                self._running[key] = _Running(of, item)

    def _note(self, report: Report) -> int:
        """Take in how a training has ended; returns the number of its search."""
        running = self._running.pop(report.key)
        item = running.item
        if isinstance(report.end, Finished):
            self._taken_mono_s.pop(item.cell.id, None)
            self._observer.cell_finished(item, report.end.status)
            return running.of
        since = self._taken_mono_s.setdefault(item.cell.id, time.monotonic())
        if time.monotonic() - since > self._limits_s[running.of]:
            raise CellTakenError(f"another process has been at {item.folder} for longer than it may take")
        self._observer.cell_phase(item.cell, "waiting for another process that is at it")
        time.sleep(_LOOK_AGAIN_S)
        self._retried.discard(item.cell.id)
        return running.of
